"""Data sets from FedJAX, https://github.com/google/fedjax: any FederatedData (`from_fedjax`), and its SQLite files."""

import numpy as np

from fedwin.data.checks import as_labels, check, check_task, count_classes
from fedwin.data.dataset import DATASETS, Dataset, Examples, Partition, Task
from fedwin.data.formats import clients, files, sqlite, values
from fedwin.errors import UserError
from fedwin.registry.ranges import PositiveInt, check_values


def from_fedjax(
    train, test, *, name: str = "fedjax", num_classes: int | None = None, task: Task | None = None, mean=None, std=None
) -> Dataset:
    """Converts two `fedjax.FederatedData`, after their preprocessors, to a data set with its own clients.

    Args:
      train: federated data whose examples have 'x' and 'y'; 'domain_id' becomes 'domain'.
      test: the test data, likewise; its clients may differ from those of train.
      num_classes: number of classes; the largest training label + 1 by default.
      task: 'classification', 'sequence' or 'regression', by default as in `from_arrays`.
      mean: per-channel mean of x, after division by 255 if x is uint8.
      std: per-channel standard deviation of x, likewise.

    Raises:
      UserError: no 'x' or 'y', no client or an empty one, labels out of range, inputs without features, NaN or infinite
        values.

    Example:
      >>> import fedjax
      >>> ann = {"x": np.zeros([3, 2]), "y": np.array([0, 1, 1])}
      >>> bob = {"x": np.ones([1, 2]), "y": np.array([0])}
      >>> federated = fedjax.InMemoryFederatedData({"ann": ann, "bob": bob})
      >>> from_fedjax(federated, federated).natural.sizes.tolist()
      [3, 1]
    """
    check_values(name, PositiveInt | None, num_classes=num_classes)
    sides = []
    for split, source in (("train", train), ("test", test)):
        if not hasattr(source, "clients"):
            raise UserError(f"{name}, {split}: a {type(source).__name__} is not a fedjax.FederatedData.")
        stream = ((client, dict(dataset.all_examples())) for client, dataset in source.clients())
        sides.append(clean(*clients.flatten(stream, f"{name}, {split}"), f"{name}, {split}", task))
    return check(build(name, sides, num_classes, task=task, mean=mean, std=std))


def build(name: str, sides, num_classes: int | None, *, task: str | None = None, **fields) -> Dataset:
    """Builds the data set from (examples, clients) for training and test, and further fields of the Dataset."""
    labels = sides[0][0]["y"]
    classes = count_classes(labels, num_classes, task)
    task = check_task(labels, task, f"data set '{name}', train")
    return Dataset.of_clients(name, sides, classes, task=task, **fields)


def clean(examples: Examples, natural: Partition, where: str, task: str | None = None) -> tuple[Examples, Partition]:
    """Casts labels, renames 'domain_id', and sets the domain of clients that each have one domain.

    Raises:
      UserError: no 'x' or 'y', or labels that are not whole numbers; `where` is the data set.
    """
    if not {"x", "y"} <= examples.keys():
        raise UserError(
            f"{where}: features are {', '.join(sorted(examples))}; preprocess the clients so that x and y are."
        )
    if "domain_id" in examples:
        with files.reading(where):
            domain = values.within(examples.pop("domain_id"), 0, (1 << 31) - 1, "domain_id")
        examples["domain"] = domain.astype(np.int32)
        first = examples["domain"][natural.offset[:-1]]
        if (examples["domain"] == np.repeat(first, natural.sizes)).all():
            natural = natural._replace(domain=first)
    examples["y"] = as_labels(examples["y"], where, task)
    return examples, natural


@DATASETS.register("fedjax", how="your own")
def fedjax_files(
    data_dir, *, train: str, test: str, num_classes: PositiveInt | None = None, task: Task | None = None
) -> Dataset:
    """Loads a pair of FedJAX SQLite files whose examples have 'x' and 'y'.

    Args:
      data_dir: folder of the files.
      train: name of the training file in data_dir.
      test: name of the test file in data_dir.

    Raises:
      UserError: missing or damaged files, or as for `from_fedjax`.
    """
    root = files.folders(data_dir)[0]
    sides = [clean(*clients.flatten(sqlite.read(path), path), str(path), task) for path in (root / train, root / test)]
    return build("fedjax", sides, num_classes, task=task, verified=False)
