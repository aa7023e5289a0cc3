"""The page on SCAFFOLD with one class per client: hypotheses, verdicts and numbers of survey/table5."""

import pathlib

from ..papers.survey.scaffold import HYPOTHESES, TABLE5, Hypothesis
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
    rows = [(each.text, each.test, _verdict(each, numbers), each.earlier) for each in HYPOTHESES]
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


def _verdict(hypothesis: Hypothesis, numbers: list[Value]) -> str:
    """Returns the verdict on a hypothesis; of two rows of which one diverged, that."""
    rows = {number.cell.row.name: number for number in numbers}
    diverged = [rows[name].cell.row.title for name in (hypothesis.better, hypothesis.worse) if rows[name].diverged]
    if diverged:
        return f"not comparable: {diverged[0]} diverged"
    return str(verdict(hypothesis.claim, numbers))


FINDINGS = """## What it came to

- **It is neither participation nor age.** With all 100 clients in every round no control is empty and all are one round
  old. At a rate at which FedAvg trains quickly (0.1), SCAFFOLD diverges within 13 rounds, with both seeds.
- **It is the local steps.** With one step of all its images at a rate of 0.1 SCAFFOLD trains, with 10 of 100 clients
  in each round: 39.0 % after 250 rounds, against FedAvg's 31.7 with one step (five seeds). With five steps at a fifth
  of that rate, so that a client moves as far, it has 18.5 against FedAvg's 22.2 (five seeds).
- **It takes no short last batch and no unequal shares.** Here all batches are full and all clients have 100 images, and
  SCAFFOLD is behind FedAvg at one and the same rate, by an interval that excludes 0.
- **What fits all of it**: the correction c - c_i is constant during the local steps, and the gradient that it corrects
  is not. A client with one class fits it within a few steps, its gradient vanishes, and the remaining steps follow the
  correction alone. The controls of the next round are measured there. So the product of rate and number of local steps
  decides: small rates train, larger ones diverge, with few clients and with all, and a part of the correction (earlier
  runs) does no harm. The [analysis of SCAFFOLD](https://arxiv.org/abs/1910.06378) asks for a local rate that falls with
  the number of local steps, too. FedAvg, whose clients' fits of their own classes cancel in the mean, has its best rate
  at 0.1, twenty times that of SCAFFOLD. This is a reading of these runs, not a proof.
- **The printed numbers** come from eight local steps (500 images in batches of 64) and 10,000 rounds, forty times as
  many as here. Whether the rule as stated gets there was not trained; a sum in place of the mean, as in the released
  code, stays at chance over 400 rounds (earlier runs).

Left open: the rows that the table marks as not tested or with too few seeds, a ResNet-20 with GroupNorm, and the
10,000 rounds of the paper at a rate as small as the number of local steps asks for."""
