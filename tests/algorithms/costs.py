"""Reads the communication columns of a registry entry."""

import math
import re

_COST = re.compile(r"^(\d+)(?: \+ (.+) numbers?)?(?: \((\d+) with .+\))?$")


def amounts(cost: str, model: int, **sizes: int) -> set[int]:
    """Returns the numbers that a cost stands for: '1', '2 (3 with momentum)', '1 + C d numbers'.

    Args:
      cost: transmitted models, additional single numbers, models under an option.
      model: parameters of the model; sizes: what the letters of a product stand for.

    Raises ValueError for any other text.
    """
    match = _COST.match(cost)
    if not match:
        raise ValueError(f"'{cost}' is not a cost such as '1', '2 (3 with momentum)' or '1 + C d numbers'")
    always, product, switched = match.groups()
    beside = math.prod(sizes[f] if f in sizes else int(f) for f in product.split()) if product else 0
    return {int(models) * model + beside for models in (always, switched) if models}
