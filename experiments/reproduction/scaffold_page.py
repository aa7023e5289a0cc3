"""The page on SCAFFOLD with one class per client: hypotheses, verdicts and numbers of survey/table5."""

import pathlib

from ..papers.survey.scaffold import HYPOTHESES, TABLE5
from ..tables.formats import markdown_table
from .store import ResultStore
from .values import Value
from .verdicts import verdict
from .write import paired_blocks

NAME = "scaffold.md"

QUESTION = """# SCAFFOLD with one class per client

The heavy-ball and WIMA papers print 74.8 % (LeNet-5) and 81.5 % (ResNet-20) for SCAFFOLD on CIFAR-10 with one class per
client, above FedAvg. On the stand-in of `survey/table3` it stays behind FedAvg at the best rate of a search. This page
varies one part of the rule, or of the setting, at a time. The hypotheses and what has to be seen if one is true were
written down before any of the runs; the [rule of verdicts](../RESULTS.md) is that of all results."""


def page(store: ResultStore, numbers: list[Value], picture: pathlib.Path) -> str:
    """Returns the page in Markdown.

    Args:
      store: where records are read.
      numbers: of survey/table5.
      picture: of the table, relative to the page.
    """
    trained = [number for number in numbers if number.by_seed]
    rows = [(each.text, each.test, str(verdict(each.claim, numbers))) for each in HYPOTHESES]
    return "\n\n".join(
        [
            QUESTION,
            f"## Setting\n\n{TABLE5.standin}",
            "## Hypotheses",
            markdown_table(("if the reason is that ...", "then", "verdict"), rows),
            f"![{TABLE5.title}]({picture})",
            FINDINGS,
            "## Numbers",
            *paired_blocks(store, TABLE5, trained),
            "Every number with its seeds, run, fingerprint and the command that trains it: "
            "`tables/trend/survey_table5.csv`. All of it again: `fedwin reproduce survey/table5 --data_dir=DIR`.",
        ]
    )


FINDINGS = """## What it came to

TODO"""
