"""Whether what `fedwin.run` is handed from Python is what it takes."""

from typing import Any

from fedwin.data import Dataset
from fedwin.errors import UserError
from fedwin.models import Model
from fedwin.runs.config import Config

# First part of the module that an object's class comes from -> what makes a Model of it.
_ADAPTERS = {"haiku": "models.from_haiku(transform, sample_batch)", "fedjax": "models.from_fedjax(model, sample_batch)"}


def check_objects(config: Any, dataset: Any, model: Any) -> None:
    """Checks the types of a run's arguments, and of all fields of its Config.

    Args:
      config: should be a Config.
      dataset: should be a Dataset or None.
      model: should be a Model or None.

    Raises:
      UserError: names the one that is something else, and what makes the right thing of it.
    """
    if not isinstance(config, Config):
        raise UserError(f"config is a {_kind(config)}; give fedwin.Config(algorithm=..., dataset=..., ...).")
    if dataset is not None and not isinstance(dataset, Dataset):
        maker = (
            "data.from_fedjax(train, test)" if hasattr(dataset, "clients") else "data.from_arrays(x, y, test_x, test_y)"
        )
        raise UserError(
            f"dataset is a {_kind(dataset)}, not a fedwin.data.Dataset; make one with fedwin.{maker}, or name a data "
            f"set in Config(dataset=...)."
        )
    if model is not None and not isinstance(model, Model):
        origin = type(model).__module__.partition(".")[0]
        maker = _ADAPTERS.get(origin, "models.from_flax(module, input_shape)")
        raise UserError(
            f"model is a {_kind(model)}, not a fedwin.models.Model; make one with fedwin.{maker}, or name a network in "
            f"Config(model=...)."
        )
    config.check()


def _kind(value: Any) -> str:
    return f"class {value.__name__}" if isinstance(value, type) else type(value).__name__
