"""natural: the data set's own clients, such as writers, roles or users."""

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.rng import generator
from fedwin.errors import UserError


@PARTITIONS.register("natural")
def natural(dataset: Dataset, num_clients: int | None, seed: int) -> Partition:
    """Returns the data set's own clients, or a random choice of them.

    The choice sorts the client ids, permutes them with the seed and takes the first num_clients; the report then has
    'chosen_from'.

    Args:
      num_clients: number of clients; None stands for all.

    Raises:
      UserError: the data set has no natural clients, or fewer than num_clients.

    Example:
      >>> import numpy as np
      >>> from fedwin import data
      >>> x, y = np.zeros([4, 2]), np.array([0, 1, 1, 0])
      >>> dataset = data.from_arrays(x, y, x, y, clients=["ann", "bob", "ann", "ann"])
      >>> data.make_partition(dataset, "natural", None, seed=0).client(0).tolist()  # Ann's examples
      [0, 2, 3]
    """
    own = dataset.natural
    if own is None:
        raise UserError(f"data set '{dataset.name}' has no natural clients; choose --partition=iid or dirichlet.")
    if num_clients is not None and num_clients > own.num_clients:
        raise UserError(f"'{dataset.name}' has {own.num_clients} natural clients; set --num_clients to at most that.")
    if num_clients is not None and num_clients < own.num_clients:
        by_id = np.arange(own.num_clients) if own.ids is None else np.argsort(own.ids, kind="stable")
        chosen = by_id[generator(seed, "natural").permutation(own.num_clients)[:num_clients]]
        return own.select(chosen)._replace(report={**own.report, "chosen_from": own.num_clients})
    return own
