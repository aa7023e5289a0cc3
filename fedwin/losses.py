"""Losses: (params, stats, batch, key, info) -> (mean over the real examples of the batch, stats)."""

import jax.numpy as jnp
from jax.nn import logsumexp

from fedwin import checks
from fedwin.core import Variables
from fedwin.errors import UserError
from fedwin.registry import Registry

LOSSES = Registry("loss")


def masked_mean(values, batch):
    """Mean of per-example values [B] over batch['mask']; over all of them where there is no mask."""
    mask = batch.get("mask")
    if mask is None:
        return jnp.mean(values)
    # where, not multiply: an empty place may hold inf or NaN.
    return jnp.sum(jnp.where(mask > 0, values, 0)) / jnp.maximum(jnp.sum(mask), 1)


def nll(logits, labels):
    """-f_y + log sum_c exp f_c per example, in float32 at least: logits [..., C], labels int [...] -> [...]."""
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    picked = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return logsumexp(logits, axis=-1) - picked


def stateless(function):
    """Makes a loss of `function(params, batch, key, info) -> scalar`, for models without statistics."""
    return lambda params, stats, batch, key, info: (function(params, batch, key, info), stats)


def from_logits(model, per_example):
    """Makes a loss of `per_example(logits, batch, info) -> [B]` on a model's training-mode output."""

    def loss(params, stats, batch, key, info):
        output = model.apply(Variables(params, stats), batch, key, True)
        return masked_mean(per_example(output.logits, batch, info), batch), output.stats

    return loss


def sequence_nll(logits, labels):
    """Sum of the non-padding (label > 0) token losses of a row over its fixed length T: [B, T, V], [B, T] -> [B]."""
    return jnp.sum(jnp.where(labels > 0, nll(logits, labels), 0), axis=-1) / labels.shape[-1]


def last_target(tokens):
    """Returns the position [B] at which a model without a time axis predicts, from inputs or labels [B, T].

    0 is padding. The last one, T - 1; where padding fills the row up, the one whose target is the last word: the row's
    last target is EOS then, which follows every end and is nothing to learn. (So one target a row. A row that ends
    with EOS at T - 1 looks full from its inputs and keeps EOS as its target; accuracies leave that out.)
    """
    length = tokens.shape[-1]
    real = jnp.max(jnp.where(tokens != 0, jnp.arange(1, length + 1), 0), -1)
    return jnp.where(real == length, length - 1, jnp.maximum(real - 2, 0))


def aligned(logits, labels):
    """Returns logits [B, T, V] and labels [B, T]; a model without a time axis, [B, V], has one target a row: [B, 1]."""
    if logits.ndim > labels.ndim:
        return logits, labels
    return logits[:, None], jnp.take_along_axis(labels, last_target(labels)[:, None], -1)


@LOSSES.register("cross_entropy")
def cross_entropy(model):
    """Softmax cross-entropy; for sequences, the row sum over non-padding tokens divided by the row length."""

    def per_example(logits, batch, info):
        if batch["y"].ndim > 1:
            return sequence_nll(*aligned(logits, batch["y"]))
        return nll(logits, batch["y"])

    return from_logits(model, per_example)


def class_proportions(info, source="train+val", mask=False):
    """Returns the class proportions a_c of one client from its label counts, [C].

    A client without any label (padding) gets uniform proportions, which keeps its unused loss finite.

    Args:
      info: the client's, with label counts of 'train' and 'validation' [C].
      source: 'train' or 'train+val'.
      mask: hard masking, a_c <- [a_c > 0].

    Raises:
      UserError: when the federation has no class counts.
    """
    if not isinstance(info, dict) or "train" not in info:
        raise UserError(
            "loss wsm needs the clients' class counts, which are not available for sequences or very large "
            "federations; use another --loss."
        )
    counts = info["train"] + info["validation"] if source == "train+val" else info["train"]
    counts = counts.astype(jnp.float32)
    total = jnp.sum(counts)
    shares = jnp.where(total > 0, counts / jnp.maximum(total, 1), 1 / counts.size)
    return (shares > 0).astype(jnp.float32) if mask else shares


def weighted_softmax_nll(logits, labels, shares):
    """Per-example re-weighted softmax cross-entropy: -f_y + log sum_c a_c exp f_c (thesis Eq. 15).

    Absent classes (a_c = 0) have exactly zero gradient; logits [B, C], labels [B], shares [C] -> [B].
    """
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    picked = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return logsumexp(logits, axis=-1, b=shares.astype(logits.dtype)) - picked


@LOSSES.register("wsm", paper="legate2023reweighted")
def wsm(model, *, proportions="train+val", mask=False):
    """WSM: softmax cross-entropy whose softmax is weighted by the client's class proportions.

        L = -f_y + log sum_c a_c exp(f_c),   dL/df_c = a_c exp(f_c) / sum_j a_j exp(f_j) - [c = y]

    Args:
      model: the network.
      proportions: 'train+val' (the released code) or 'train'.
      mask: replace a_c by [a_c > 0].

    Raises:
      UserError: when proportions is neither.

    Legate, Re-Weighted Softmax Cross-Entropy to Control Forgetting in Federated Learning,
    https://arxiv.org/abs/2304.05260.
    """
    checks.one_of("wsm", "proportions", proportions, ("train", "train+val"))

    def per_example(logits, batch, info):
        return weighted_softmax_nll(logits, batch["y"], class_proportions(info, proportions, mask))

    return from_logits(model, per_example)
