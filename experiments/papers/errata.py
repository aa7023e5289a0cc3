"""Errata of the papers and their public code: the arithmetic that shows each, and what fedwin does."""

from typing import NamedTuple


class Erratum(NamedTuple):
    """One misprint or contradiction.

    Attributes:
      where: paper, table or section.
      printed: the misprint.
      shown: why it is wrong.
      here: what fedwin does.
    """

    where: str
    printed: str
    shown: str
    here: str


ERRATA = (
    Erratum(
        "WIMA, Table 2, FedAvg, CIFAR-10 alpha = 0",
        "64.37 -> 69.95, gain 5.3",
        "69.95 - 64.37 = 5.58",
        "the gain is computed; the printed one is stored unchanged",
    ),
    Erratum(
        "WIMA, Table 2, FedProx, CIFAR-10 alpha = 0",
        "gain 6.7 in one copy, 5.7 in the other",
        "69.90 - 64.25 = 5.65",
        "5.7 is stored as the printed gain",
    ),
    Erratum(
        "WIMA, Table 2, FedAvg, FEMNIST", "shown among gains above 1.5", "85.06 - 83.59 = 1.47", "the gain is computed"
    ),
    Erratum("WIMA, Table 2, Pachinko", "FedDyn's 57.42 in bold", "FedACG's 58.88 is larger", "nothing depends on it"),
    Erratum(
        "WIMA, Tables 2 and 4, CIFAR-10 alpha = 0",
        "69.95 and 69.94",
        "the same run",
        "both are stored; one run fills both",
    ),
    Erratum(
        "WIMA, Table 4, CIFAR-100, W = 50",
        "22.75",
        "W = 10 gives 25.70 and W = 100 gives 27.91; 27.75 would fit",
        "22.75 is stored and will not be reproduced",
    ),
    Erratum(
        "WIMA, Table 5, CIFAR-100 alpha = 0, all",
        "27.91 with batches of 20",
        "Table 2 prints 27.91 with batches of 100, and the other columns of both tables differ",
        "both runs are in the catalogue, each with its own batches",
    ),
    Erratum(
        "WIMA, Section 4, Pachinko",
        "server momentum 0.9",
        "FedAvg 47.41 and FedAvgM 55.96 differ in nothing else",
        "FedAvg has none",
    ),
    Erratum("IMA, text", "FedProx 79.7; gain 6.42", "Table I: 79.78; 56.37 - 49.96 = 6.41", "the table counts"),
    Erratum("IMA, text", "3.06 on CIFAR-100 for FedAvg", "40.93 - 37.87 = 3.06 is FedAdam's", "the table counts"),
    Erratum("IMA, Table IV", "last layers FC(512, 10) for PACS", "PACS has 7 classes", "7 outputs"),
    Erratum(
        "IMA, public code, FedGMA",
        "gradient masking",
        "the step that masks is 1e-4 of an update, with the wrong sign: its column equals FedAvg's within 0.1",
        "fedgma:mode=extra_step replays it, mode=soft is the method",
    ),
    Erratum(
        "IMA, public code, FedAdam and FedYogi",
        "moments are set to zero where averaging starts",
        "only local copies are: the next round continues with the old ones",
        "ima:reset=at_start is the intent, one_round_only replays the code",
    ),
    Erratum(
        "GHB, Table 8, StackOverflow",
        "participation 1.5",
        "1,500 rounds x 50 / 40,000 clients = 1.875; 0.12 % is 0.125 %",
        "50 of 40,000 clients",
    ),
    Erratum(
        "GHB, text, CIFAR-100, cross-device, 60 %",
        "1.67x faster than MimeMom",
        "8,540 / 5,090 = 1.68",
        "it is computed",
    ),
    Erratum(
        "GHB, Table 2, MimeMom",
        "3x the communication of FedAvg",
        "3 models down and 2 up are 2.5x; 3x counts x twice, but then MIME would be 2.5x, and 2x is printed",
        "both the printed and the counted factor are in `fedwin list algorithms`",
    ),
    Erratum(
        "GHB, Table 3, AdaBest and FedProx",
        "equal to FedAvg to the last digit",
        "66.12, 83.11, 47.31 in all three rows",
        "stored as printed; with the printed coefficients both degenerate to FedAvg",
    ),
    Erratum("GHB, Figure 7", "numbers under the figure", "the text has none", "rounds to 70 % are computed"),
    Erratum(
        "WSM, Table 3.3, rate 0.3, BatchNorm",
        "FedAvg .828, with WSM .767",
        "WSM gains at every other rate; the two are probably swapped",
        "stored as printed",
    ),
    Erratum(
        "WSM, Table 3.3, rate 0.007, GroupNorm",
        "FedAvg .808, with WSM .853",
        "the only row with GroupNorm where WSM wins; probably swapped",
        "stored as printed",
    ),
    Erratum("WSM, Table 3.2, last row", "FedProx + TCE", "TCE is the older name of WSM", "read as FedProx + WSM"),
    Erratum(
        "WSM, Appendix B", "BatchNorm2d(64) in all stages", "the width must be that of the convolution", "it is, here"
    ),
    Erratum("WSM, Section 1.2.3", "FedProx improves i.i.d. data", "non-i.i.d. is meant", "nothing depends on it"),
)
