"""Losses: (params, stats, batch, key, info) -> (mean over the real examples of the batch, stats)."""

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
from jax.nn import logsumexp

from fedwin import tree
from fedwin.core import Variables
from fedwin.errors import UserError
from fedwin.registry import Registry
from fedwin.registry.ranges import NonNegative, Positive

# continuous: whether the loss is for continuous labels, whose runs are ranked by R^2.
LOSSES = Registry("loss", builds=Callable, continuous=False)


def masked_mean(values, batch):
    """Computes the mean of per-example values over the real examples of a batch.

    Args:
      values: one per example [B].
      batch: its 'mask' [B] is 1 for real examples; without a mask all are real.
    """
    mask = batch.get("mask")
    if mask is None:
        return jnp.mean(values)
    # where instead of a product: padding may contain inf or NaN.
    return jnp.sum(jnp.where(mask > 0, values, 0)) / jnp.maximum(jnp.sum(mask), 1)


def nll(logits, labels, shares=None):
    """Computes the negative log likelihood of each label, in at least float32.

        -f_y + log sum_c a_c exp f_c

    Absent classes (a_c = 0) have exactly zero gradient.

    Args:
      logits: f [..., C].
      labels: y, int [...].
      shares: a [C], of a re-weighted softmax (thesis Eq. 15); 1 by default. Outputs beyond these classes are absent.

    Raises:
      UserError: the labels are not classes.
    """
    check_classes(labels, "cross-entropy", "set --loss=mse or huber")
    logits = tree.at_least_float32(logits)
    picked = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    if shares is not None:
        shares = jnp.pad(shares.astype(logits.dtype), (0, logits.shape[-1] - len(shares)))
    return logsumexp(logits, axis=-1, b=shares) - picked


def check_classes(labels, who: str, remedy: str) -> None:
    """Raises UserError with a remedy if labels are continuous: `who` needs classes."""
    if not jnp.issubdtype(labels.dtype, jnp.integer):
        raise UserError(f"{who} needs classes, and the labels are {labels.dtype} numbers; {remedy}.")


def check_one_class(labels, who: str, remedy: str) -> None:
    """Raises UserError with a remedy for sequences and continuous labels: `who` needs one class per example."""
    check_classes(labels, who, remedy)
    if labels.ndim > 1:
        raise UserError(f"{who} needs one class per example, not a sequence; {remedy}.")


def stateless(function):
    """Returns a loss for models without statistics."""
    return lambda params, stats, batch, key, info: (function(params, batch, key, info), stats)


def from_logits(model, per_example):
    """Returns a loss on a model's training-mode output; per_example: (logits, batch, info) -> [B]."""
    _require_network(model)

    def loss(params, stats, batch, key, info):
        output = model.apply(Variables(params, stats), batch, key, True)
        values = per_example(output.logits, batch, info)
        if jnp.shape(values) != batch["y"].shape[:1]:
            raise UserError(f"a loss per example has the shape {list(jnp.shape(values))}; return one number each, [B].")
        return masked_mean(values, batch), output.stats

    return loss


def _require_network(model) -> None:
    if not callable(getattr(model, "apply", None)):
        raise UserError(f"a loss needs a network, and model={model!r} is not one; pass a fedwin.models.Model.")


def with_term(base: Callable, model, term: Callable) -> Callable:
    """Returns a loss plus a term of the model's training-mode output, (models.Output, batch) -> []."""
    _require_network(model)

    def loss(params, stats, batch, key, info):
        value, new_stats = base(params, stats, batch, key, info)
        # The compiler merges this forward pass with the one inside `base`.
        return value + term(model.apply(Variables(params, stats), batch, key, True), batch), new_stats

    return loss


def features_of(output, name: str):
    """Returns the input of the network's last layer, [B, d], in at least float32, for the method `name`.

    Raises:
      UserError: when it is unknown or not one vector per example.
    """
    features = output.features
    if getattr(features, "ndim", 0) != 2:
        raise UserError(f"{name} needs one feature vector per example, the input of a known last layer; set --model.")
    return tree.at_least_float32(features)


def sequence_nll(logits, labels):
    """Computes the sum of a row's token losses without padding (label 0), divided by the fixed row length T, [B]."""
    return jnp.sum(jnp.where(labels > 0, nll(logits, labels), 0), axis=-1) / labels.shape[-1]


def last_target(tokens):
    """Returns the position at which a model without a time axis predicts.

    It is the last position, T - 1, or, in a padded row, the position whose target is the last word: the last target of
    a padded row is EOS, which ends every sentence and teaches nothing. (A row that ends with EOS at T - 1 looks full
    from its inputs and keeps EOS as its target; accuracies exclude it.)

    Args:
      tokens: inputs or labels, int [B, T]; 0 is padding.
    """
    length = tokens.shape[-1]
    real = jnp.max(jnp.where(tokens != 0, jnp.arange(1, length + 1), 0), -1)
    return jnp.where(real == length, length - 1, jnp.maximum(real - 2, 0))


def aligned(logits, labels):
    """Returns logits and labels with time axes of the same length.

    Args:
      logits: [B, T, V], or [B, V] for a model without a time axis, which has one target per row.
      labels: int [B, T].

    Returns:
      (logits [B, T, V], labels [B, T]), or ([B, 1, V], [B, 1]).
    """
    if logits.ndim > labels.ndim:
        return logits, labels
    return logits[:, None], jnp.take_along_axis(labels, last_target(labels)[:, None], -1)


@LOSSES.register("cross_entropy")
def cross_entropy(model):
    """Softmax cross-entropy; for sequences, the row sum over non-padding tokens divided by the row length.

        L = -f_y + log sum_c exp(f_c)

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", problem=testing.classification(loss=cross_entropy))
      {'model': [0.777, 0.506, 0.36]}
    """

    def per_example(logits, batch, info):
        if batch["y"].ndim > 1:
            return sequence_nll(*aligned(logits, batch["y"]))
        return nll(logits, batch["y"])

    return from_logits(model, per_example)


def class_counts(info, source="train+val"):
    """Returns the number of one client's examples in each class, float [C].

    Args:
      info: the client's Client.info, with the label counts 'train' and 'validation' [C].
      source: 'train' or 'train+val'.

    Raises:
      UserError: when the federation has no class counts.
    """
    if not isinstance(info, dict) or "train" not in info:
        raise UserError(
            "losses wsm and fedlc need the clients' class counts, which are not available for sequences, continuous "
            "labels or very large federations; choose another --loss."
        )
    return jnp.asarray(info["train"] + info["validation"] if source == "train+val" else info["train"], float)


def class_proportions(info, source="train+val", mask=False):
    """Returns the class proportions a_c from `class_counts`, float [C]; with `mask`, whether they are above 0.

    A client without labels (padding) gets uniform proportions, which keep its unused loss finite.
    """
    counts = class_counts(info, source)
    total = jnp.sum(counts)
    shares = jnp.where(total > 0, counts / jnp.maximum(total, 1), 1 / counts.size)
    return (shares > 0).astype(shares.dtype) if mask else shares


@LOSSES.register("wsm", paper="legate2023reweighted")
def wsm(model, *, proportions: Literal["train", "train+val"] = "train+val", mask: bool = False):
    """WSM: softmax cross-entropy whose softmax is weighted by the client's class proportions.

        L = -f_y + log sum_c a_c exp(f_c),   dL/df_c = a_c exp(f_c) / sum_j a_j exp(f_j) - [c = y]

    Args:
      proportions: 'train+val' (the released code) or 'train'.
      mask: replace a_c with [a_c > 0].

    Source: Legate, Re-Weighted Softmax Cross-Entropy to Control Forgetting in Federated Learning,
    https://arxiv.org/abs/2304.05260.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", problem=testing.classification(loss=wsm))  # may be below 0: a_c <= 1
      {'model': [-0.094, -0.199, -0.277]}
    """

    def per_example(logits, batch, info):
        return nll(logits, batch["y"], class_proportions(info, proportions, mask))

    return from_logits(model, per_example)


@LOSSES.register("fedlc", paper="zhang2022federated")
def fedlc(model, *, tau: NonNegative = 1.0):
    """FedLC: softmax cross-entropy of logits lowered by tau n_c^(-1/4), with n_c the client's examples of class c.

        L = -log(a_y exp(f_y) / sum_c a_c exp(f_c)),   a_c = exp(-tau n_c^(-1/4)), 0 for absent classes

    The paper sums over c != y, which leaves the loss without a lower bound. tau = 0 only masks the absent classes.

    Args:
      tau: strength of the calibration.

    Source: Zhang et al., Federated Learning with Label Distribution Skew via Logits Calibration, 2022,
    https://arxiv.org/abs/2209.00189.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", problem=testing.classification(loss=fedlc))
      {'model': [0.414, 0.273, 0.186]}
    """

    def per_example(logits, batch, info):
        counts = class_counts(info, "train")
        margins = tau * jnp.maximum(counts, 1) ** -0.25
        # Padding has no examples; its loss is unused, but must be finite.
        present = (counts > 0) | (jnp.sum(counts) == 0)
        return margins[batch["y"]] + nll(logits, batch["y"], jnp.where(present, jnp.exp(-margins), 0))

    return from_logits(model, per_example)


def decorrelation(features, mask=None, form="paper"):
    """Computes FedDecorr's penalty on correlated features in a batch.

        (1/d^2) ||K||_F^2,   K = (1/B) Z^T Z, Z the features at zero mean and unit variance

    Args:
      features: h [B, d].
      mask: 1 for real examples [B]; None: all are real.
      form: 'paper', or 'code' for the mean of the off-diagonal (Z^T Z)_ab^2 / B, with the unbiased variance.

    Returns:
      float [].

    Example:
      >>> float(decorrelation(jnp.array([[1.0, 2.0], [-1.0, -2.0]]))), float(decorrelation(jnp.eye(2)[:1]))
      (1.0, 0.0)
    """
    count, width = features.shape
    mask = jnp.ones(count) if mask is None else mask
    real, total = (mask > 0)[:, None], jnp.maximum(jnp.sum(mask), 1).astype(features.dtype)
    features = jnp.where(real, features, 0)
    centered = jnp.where(real, features - jnp.sum(features, 0) / total, 0)
    divisor = total if form == "paper" else jnp.maximum(total - 1, 1)
    z = centered / jnp.sqrt(jnp.sum(centered**2, 0) / divisor + 1e-8)
    if form == "paper":
        return jnp.mean((z.T @ z / total) ** 2)
    squares = (z.T @ z) ** 2
    return (jnp.sum(squares) - jnp.trace(squares)) / (max(width * (width - 1), 1) * total)


@LOSSES.register("feddecorr", paper="shi2023towards")
def feddecorr(model, *, beta: NonNegative = 0.1, form: Literal["code", "paper"] = "code"):
    """FedDecorr: softmax cross-entropy plus a penalty on the features' squared correlations in a batch of B examples.

        L = CE + beta ((B - 1)^2 / B) mean_{a != b} K_ab^2,    K the correlations of h, the input of the last layer
        L = CE + (beta / d^2) sum_{a, b} K_ab^2                (form=paper)

    The default is the rule of the authors' code (https://github.com/bytedance/FedDecorr), for which they chose beta;
    the term in the paper's equation is about B times smaller.

    Args:
      beta: weight of the penalty.
      form: the penalty of the released 'code' or of the 'paper'.

    Raises:
      UserError: when the features are unknown.

    Source: Shi et al., Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated Learning,
    2023, https://arxiv.org/abs/2210.00226.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", problem=testing.classification(loss=feddecorr))
      {'model': [0.97, 0.698, 0.554]}
    """

    def term(output, batch):
        return beta * decorrelation(features_of(output, "feddecorr"), batch.get("mask"), form)

    return with_term(cross_entropy(model), model, term)


def residuals(outputs, batch, loss: str):
    """Computes f - y [B] from continuous labels and outputs f [B, 1], in at least float32; `loss` is a loss's name."""
    y = batch["y"]
    if not jnp.issubdtype(y.dtype, jnp.floating):
        raise UserError(f"loss {loss} needs continuous labels, and the data have classes; choose another --loss.")
    if outputs.shape != (*y.shape, 1):
        raise UserError(f"loss {loss} needs one output per example, not {outputs.shape[1:]}; choose another --model.")
    return tree.at_least_float32(outputs[..., 0]) - y


@LOSSES.register("mse", continuous=True)
def mse(model):
    """Squared error of a continuous label.

        L = (f - y)^2

    Example:
      >>> import types
      >>> from fedwin.models import Output
      >>> batch = {"x": jnp.array([[1.0], [2.0]]), "y": jnp.array([0.0, 5.0])}
      >>> echo = types.SimpleNamespace(apply=lambda variables, batch, key, train: Output(batch["x"], None))
      >>> float(mse(echo)((), (), batch, None, ())[0])
      5.0
    """
    return from_logits(model, lambda outputs, batch, info: residuals(outputs, batch, "mse") ** 2)


@LOSSES.register("huber", continuous=True)
def huber(model, *, delta: Positive = 1.0):
    """Huber's loss of a continuous label, quadratic for small and linear for large errors.

        L = r^2 / 2 if |r| <= delta, else delta (|r| - delta / 2),   r = f - y

    Args:
      delta: error above which the loss is linear.

    Source: Huber, Robust Estimation of a Location Parameter, 1964, https://doi.org/10.1214/aoms/1177703732.

    Example:
      >>> import types
      >>> from fedwin.models import Output
      >>> batch = {"x": jnp.array([[1.0], [2.0]]), "y": jnp.array([0.0, 5.0])}
      >>> echo = types.SimpleNamespace(apply=lambda variables, batch, key, train: Output(batch["x"], None))
      >>> float(huber(echo)((), (), batch, None, ())[0])
      1.5
    """

    def per_example(outputs, batch, info):
        size = jnp.abs(residuals(outputs, batch, "huber"))
        near = jnp.minimum(size, delta)
        return near * (size - near / 2)

    return from_logits(model, per_example)
