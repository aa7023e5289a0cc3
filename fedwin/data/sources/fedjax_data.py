"""FedJAX federated data, https://github.com/google/fedjax: any FederatedData, and its SQLite files.

A SQLite file has one row per client in `federated_data(client_id, data, num_examples)`; `data` is zlib over msgpack.
"""

import numpy as np

from fedwin.data.checks import as_labels, check
from fedwin.data.dataset import DATASETS, Dataset, Examples, Partition
from fedwin.data.formats import clients, files, values
from fedwin.data.formats.fedjax_sqlite import read_sqlite
from fedwin.errors import UserError
from fedwin.registry import checks


def from_fedjax(
    train, test, *, name: str = "fedjax", num_classes: int | None = None, task: str | None = None, mean=None, std=None
) -> Dataset:
    """Packs two `fedjax.FederatedData`, after their preprocessors, into a data set with its own clients.

    Args:
      train: federated data whose examples have 'x' and 'y'; 'domain_id' becomes 'domain'.
      test: as train; its clients need not be those of train.
      name: what the data set is called.
      num_classes: the largest training label + 1 by default.
      task: 'sequence' where y has a position axis, else 'classification', by default.
      mean: per-channel mean of x.
      std: per-channel standard deviation of x.

    Returns:
      The data set.

    Raises:
      UserError: no 'x' or 'y', no client or an empty one, labels out of range, inputs without features, NaN or infinite
        values.
    """
    checks.integer(name, num_classes=num_classes)
    for split, source in (("train", train), ("test", test)):
        if not hasattr(source, "clients"):
            raise UserError(f"{name}, {split}: a {type(source).__name__} is no fedjax.FederatedData; give one.")
    sides = []
    for split, source in (("train", train), ("test", test)):
        stream = ((client, dict(dataset.all_examples())) for client, dataset in source.clients())
        sides.append(clean(*clients.flatten(stream, f"{name}, {split}", num_classes), f"{name}, {split}"))
    (train_examples, natural), (test_examples, test_natural) = sides
    labels = train_examples["y"]
    return check(
        Dataset(
            name,
            train_examples,
            test_examples,
            num_classes=int(labels.max()) + 1 if num_classes is None else num_classes,
            task=task or ("sequence" if labels.ndim > 1 else "classification"),
            mean=mean,
            std=std,
            natural=natural,
            test_natural=test_natural,
        )
    )


def clean(examples: Examples, natural: Partition, where: str) -> tuple[Examples, Partition]:
    """Casts labels to int32, renames 'domain_id' and gives clients of one domain that domain."""
    if not {"x", "y"} <= examples.keys():
        raise UserError(
            f"{where}: features are {', '.join(sorted(examples))}; preprocess the clients so that x and y are."
        )
    if "domain_id" in examples:
        with values.naming(where):
            domain = values.within(examples.pop("domain_id"), 0, (1 << 31) - 1, "domain_id")
        examples["domain"] = domain.astype(np.int32)
        first = examples["domain"][natural.offset[:-1]]
        if (examples["domain"] == np.repeat(first, natural.sizes)).all():
            natural = natural._replace(domain=first)
    examples["y"] = as_labels(examples["y"], where)
    return examples, natural


@DATASETS.register(
    "fedjax",
    title="any `fedjax.FederatedData`",
    flag="`fedwin.data.from_fedjax`, `fedjax:train=FILE,test=FILE`",
    how="your own",
)
def fedjax_files(data_dir, *, train: str, test: str, num_classes: int | None = None) -> Dataset:
    """Any pair of FedJAX SQLite files whose examples have 'x' and 'y'.

    Args:
      train: name of the training file in data_dir.
      test: name of the test file in data_dir.
      num_classes: the largest training label + 1 by default.
    """
    root = files.folders(data_dir)[0]
    sides = [
        clean(*clients.flatten(read_sqlite(path), path, num_classes), str(path)) for path in (root / train, root / test)
    ]
    (examples, natural), (test_examples, test_natural) = sides
    classes = int(examples["y"].max()) + 1 if num_classes is None else num_classes
    task = "sequence" if examples["y"].ndim > 1 else "classification"
    return Dataset(
        "fedjax",
        examples,
        test_examples,
        classes,
        task=task,
        natural=natural,
        test_natural=test_natural,
        verified=False,
    )
