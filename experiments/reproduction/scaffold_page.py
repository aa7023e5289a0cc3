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

The heavy-ball paper prints 74.8 % (LeNet-5) and 81.5 % (ResNet-20) for SCAFFOLD on CIFAR-10 with one class per client,
above FedAvg. On the stand-in of `survey/table3` (1,000 rounds, rates of a search) it stays behind FedAvg. This page
varies one part of the rule, or of the setting, at a time. The hypotheses, and what has to be seen if one is true, were
written down before the runs of the table; the [rule of verdicts](../RESULTS.md) is that of all results. *Earlier runs*
are those of the same task over 400 rounds, three seeds where nothing else is said: mean +- standard deviation of the
accuracy (%) over the last five evaluations; their curves are not stored, and they decide nothing."""

ELSEWHERE = """## Elsewhere

That SCAFFOLD collapses where clients have few classes is not new. [A benchmark of nine
methods](https://nechbamohammed.github.io/FLBenchmarkUI/) prints 10.99 +- 0.5 % for it on MNIST with one class per
party, where FedAvg has 40.34 +- 26.51. Users of [PFLlib](https://github.com/TsingZ0/PFLlib/issues/152) and
[FL-bench](https://github.com/KarhouTam/FL-bench/issues/3) report losses that become NaN and accuracies that collapse;
the authors of both point to local epochs over all data, where SCAFFOLD's own experiments take few steps."""


def page(store: ResultStore, numbers: list[Value], picture: pathlib.Path) -> str:
    """Returns the page in Markdown.

    Args:
      store: where records are read.
      numbers: of survey/table5.
      picture: of the table, relative to the page.
    """
    trained = [number for number in numbers if number.by_seed]
    rows = [(each.text, each.test, str(verdict(each.claim, numbers)), each.earlier) for each in HYPOTHESES]
    return "\n\n".join(
        [
            QUESTION,
            f"Setting: {TABLE5.standin}",
            "## Hypotheses",
            markdown_table(("reason", "then", "verdict", "earlier runs"), rows),
            f"![{TABLE5.title}]({picture})",
            FINDINGS,
            ELSEWHERE,
            "## Numbers",
            *paired_blocks(store, TABLE5, trained),
            "Every number with its seeds, run, fingerprint and the command that trains it: "
            "`tables/trend/survey_table5.csv`. All of it, and what is missing: `fedwin reproduce survey/table5 "
            "--data_dir=DIR`.",
        ]
    )


FINDINGS = """## What it came to

TODO"""
