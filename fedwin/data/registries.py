"""The registries that loaders and partitioners enter themselves in."""

from fedwin.registry import Registry

# builder(data_dir, *, option=...) -> Dataset. What a loader states about its data set, all of it optional:
#   title, flag: what the README calls it, and how it is chosen if not by its name alone; without a title it has no row.
#   how: how its files can be had; sizes: clients / training examples / test examples.
#   prepared, cache: seconds to prepare it and size of its cache, as measured.
#   downloads: addresses of its files; variants: parameters -> addresses, where a choice reads other files.
#   by_hand: what no program can fetch, and where a person can.
#   checksums: file -> (kind, checksum). A name with a compression suffix is that of the file as it is distributed, one
#     without it is that of the decoded content, however it is stored.
DATASETS = Registry(
    "dataset",
    title="",
    flag="",
    how="your own files",
    sizes="your own",
    prepared="",
    cache="",
    downloads=(),
    variants=(),
    by_hand="",
    checksums=(),
)

# builder(dataset, num_clients, seed, *, option=...) -> Partition
PARTITIONS = Registry("partition")
