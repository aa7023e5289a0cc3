"""Loads trained models by their address, such as `runs/fedavg@300:wima50`."""

import os
import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from fedwin.core import Variables
from fedwin.data import Dataset
from fedwin.errors import UserError
from fedwin.runs.checkpoint import seed_checkpoints
from fedwin.runs.load import TrainedModel, load

from ..records import config_of

# DIR[@ROUND][:READOUT]; the name of a directory may contain '@' and ':', too.
_ADDRESS = re.compile(r"(?P<directory>.+?)(?:@(?P<round>\d+))?(?::(?P<readout>[^/:@]+))?")


class Address(NamedTuple):
    """Address of a trained model: of the newest checkpoint (`round` None) or another, the model or a read-out of it."""

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
    """Reads `DIR`, `DIR@ROUND`, `DIR:READOUT` or `DIR@ROUND:READOUT`; raises UserError if there is no such folder."""
    if os.path.isdir(text):
        return Address(text)
    match = _ADDRESS.fullmatch(text)
    if not match or not os.path.isdir(match["directory"]):
        raise UserError(f"{text}: there is no such run; write DIR, DIR@ROUND or DIR@ROUND:READOUT.")
    return Address(match["directory"], int(match["round"]) if match["round"] else None, match["readout"] or "model")


def rounds_of(directory: str | pathlib.Path, seed: int = 0) -> list[int]:
    """Returns the rounds of a run's checkpoints; raises UserError if it has none."""
    config_of(directory)
    rounds = seed_checkpoints(directory, seed).rounds()
    if not rounds:
        raise UserError(f"{directory} has no checkpoint of seed {seed}; stored curves contain no models.")
    return rounds


def loaded(addresses: Sequence[Address], seed: int = 0, data_dir: str | None = None) -> list[TrainedModel]:
    """Returns trained models; a data set that several share is read once; raises UserError if one is missing."""
    models: list[TrainedModel] = []
    datasets: dict[tuple[str, str], Dataset] = {}
    for directory, round, readout in addresses:
        config = config_of(directory)
        key = config["dataset"], data_dir or config["data_dir"]
        models.append(load(directory, seed, round, readout, data_dir=data_dir, dataset=datasets.get(key)))
        datasets[key] = models[-1].prepared.dataset
    return models


def named(
    texts: Sequence[str], seed: int = 0, data_dir: str | None = None, labels: Sequence[str] = ()
) -> tuple[TrainedModel, dict[str, Variables]]:
    """Returns the first model, and label -> parameters and statistics of all.

    Args:
      labels: one per model; empty: labels contain what distinguishes the models.

    Raises:
      UserError: as for `address` and `loaded`; two models are the same, or labels are equal, too few or too many.
    """
    addresses = [address(text) for text in texts]
    models = loaded(addresses, seed, data_dir)
    pairs = list(zip(addresses, models, strict=True))
    if len(addresses) > 1 and len({each.directory for each in addresses}) == 1:
        # Models of one run differ in round and read-out.
        names = [f"round {m.round}" + ("" if a.readout == "model" else f": {a.readout}") for a, m in pairs]
    else:
        names = [each.label for each in addresses]
        if len(set(names)) < len(names):
            names = [f"{a.directory}@{m.round}:{a.readout}" for a, m in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"'{twice[0]}' is given twice; give different models.")
    if labels and not len(set(labels)) == len(labels) == len(texts):
        raise UserError(f"{len(set(labels))} different label(s) for {len(texts)} model(s); give one each.")
    return models[0], {name: model.variables for name, model in zip(labels or names, models)}
