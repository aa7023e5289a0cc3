"""Local training: batches, steps, schedules, rules and keys."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedwin import local, losses, testing


def squared(params, batch, key, info):
    return losses.masked_mean(0.5 * (params["w"] * batch["x"] / 10 - 1) ** 2, batch)


def client(size, n_max=0):
    """A client with the examples 0, 1, ...; the next ones are those of another, which has n_max: its index's length."""
    first, second = np.arange(float(size)), size + np.arange(float(max(size, n_max)))
    return testing.problem({}, [{"x": first}, {"x": second}], squared, [(0,)], lr=0.1, batch_size=4).client(0)


def solver(**changes):
    options = dict(loss=losses.stateless(squared), lr=0.1, batch_size=4, shuffle=False) | changes
    return local.Solver(**options)


def seen(train, c):
    """The examples of each step, by position."""
    positions, steps = train.plan(c)
    steps = int(steps)
    rows = np.asarray(positions)[: steps * train.batch_size].reshape(steps, train.batch_size)
    return [row[row >= 0].tolist() for row in rows]


@pytest.mark.parametrize(
    "size, batch, epochs, n_max", [(10, 4, 3, 0), (8, 4, 2, 17), (1, 4, 2, 17), (7, 1, 2, 0), (10, 64, 2, 17)]
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_epoch_batching_passes_over_everything_with_a_short_last_batch(size, batch, epochs, n_max, shuffle):
    steps = seen(solver(batch_size=batch, epochs=epochs, shuffle=shuffle), client(size, max(size, n_max)))
    assert len(steps) == epochs * -(-size // batch)
    per_epoch = -(-size // batch)
    for e in range(epochs):
        epoch = steps[e * per_epoch : (e + 1) * per_epoch]
        assert sorted(sum(epoch, [])) == list(range(size))
        assert [len(b) for b in epoch[:-1]] == [batch] * (per_epoch - 1)


def test_repeat_batching_equals_fedjaxs_batches():
    fedjax = pytest.importorskip("fedjax")
    data = fedjax.ClientDataset({"x": np.arange(10)})
    theirs = data.shuffle_repeat_batch(batch_size=4, num_epochs=3, skip_shuffle=True, seed=0)
    ours = seen(solver(epochs=3, batching="repeat"), client(10))
    assert [b["x"].tolist() for b in theirs] == ours
    theirs = data.shuffle_repeat_batch(batch_size=4, num_epochs=None, num_steps=7, skip_shuffle=True, seed=0)
    assert [b["x"].tolist() for b in theirs] == seen(solver(steps=7, batching="repeat"), client(10))


def test_shuffles_do_not_depend_on_padding_and_differ_by_key():
    key = jax.random.key(5)
    short, long = local.shuffled(key, 9, 9), local.shuffled(key, 9, 30)[:9]
    np.testing.assert_array_equal(short, long)
    assert sorted(np.asarray(short).tolist()) == list(range(9))
    assert not np.array_equal(short, local.shuffled(jax.random.key(6), 9, 9))


def reference(size, train, momentum=0.0, decay=0.0, clip=None):
    """Plain numpy SGD over the planned batches."""
    w, velocity, raw = 1.0, 0.0, []
    for rows in seen(train, client(size)):
        x = np.array(rows) / 10
        g = np.mean((w * x - 1) * x)
        raw.append(g)
        d = g if clip is None else g * min(1, clip / abs(g))
        velocity = momentum * velocity + d + decay * w
        w -= 0.1 * velocity
    return w, np.mean(raw)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9, "decay": 0.3}, {"clip": 0.15, "decay": 0.3}])
@pytest.mark.parametrize("equal", [False, True])
def test_local_sgd_equals_numpy(options, equal):
    train = solver(
        epochs=2,
        optimizer=optax.sgd(1.0, options.get("momentum")),
        weight_decay=options.get("decay", 0.0),
        clip_norm=options.get("clip"),
        equal_size=10 if equal else None,
    )
    y = jax.jit(lambda p, c: train(p, c, grad=True))({"w": jnp.float32(1)}, client(10))
    w, raw = reference(10, train, **options)
    np.testing.assert_allclose(y.params["w"], w, rtol=1e-5)
    np.testing.assert_allclose(y.grad["w"], raw, rtol=1e-5)
    assert float(y.steps) == 6


def test_weight_decay_in_the_loss_enters_the_raw_gradient():
    inside = solver(weight_decay=0.3, wd_in_loss=True)({"w": jnp.float32(1)}, client(4), grad=True)
    outside = solver(weight_decay=0.3)({"w": jnp.float32(1)}, client(4), grad=True)
    np.testing.assert_allclose(inside.params["w"], outside.params["w"], rtol=1e-6)
    np.testing.assert_allclose(inside.grad["w"] - outside.grad["w"], 0.3, rtol=1e-5)


def test_full_gradient_is_the_sample_mean_for_any_batch_size():
    x = np.arange(10) / 10
    expected = np.mean((2 * x - 1) * x)
    for batch in (1, 3, 10, 64):
        g = solver(batch_size=batch).gradient({"w": jnp.float32(2)}, client(10, 13))
        np.testing.assert_allclose(g["w"], expected, rtol=1e-5)


def test_padded_steps_leave_no_trace_under_vmap():
    train = solver(epochs=2, shuffle=True)
    sizes = jnp.array([10, 3, 0, 1])
    make = lambda size: client(10)._replace(size=size)
    together = jax.vmap(lambda size: train({"w": jnp.float32(1)}, make(size), grad=True).params["w"])(sizes)
    alone = [float(train({"w": jnp.float32(1)}, make(s)).params["w"]) for s in sizes]
    np.testing.assert_allclose(together, alone, rtol=1e-6)
    assert alone[2] == 1.0  # a client without examples returns what it received


def test_augmentation_and_dropout_use_different_keys_in_every_step():
    words = lambda key: jax.random.key_data(key)

    def prepare(batch, key):
        return batch | {"augmentation": words(key)}

    def record(carry, params, step, last):
        return carry.at[step.j].set(jnp.stack([step.batch["augmentation"], words(step.key)])), params

    c = client(8)
    carry = jnp.zeros((4, 2, *words(c.key).shape), jnp.uint32)
    result = solver(prepare=prepare, epochs=2)({"w": jnp.float32(1)}, c, carry=carry, on_step=record)
    assert float(result.steps) == 4
    assert len(np.unique(np.asarray(result.carry).reshape(8, -1), axis=0)) == 8


def test_the_full_gradient_uses_keys_that_no_local_step_uses():
    prepare = lambda batch, key: batch | {"augmentation": jax.random.uniform(key)}
    # The gradient is what was drawn for the augmentation, and what was drawn for dropout.
    loss = lambda params, batch, key, info: params["a"] * batch["augmentation"] + params["d"] * jax.random.uniform(key)
    train = solver(loss=losses.stateless(loss), prepare=prepare)
    params, c = {"a": jnp.float32(0), "d": jnp.float32(0)}, client(4)
    step, full = train(params, c, grad=True).grad, train.gradient(params, c)
    assert len({round(float(x), 6) for g in (step, full) for x in g.values()}) == 4


def test_the_order_of_a_pass_is_drawn_from_the_client_key_and_the_pass_number():
    c = client(9)
    steps = seen(solver(epochs=3, shuffle=True, batch_size=9), c)
    for q in range(3):
        key = jax.random.fold_in(jax.random.fold_in(c.key, 0), q)
        assert steps[q] == local.shuffled(key, 9, 9).tolist()


def test_the_training_loss_is_the_mean_over_all_examples_seen():
    train = solver(epochs=2, lr=0.0)
    loss = train({"w": jnp.float32(2)}, client(10)).metrics["loss"]
    # Batches of 4, 4, 2, 4, 4, 2 examples: a plain mean over batches would weight the short ones too much.
    expected = np.mean(0.5 * (2 * np.arange(10) / 10 - 1) ** 2)
    np.testing.assert_allclose(loss.value, expected, rtol=1e-6)
    assert float(loss.weight) == 20


def test_the_optimizer_receives_the_current_parameters():
    inside = solver(epochs=2, optimizer=optax.chain(optax.add_decayed_weights(0.3), optax.sgd(1.0)))
    y, expected = (
        train({"w": jnp.float32(1)}, client(10)).params["w"] for train in (inside, solver(epochs=2, weight_decay=0.3))
    )
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_mean_gradients_of_low_precision_are_added_up_in_float32():
    loss = lambda params, batch, key, info: jnp.mean(batch["a"]) * params["x"].astype(float)
    p = testing.problem({"x": jnp.zeros((), jnp.bfloat16)}, [{"a": np.ones(600)}], loss, [(0,)], lr=0.0, batch_size=1)
    means = p.solve(p.variables.params, p.client(0), grad=True).grad, p.solve.gradient(p.variables.params, p.client(0))
    assert means == ({"x": 1}, {"x": 1}) and means[0]["x"].dtype == jnp.bfloat16
