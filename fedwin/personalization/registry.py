"""Registry of personalizers, and `build_all`, which builds those of a run."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from fedwin.core import Setting
from fedwin.errors import UserError
from fedwin.local import Solver
from fedwin.registry import Choice, Registry

# Prefixes of metrics that are not personalizers: the model as it is, unseen clients, the clients' own models.
RESERVED_NAMES = ("client", "unseen", "personal", "val")


class Personalizer(NamedTuple):
    """A personalizer, as a pure function.

    Attributes:
      name: name in the names of metrics, such as 'finetune' in finetune_accuracy_mean.
      adapt: (the evaluated Variables, core.Client with its training examples) -> the client's Variables.
    """

    name: str
    adapt: Callable


# Builders have the signature builder(setting, solve, *, option=...) -> Personalizer.
PERSONALIZERS = Registry("personalizer", rule="rule", builds=Personalizer)


def build_all(choices: Iterable[str | Choice], setting: Setting, solve: Solver) -> tuple[Personalizer, ...]:
    """Builds a run's personalizers.

    Args:
      choices: such as 'finetune:epochs=1'.
      solve: the run's local solver.

    Raises:
      UserError: when a choice is invalid, or two have the same name.
    """
    built: dict[str, Personalizer] = {}
    for choice in choices:
        made = PERSONALIZERS.build(choice, setting, solve)
        if made.name in built:
            raise UserError(f"personalize={choice}: '{made.name}' is given twice; keep one.")
        if made.name in RESERVED_NAMES or not made.name.isidentifier():
            raise UserError(
                f"personalize={choice}: '{made.name}' can't be its name; use letters, digits and _, and none of "
                f"{', '.join(RESERVED_NAMES)}."
            )
        built[made.name] = made
    return tuple(built.values())
