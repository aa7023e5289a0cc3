"""Loads trained models by their address, such as `runs/fedavg@300:wima50`."""

import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedwin.errors import UserError
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.load import TrainedModel, load

from .sources import config_of

# DIR[@ROUND][:READOUT]; the name of a directory may contain '@' and ':', too.
_ADDRESS = re.compile(r"(?P<directory>.+?)(?:@(?P<round>\d+))?(?::(?P<readout>[^/:@]+))?")


class Address(NamedTuple):
    """Address of a trained model.

    Attributes:
      directory: of the run.
      round: of the checkpoint; None: the newest.
      readout: 'model', or the name of a read-out.
    """

    directory: str
    round: int | None = None
    readout: str = "model"

    @property
    def label(self) -> str:
        """Label of the model in a figure."""
        name = pathlib.Path(self.directory).resolve().name
        name = name if self.readout == "model" else f"{name}: {self.readout}"
        return name if self.round is None else f"{name}, round {self.round}"


def address(text: str) -> Address:
    """Reads `DIR`, `DIR@ROUND`, `DIR:READOUT` or `DIR@ROUND:READOUT`.

    Raises:
      UserError: there is no such directory.
    """
    if os.path.isdir(text):
        return Address(text)
    match = _ADDRESS.fullmatch(text)
    if not match or not os.path.isdir(match["directory"]):
        raise UserError(f"{text}: there is no such run; write DIR, DIR@ROUND or DIR@ROUND:READOUT.")
    return Address(match["directory"], int(match["round"]) if match["round"] else None, match["readout"] or "model")


def rounds_of(directory: str | pathlib.Path, seed: int = 0) -> list[int]:
    """Returns the rounds of a run's checkpoints.

    Args:
      directory: of the run.
      seed: of the run.

    Raises:
      UserError: it has none.
    """
    config_of(directory)
    rounds = Checkpoints(pathlib.Path(directory) / "checkpoints" / f"seed_{seed}").rounds()
    if not rounds:
        raise UserError(f"{directory} has no checkpoint of seed {seed}; stored curves contain no models.")
    return rounds


def loaded(addresses: Sequence[Address], seed: int = 0, data_dir: str | None = None) -> list[TrainedModel]:
    """Returns trained models; a data set that several runs share is read once.

    Args:
      addresses: of the models.
      seed: of the runs.
      data_dir: folder of the data set's files; None: as in the run's configuration.

    Raises:
      UserError: a missing run, checkpoint or read-out, or models of different networks.
    """
    models: list[TrainedModel] = []
    datasets: dict[Any, Any] = {}
    for address in addresses:
        config = config_of(address.directory)
        key = config["dataset"], data_dir or config["data_dir"]
        model = load(
            address.directory, seed, address.round, address.readout, data_dir=data_dir, dataset=datasets.get(key)
        )
        datasets[key] = model.prepared.dataset
        models.append(model)
    return models


def labelled(addresses: Sequence[Address], models: Sequence[TrainedModel]) -> dict[str, TrainedModel]:
    """Returns label -> model; labels contain what distinguishes the models.

    Args:
      addresses: of the models.
      models: in the same order.

    Raises:
      UserError: two models are the same.
    """
    if len(addresses) > 1 and len({address.directory for address in addresses}) == 1:
        # Models of one run differ in round and read-out.
        names = [
            f"round {model.round}" + ("" if address.readout == "model" else f": {address.readout}")
            for address, model in zip(addresses, models)
        ]
    else:
        names = [address.label for address in addresses]
        if len(set(names)) < len(names):
            names = [
                f"{address.directory}@{model.round}:{address.readout}" for address, model in zip(addresses, models)
            ]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"'{name}' is given twice; give different models.")
    return dict(zip(names, models))


def variables(models: Mapping[str, TrainedModel]) -> dict[str, Any]:
    """Returns label -> parameters and statistics."""
    return {label: model.variables for label, model in models.items()}
