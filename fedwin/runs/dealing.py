"""The data set of a run, dealt to clients for every seed."""

from fedwin import data
from fedwin.data.federation import Federation, federate
from fedwin.engine import validation
from fedwin.errors import UserError
from fedwin.registry.choices import Choice
from fedwin.runs.config import Config


def federations_of(config: Config, partition: Choice | None, dataset: data.Dataset) -> dict[int, Federation]:
    """Returns seed -> the data set as it is dealt for that seed.

    Args:
      config: seeds, clients and what they hold out.
      partition: who holds what; None for the data set's own.
      dataset: what is dealt.

    Raises:
      UserError: seeds differ in the number of clients: they share one compiled program.
    """
    federations = {seed: _federation(config, partition, dataset, seed) for seed in config.seeds}
    numbers = {seed: federation.num_clients for seed, federation in federations.items()}
    if len(set(numbers.values())) > 1:
        told = ", ".join(f"{count} with seed {seed}" for seed, count in numbers.items())
        raise UserError(
            f"the partition makes different numbers of clients ({told}); set --partition_seed, or run the seeds "
            f"one by one."
        )
    return federations


def _federation(config: Config, partition: Choice | None, dataset: data.Dataset, seed: int) -> Federation:
    """Deals the data set for one seed."""
    partition_seed = seed if config.partition_seed < 0 else config.partition_seed
    dealt = data.deal(dataset, str(partition) if partition else None, config.num_clients or None, partition_seed)
    held = None
    if config.val_fraction:
        dealt, held = data.split_validation(dealt, config.val_fraction, partition_seed)
    federation = federate(dataset, dealt, held)
    if config.eval_val:
        validation.check(federation, seed)
    return federation
