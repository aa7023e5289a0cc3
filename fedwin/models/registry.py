"""The networks by name."""

from fedwin.registry import Registry

# usual: (shape of one example, classes) that a network is known for; parameters: how many it has for these.
MODELS = Registry(
    "model",
    columns={"parameters": "{parameters}", "for": "{usual[0]} to {usual[1]}"},
    common={
        "dtype": "what is computed in: float32, bfloat16 or float64",
        "groups": "of GroupNorm",
        "predict": "the token after every position ('all') or after the last one ('last')",
    },
    parameters="?",
    usual=("?", "?"),
)
