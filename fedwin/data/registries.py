"""The registries that loaders and partitioners enter themselves in."""

from fedwin.registry import Registry

# builder(data_dir, *, option=...) -> Dataset
DATASETS = Registry("dataset")

# builder(dataset, num_clients, seed, *, option=...) -> Partition
PARTITIONS = Registry("partition")
