"""WSM: the re-weighted softmax, class proportions, clients of one class."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import losses
from tests.algorithms.identities import classifier_runs, differ, leaves, same

pytestmark = pytest.mark.usefixtures("double")


def test_losses_of_low_precision_logits_are_computed_in_float32():
    logits, labels = jnp.asarray([[1.0, 2.0, 4.0]], jnp.bfloat16), jnp.array([0])
    expected = np.log(np.sum(np.exp([1.0, 2, 4]))) - 1
    with jax.enable_x64(False):
        for loss in (losses.nll(logits, labels), losses.nll(jnp.pad(logits, ((0, 0), (0, 1))), labels, jnp.ones(3))):
            assert loss.dtype == jnp.float32
            np.testing.assert_allclose(loss, [expected], rtol=1e-6)
    assert losses.nll(logits.astype(jnp.float64), labels).dtype == jnp.float64


def test_the_mean_over_a_fully_masked_batch_is_zero():
    values = jnp.array([jnp.nan, 3.0, 5.0])
    assert float(losses.masked_mean(values, {"mask": jnp.zeros(3)})) == 0
    assert float(losses.masked_mean(values, {"mask": jnp.array([0.0, 1, 1])})) == 4


def test_class_proportions():
    info = {"train": jnp.array([3, 0, 1]), "validation": jnp.array([0, 4, 0])}
    same(losses.class_proportions(info, "train"), [0.75, 0, 0.25])
    same(losses.class_proportions(info, "train+val"), [0.375, 0.5, 0.125])
    same(losses.class_proportions(info, "train", mask=True), [1, 0, 1])
    same(losses.class_proportions(info, mask=True), [1, 1, 1])
    nobody = {name: 0 * counts for name, counts in info.items()}
    for source in ("train", "train+val"):
        same(losses.class_proportions(nobody, source), np.full(3, 1 / 3))
        same(losses.class_proportions(nobody, source, mask=True), [1, 1, 1])


def test_class_proportions_have_the_precision_of_the_run():
    counts = np.array([3, 1, 6, 0, 1], np.int32)
    info = {"train": counts, "validation": 0 * counts}
    same(losses.class_proportions(info), counts / 11, 1e-16)
    assert losses.class_proportions(info, mask=True).dtype == jnp.float64
    with jax.enable_x64(False):
        for mask, expected in ((False, counts.astype(np.float32) / np.float32(11)), (True, counts > 0)):
            single = losses.class_proportions(info, mask=mask)
            assert single.dtype == jnp.float32
            np.testing.assert_array_equal(single, expected)


def test_a_one_class_client_returns_what_it_got_under_wsm():
    kwargs = dict(sizes=(2, 2), schedule=((0,),), loss=losses.wsm)
    p, (run,) = classifier_runs("fedavg", 1, **kwargs)
    assert (leaves(run.params) == leaves(p.variables.params)).all()
    # Its running statistics move all the same.
    differ(run.stats["mean"], p.variables.stats["mean"], 1e-6)
    p, (run,) = classifier_runs("fedavg", 1, weight_decay=0.1, lr=0.5, **kwargs)
    # Two epochs of one batch: (1 - lr wd)^2 x.
    same(leaves(run.params), (1 - 0.5 * 0.1) ** 2 * leaves(p.variables.params))
    p, (run,) = classifier_runs("fedprox:mu=1.1", 1, **kwargs)
    assert (leaves(run.params) == leaves(p.variables.params)).all()


def test_the_last_target_is_the_word_before_the_end_or_the_last_that_fits():
    rows = np.array([[1, 5, 6, 7, 0, 0], [1, 5, 6, 7, 8, 9], [1, 5, 0, 0, 0, 0]])
    assert losses.last_target(rows).tolist() == [2, 5, 0]
