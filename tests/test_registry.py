"""Registries and choices: parsing, formatting, errors, papers."""

import pytest

from fedwin.errors import UserError
from fedwin.registry import Registry
from fedwin.registry.choices import Choice, literal, parse
from fedwin.registry.papers import Paper


def make():
    registry = Registry("thing", columns={"weight": "{weight} kg"}, weight="?")

    @registry.register("ball", paper="reddi2021adaptive", weight="2")
    def ball(context, *, radius: float = 1.0, colour):
        """Ball: a round thing.

        Args:
          radius: how far it reaches,
            in metres.
          colour: what it looks like.
        """
        return context, radius, colour

    return registry


def test_parse_reads_types():
    assert parse("a:x=1,y=1.0,z=true,w=none,v=text") == ("a", {"x": 1, "y": 1.0, "z": True, "w": None, "v": "text"})
    assert isinstance(literal("1.0"), float) and isinstance(literal("1"), int)


@pytest.mark.parametrize(
    "text, value",
    [
        ('"/a,b/x.gz"', "/a,b/x.gz"),
        ("'/a,b:c=d/x.gz' ", "/a,b:c=d/x.gz"),
        ('"1"', "1"),
        ("''", ""),
        ('"say ""so"""', 'say "so"'),
        ("it's", "it's"),
    ],
)
def test_quoted_values_are_taken_as_they_are(text, value):
    assert parse(f"csv:path={text},k=1") == parse(f"csv: path={text} ,k=1") == ("csv", {"path": value, "k": 1})


@pytest.mark.parametrize("text", ["csv:path='/a,b", 'csv:path="/a"b', "csv:path='it's'"])
def test_an_unclosed_quote_is_one_line(text):
    with pytest.raises(UserError, match="the quote that opens path= is not closed") as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "value", [1, 1.0, True, None, "word", "", "a,b", "'", "\"'", " a", "1", "none", "a:b=c", "012"]
)
def test_a_choice_written_out_reads_the_same(value):
    choice = Choice("name", {"key": value, "more": 2})
    again = parse(str(choice))
    assert again == choice and type(again.params["key"]) is type(value)


def test_choices_accept_changed_parameters():
    registry = make()
    choice = registry.check("ball:colour=red")
    bigger = choice.with_params(radius=2)
    assert str(choice) == "ball:colour=red" and str(bigger) == "ball:colour=red,radius=2"
    assert registry.build(bigger, "here") == ("here", 2, "red")
    assert registry.check(bigger) == bigger
    with pytest.raises(UserError, match="radius=far must be a number"):
        registry.check(choice.with_params(radius="far"))


def test_build_passes_context_and_parameters():
    assert make().build("ball:radius=2,colour=red", "here") == ("here", 2, "red")


@pytest.mark.parametrize(
    "text, words",
    [
        ("bal:colour=red", ["unknown thing 'bal'", "'ball'"]),
        ("ball:radios=2,colour=red", ["no parameter 'radios'", "'radius'"]),
        ("ball", ["needs colour"]),
        ("ball:colour", ["not key=value"]),
        ("ball:colour=red,colour=blue", ["twice"]),
    ],
)
def test_errors_name_culprit_and_remedy(text, words):
    with pytest.raises(UserError) as caught:
        make().build(text, None)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_name_can_be_taken_once():
    registry = make()
    with pytest.raises(UserError, match="'ball' is registered already"):
        registry.register("ball", lambda: None)


def test_the_same_function_may_be_registered_again():
    registry, other = make(), make()
    registry.register("ball", registry["ball"])
    registry.register("ball", other["ball"])  # as by a module that is imported twice
    assert list(registry.entries) == ["ball"]


def test_an_entry_has_all_registered_facts():
    entry = make().entries["ball"]
    assert (entry.summary, entry.facts, entry.instances) == ("a round thing", {"weight": "2"}, ("ball",))
    assert [(h.name, h.meaning) for h in entry.hyperparameters] == [
        ("radius", "how far it reaches, in metres."),
        ("colour", "what it looks like."),
    ]
    assert entry.papers[0].title == "Adaptive Federated Optimization"


def test_papers_of_the_user():
    registry = make()
    bibtex = "@misc{me2026,\n  title = {Mine},\n  url = {https://example.org}\n}"
    registry.register("cube", lambda context: None, paper=bibtex)
    registry.register("cone", lambda context: None, paper=(Paper("you2026", "Yours"), "reddi2021adaptive"))
    assert registry.entries["cube"].papers == (Paper("me2026", "Mine", "https://example.org", bibtex),)
    assert registry.entries["cone"].papers[0].entry().startswith("@misc{you2026,")
    with pytest.raises(UserError, match="paper='nobody' is not a key"):
        registry.register("cup", lambda context: None, paper="nobody")


def test_unknown_facts_are_refused():
    with pytest.raises(UserError, match="no fact 'wait'. Did you mean 'weight'"):
        make().register("cup", lambda context: None, wait=3)


def test_tables():
    registry = make()
    registry.register("cup", lambda context, *, full=False: None)
    assert registry.table().splitlines()[2:] == [
        "| ball | a round thing | radius=1.0, colour=(required) | 2 kg |"
        " [Adaptive Federated Optimization](https://arxiv.org/abs/2003.00295) |",
        "| cup |  | full=false | ? kg | - |",
    ]
    assert registry.table("plain").splitlines() == [
        "name  weight  what it is",
        "ball  2 kg    a round thing",
        "    radius=1.0                 how far it reaches, in metres.",
        "    colour=(required)          what it looks like.",
        "    Adaptive Federated Optimization https://arxiv.org/abs/2003.00295",
        "cup   ? kg",
        "    full=false",
    ]
