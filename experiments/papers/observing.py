"""The names that read-outs have in metrics.jsonl."""

from fedwin.observers import OBSERVERS

# The trained model itself.
MODEL = "model"


def name_of(read: str) -> str:
    """Returns the name of a read-out.

    >>> name_of("wima:window=100,part=classifier")
    'wima100_classifier'

    Args:
      read: an observer's text, as in --observe; empty for the trained model.
    """
    if not read:
        return MODEL
    choice = OBSERVERS.check(read)
    if choice.name != "wima":
        return choice.name
    part = choice.params.get("part", "all")
    return f"wima{choice.params['window']}" + ("" if part == "all" else f"_{part}")
