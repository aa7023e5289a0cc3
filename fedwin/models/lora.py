"""Low-rank adaptation (LoRA): a frozen network whose dense layers get trained corrections of low rank."""

import dataclasses
import zlib
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from fedwin.core import Variables
from fedwin.errors import UserError
from fedwin.models.layers import torch_kernel
from fedwin.models.model import Model, Output
from fedwin.registry import Choice, Registry
from fedwin.registry.ranges import Positive, PositiveInt

# What --lora names: its parameters are those of its one entry, `lora`.
ADAPTATIONS = Registry("adaptation")

# A leaf of the parameters: the keys that lead to it.
Path = tuple[str, ...]


def _path(entries: jax.tree_util.KeyPath) -> Path:
    return tuple(jax.tree_util.keystr((entry,), simple=True) for entry in entries)


def _by_path(params) -> dict[Path, Any]:
    """Returns path -> leaf."""
    return {_path(entries): leaf for entries, leaf in jax.tree_util.tree_leaves_with_path(params)}


def _below(path: Path, classifier: Path) -> bool:
    return bool(classifier) and path[: len(classifier)] == classifier


def _in_part(path: Path, part: str, classifier: Path) -> bool:
    """Whether a part contains the layer of a leaf."""
    if part in ("all", "classifier", "features"):
        return part == "all" or _below(path, classifier) == (part == "classifier")
    return any(part in key.split("/") for key in path)


@dataclasses.dataclass(frozen=True, eq=False)
class LowRank:
    """Model.apply of an adapted network.

    Attributes:
      frozen: path -> matrix or other leaf that is not trained, as arrays of NumPy.
    """

    model: Model
    frozen: dict[Path, np.ndarray]
    scale: float

    def merge(self, params):
        """Returns the parameters of the network: W + (alpha / r) B A in the adapted layers of nested dicts."""

        def leaf(entries, like):
            path, own = _path(entries), params
            for key in path:
                own = own.get(key) if isinstance(own, dict) else None
            if own is None:
                return jnp.asarray(self.frozen[path])
            if not isinstance(own, dict):
                return own
            return jnp.asarray(self.frozen[path]) + self.scale * (own["a"] @ own["b"])

        return jax.tree_util.tree_map_with_path(leaf, jax.eval_shape(self.model.init, jax.random.key(0)).params)

    def __call__(self, variables: Variables, batch, key, train: bool) -> Output:
        return self.model.apply(variables._replace(params=self.merge(variables.params)), batch, key, train)


@ADAPTATIONS.register("lora", paper="hu2022lora")
def lora(
    model: Model,
    base: Variables,
    *,
    rank: PositiveInt = 8,
    alpha: Positive = 8.0,
    part: str = "features",
    full: Literal["none", "classifier"] = "none",
):
    """Low-rank adaptation: dense layers of a frozen network get corrections of rank r; only these are trained.

        W x  ->  W x + (alpha / r) B A x,     A in R^(r x in) ~ U(-1/sqrt(in), 1/sqrt(in)),  B = 0 in R^(out x r)

    so the adapted network starts as the original network. Its parameters are A and B, which algorithms train, clients
    send and observers average. Matrices are stored as `a` [in, r] and `b` [r, out] in place of the kernel [in, out],
    and their product is added to it once per step. Biases, norms, embeddings (but those tied to an adapted classifier),
    convolutions and kernels of three axes (flax's MultiHeadDotProductAttention) are frozen; statistics (BatchNorm)
    follow the training. A mean over clients is that of A and of B, whose product is not the mean of the products.

    Args:
      model: the network.
      base: its pretrained parameters and statistics; leaves without values (jax.ShapeDtypeStruct) are drawn by the
        network's initializer, and have to be trained in full.
      rank: r; parameters per layer are r (in + out) instead of in * out.
      alpha: scale of the corrections.
      part: the adapted layers: 'features' (all dense and recurrent layers but the classifier), 'all', 'classifier', or
        names of layers or of the modules around them, joined by '-', such as query-value or block1.
      full: 'classifier' trains the classifier itself, with its bias; or 'none'.

    Raises:
      UserError: when a name in `part` has no dense layers, the network no classifier, or a frozen leaf no values.

    Source: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, 2021, https://arxiv.org/abs/2106.09685;
    A's initialization is that of the released code.

    Example:
      >>> import jax
      >>> from fedwin import models
      >>> network = models.build("digits_mlp", (8, 8, 1), 10)
      >>> adapted = models.lora(network, network.init(jax.random.key(0)), rank=4)
      >>> jax.tree.map(jax.numpy.shape, adapted.init(jax.random.key(1)).params)
      {'dense1': {'kernel': {'a': (64, 4), 'b': (4, 64)}}}
    """
    # Also when it is called without the registry.
    ADAPTATIONS.check(Choice("lora", {"rank": rank, "alpha": alpha, "part": part, "full": full}))
    classifier = tuple(model.classifier_path)
    if not classifier and "classifier" in (part, full):
        raise UserError(f"lora: the network '{model.name}' has no known classifier layer; name the layers in part=.")
    if not isinstance(base, Variables):
        raise UserError(f"lora: base is a {type(base).__name__}; give fedwin.core.Variables(params, stats).")
    given = _by_path(base.params)
    trained = [path for path in given if full == "classifier" and _below(path, classifier)]
    # Matrices of dense and recurrent layers, by their names in flax and haiku.
    is_matrix = lambda path: len(given[path].shape) == 2 and (path[-1].endswith("kernel") or path[-1] == "w")
    dense = [path for path in given if is_matrix(path) and path not in trained]
    layers_of = {name: [path for path in dense if _in_part(path, name, classifier)] for name in part.split("-")}
    for name, paths in layers_of.items():
        if not paths:
            layers = ", ".join("/".join(path[:-1]) for path in dense) or "none"
            raise UserError(
                f"lora: part={name} has no dense layer of the network '{model.name}', whose dense layers are {layers}; "
                f"name some of these, joined by '-', or set part=all."
            )
    adapted = [path for path in dense if any(path in paths for paths in layers_of.values())]
    frozen = {path: leaf for path, leaf in given.items() if path not in trained}
    for path, leaf in frozen.items():
        if isinstance(leaf, jax.ShapeDtypeStruct):
            raise UserError(
                f"lora: the pretrained model has no '{'/'.join(path)}', which is frozen; take all of its parameters, "
                f"or train the classifier itself (full=classifier)."
            )
    apply = LowRank(model, {path: np.asarray(leaf) for path, leaf in frozen.items()}, alpha / rank)
    init = _init(model, base, adapted, trained, rank)
    own, is_adapted = model.classifier, any(_below(leaf, classifier) for leaf in [*adapted, *trained])
    head = None if own is None else lambda params, features: own(apply.merge(params), features)
    return Model(init, apply, head, classifier if is_adapted else (), model.name, model.num_classes)


def _init(model: Model, base: Variables, adapted: list[Path], trained: list[Path], rank: int):
    """Returns Model.init of the adapted network."""
    given = _by_path(base.params)

    def init(key):
        drawn = model.init(key)
        own = _by_path(drawn.params)
        chosen = lambda value, drawn: drawn if isinstance(value, jax.ShapeDtypeStruct) else jnp.asarray(value)
        leaves = {path: chosen(given[path], own[path]) for path in trained}
        for path in adapted:
            (inputs, outputs), dtype = given[path].shape, given[path].dtype
            of_layer = jax.random.fold_in(key, zlib.crc32("/".join(("lora", *path)).encode()))
            leaves[*path, "a"] = torch_kernel(of_layer, (inputs, rank), dtype)
            leaves[*path, "b"] = jnp.zeros((rank, outputs), dtype)
        return Variables(traverse_util.unflatten_dict(leaves), jax.tree.map(chosen, base.stats, drawn.stats))

    return init


def merged(model: Model, variables: Variables) -> Variables:
    """Returns the variables of the network itself, with the corrections of LoRA, if it has any, added to its layers."""
    if not isinstance(model.apply, LowRank):
        return variables
    return variables._replace(params=jax.jit(model.apply.merge)(variables.params))
