"""How training examples are dealt to clients; importing this package fills the registry."""

from fedwin.data.partitions import (  # noqa: F401
    dirichlet,
    domain,
    ghb_code,
    iid,
    natural,
    pachinko,
    published,
    quantity,
    shards,
    yurochkin,
)
