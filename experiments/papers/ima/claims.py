"""Statements of the IMA paper about its tables and figures, as claims that can be tested; from its text."""

from ..items import AT_LEAST, Claim, claim


def _gain(text: str, better: str, worse: str, section: str, by: float = 0.0) -> Claim:
    """Returns the claim that IMA gains more in one column than in another."""
    return claim(text, column=(better, worse), variant="ima", by=by, section=section, over=(("variant", "base"),))


# Table I
_OTHERS = ("fedavg", "fedprox", "fedasam", "fednova", "fedadam", "fedyogi", "fedgma")
TABLE1 = (
    *(
        claim(
            f"On Fashion-MNIST's shards FedFA with IMA is the most accurate, above {name} with IMA.",
            row=("fedfa", name),
            column="fmnist_shards",
            variant="ima",
            section="Section 7.2.1",
        )
        for name in _OTHERS
    ),
    _gain(
        "IMA gains more on CIFAR-10 with Dirichlet shares than on the milder CIFAR-100 with Pachinko allocation.",
        "cifar10_resnet_dirichlet",
        "cifar100_resnet",
        "Section 7.2.1",
    ),
    _gain(
        "IMA gains more on PACS than on Digit Five, with Dirichlet shares.",
        "pacs_dirichlet",
        "digit5_dirichlet",
        "Section 7.2.2",
    ),
)

# Table II
_STARTS = (150, 200, 250, 300)
_HALF = 45.0  # percent of the rounds: "saves communication by nearly half"
TABLE2 = (
    *(
        claim(
            f"Averaging from round {early} on reaches the target sooner than from round {late} on.",
            variant=(f"start{early}_rounds", f"start{late}_rounds"),
            section="Sections 7.2.3 and 7.3.1",
        )
        for early, late in zip(_STARTS, _STARTS[1:], strict=False)
    ),
    *(
        claim(
            f"Averaging from round 150 on saves nearly half of the rounds of {title}.",
            row=row,
            variant=("start150_rounds", "base_rounds"),
            by=_HALF,
            section="Section 7.2.3",
        )
        for row, title in (("fedadam", "FedAdam"), ("fedprox", "FedProx"))
    ),
)

# Figures 6 and 7
FIGURE6A = (
    claim(
        "With the smallest alpha IMA gains more than 5 points.",
        column="alpha0.05",
        variant=("ima", "base"),
        by=5.0,
        section="Section 7.2.2",
    ),
    _gain("IMA gains more with alpha = 0.05 than with 1.", "alpha0.05", "alpha1", "Section 7.2.2"),
    _gain("IMA gains more with alpha = 0.1 than with 0.5.", "alpha0.1", "alpha0.5", "Section 7.2.2"),
)
FIGURE6B = (
    _gain("IMA gains more with 10 % of the clients per round than with 50 %.", "share10", "share50", "Section 7.2.4"),
    _gain("IMA gains more with 20 % of the clients per round than with 40 %.", "share20", "share40", "Section 7.2.4"),
)
FIGURE6C = (
    _gain(
        "IMA's gain is as large with 17 local epochs as with 3, within half a point.",
        "epochs17",
        "epochs3",
        "Section 7.2.5",
        by=AT_LEAST,
    ),
)
FIGURE7A = tuple(
    claim(
        f"Averaging from round 300 of 400 on ends more accurate than from round {start} on.",
        column=("start300", f"start{start}"),
        section="Section 7.3.1",
    )
    for start in _STARTS[:-1]
)


# Figures of trained models: of two readings the first is lower.
def mean_of_models(models: str, section: str) -> tuple[Claim, ...]:
    """Returns the claims about the plane through three models.

    Args:
      models: the three, in words.
      section: where the paper says so.
    """
    return _both(f"The mean of {models} has a lower test {{}} than each of them.", ("mean", "corner"), section)


def _both(text: str, reading: tuple[str, str], section: str) -> tuple[Claim, ...]:
    """Returns a claim about the loss and one about the error, which stand for the braces of a text."""
    return tuple(
        claim(text.format(metric), reading=reading, metric=metric, section=section) for metric in ("loss", "error")
    )


_DECAY, _NONE = "decay 0.01", "without decay"
FIGURE2 = (
    claim(
        "Without decay, the bias on a client's own data is smaller than that on others' data.",
        reading=_NONE,
        metric=("train_bias", "heter_bias"),
        section="Section 5.3.1",
    ),
    claim(
        "The bias on others' data is smaller with decay.",
        reading=(_DECAY, _NONE),
        metric="heter_bias",
        section="Section 5.3.1",
    ),
)
FIGURE3 = tuple(
    claim(text, reading=(_DECAY, _NONE), metric=metric, section="Section 5.3.2")
    for text, metric in (
        ("Clients' models stay closer to the global one with decay.", "locality"),
        ("The test error is lower with decay.", "test_error"),
    )
)
FIGURE4 = (
    claim(
        "Clients' models are less alike without decay.", reading=(_NONE, _DECAY), metric="cka", section="Section 5.3.4"
    ),
)
FIGURE5B = _both("Between the global models of two rounds the test {} is lower.", ("between", "end"), "Section 6.1")
FIGURE7C = _both("The test {} is lower with IMA.", ("second", "first"), "Section 7.3.3")
