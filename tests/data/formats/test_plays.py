"""Speeches of roles extracted from plays in plain text."""

import lzma

import pytest

from fedwin import data
from fedwin.data.formats import plays
from tests.data.files import expect_runs, refused

PLAY = """\tHAMLET

\tDRAMATIS PERSONAE

HAMLET\tson to the late king.

ACT I


SCENE I\tElsinore. A platform.

\t[FRANCISCO at his post.
\tEnter BERNARDO]

BERNARDO\tWho's   there?

HAMLET\tNay, answer me: [Aside] stand,
\tand unfold yourself.

\t[Drinks]

\tAgain.

VOLTIMAND\t|
\t|  In that and all things.
CORNELIUS\t|

\tHAMLET

HAMLET\tLong live the king!

QUEEN
GERTRUDE\tHave you eyes?

ACT II

QUEEN
GERTRUDE\tCome.
"""


# The layout of Project Gutenberg's complete works: contents and sonnets, indented plays, one play that is not.
GUTENBERG = """The Project Gutenberg EBook
THE SONNETS

by William Shakespeare

  Nobody. The sonnets are left out.
  Nobody. Twice.
  Nobody. Three times.

1604

THE TRAGEDY OF TWO

by William Shakespeare

DRAMATIS PERSONAE

  HAMLET, a prince

ACT I. SCENE I.
A platform

                       Enter HAMLET

  Ham. Who's   there?
    Nay, answer me;
      stand.

    Unfold yourself.              Exit
SCENE II.
    still he
  HAM. Long live the king!
  Ber. Yes.

<<THIS ELECTRONIC VERSION>>

THE COMEDY OF ERRORS

by William Shakespeare

ACT I. SCENE 1
Enter the DUKE

AEGEON. Proceed, Solinus.
And by the doom
DUKE. Merchant of Syracusa,
plead no more;
I am not partial.
<<THIS ELECTRONIC VERSION>>
nobody's
ACT II. SCENE 1
nobody's
AEGEON. Once more.

THE END
"""


def test_plays_are_split_into_what_each_role_says():
    said = plays.speeches_by_role(PLAY)
    assert said == {
        "BERNARDO": ["Who's there?"],
        "HAMLET": ["Nay, answer me: stand, and unfold yourself. Again.", "Long live the king!"],
        "QUEEN GERTRUDE": ["Have you eyes?", "Come."],
    }
    assert plays.text_by_role({"hamlet": PLAY}) == {
        "HAMLET_HAMLET": " ".join(said["HAMLET"]),
        "HAMLET_QUEEN_GERTRUDE": "Have you eyes? Come.",
    }
    assert plays.speeches_by_role("A sonnet.") == {}


@pytest.mark.parametrize("suffix, compress", [("", bytes), (".xz", lzma.compress)])
def test_roles_of_the_complete_works(tmp_path, suffix, compress):
    found = plays.text_by_role_of_gutenberg(GUTENBERG)
    assert found == {
        "THE_TRAGEDY_OF_TWO_HAM": "Who's there? Nay, answer me; stand. Unfold yourself. "
        "Exit still he Long live the king! ",
        "THE_COMEDY_OF_ERRORS_AEGEON": "Proceed, Solinus. And by the doom Once more. THE END ",
        "THE_COMEDY_OF_ERRORS_DUKE": "Merchant of Syracusa, plead no more; I am not partial. ",
    }
    longer = "\n".join(f"    line {k} of {k * k}" for k in range(40))
    text = GUTENBERG.replace("  Ber. Yes.", f"  Ham. More.\n{longer}\n  Ber. Yes.")
    (tmp_path / f"pg100.txt{suffix}").write_bytes(compress(text.encode()))
    with pytest.warns(UserWarning, match="pg100.txt.*not the original's"):
        dataset = data.load("shakespeare_leaf:clients=1,train=100,test=20", tmp_path)
    expect_runs(dataset, plays.text_by_role_of_gutenberg(text), 100, 20)


def test_plays_in_another_form_are_named_with_the_form_expected(tmp_path):
    (tmp_path / "hamlet.txt").write_text("HAMLET. To be, or not to be.\n")
    message = "no role speaks in it; a play must have lines `ROLE<TAB>text` after `ACT I`"
    refused(message, data.load, "shakespeare_leaf", tmp_path)
