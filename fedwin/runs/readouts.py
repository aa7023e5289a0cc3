"""The names of what a run reads out."""

import jax

from fedwin import engine
from fedwin.runs.build import prepare
from fedwin.runs.config import Config


def readout_names(config: Config) -> list[str]:
    """Returns the names under which a run's models are evaluated, sorted: 'model', 'wima50' ...; computes nothing.

    Args:
      config: what would be run.

    Raises:
      UserError: anything wrong in it.
    """
    trial = prepare(config)

    def read():
        return engine.read_out(trial.algorithm, trial.observers, trial.start(config.seeds[0], 1))

    return sorted(jax.eval_shape(read))
