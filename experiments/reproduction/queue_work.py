"""Going on with the queue of paper-scale runs."""

import dataclasses
import time

from ..papers.catalogue import item
from ..papers.items import Item
from ..papers.queue import QUEUE
from .orders import Order
from .results_page import progress


def go_on(order: Order) -> None:
    """Works off the queue's steps that are not done, in their order.

    Args:
      order: directories, budget, and whether finished curves are kept.
    """
    deadline = None if order.budget is None else time.monotonic() + order.budget
    for number, place in enumerate(QUEUE):
        done, cells = progress(place)
        one = item(place.item)
        if not isinstance(one, Item) or (cells and done == cells):
            continue
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return
        print(f"step {number + 1} of {len(QUEUE)}: {place.item}, {', '.join(place.rows)} on {', '.join(place.columns)}")
        asked = [c for c in one.cells("paper") if c.row.name in place.rows and c.column.name in place.columns]
        step = dataclasses.replace(order, scale="paper", seeds=place.seeds, budget=left)
        step.carry_out([one], {one.name: asked})
