"""The benchmark's networks as a FedJAX user writes them: haiku modules, lax convolutions."""

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp


def _pool(x):
    return hk.max_pool(x, (2, 2, 1), (2, 2, 1), "VALID")


def _conv_stack(widths, hidden, classes, kernel, padding):
    layers = []
    for width in widths:
        layers += [hk.Conv2D(width, kernel, padding=padding), jax.nn.relu, _pool]
    layers.append(hk.Flatten())
    for width in hidden:
        layers += [hk.Linear(width), jax.nn.relu]
    return hk.Sequential([*layers, hk.Linear(classes)])


def _dropout_cnn(x, classes, is_train):
    x = jax.nn.relu(hk.Conv2D(32, 3, padding="VALID")(x))
    x = _pool(jax.nn.relu(hk.Conv2D(64, 3, padding="VALID")(x)))
    x = hk.dropout(hk.next_rng_key(), 0.25, x) if is_train else x
    x = jax.nn.relu(hk.Linear(128)(hk.Flatten()(x)))
    x = hk.dropout(hk.next_rng_key(), 0.5, x) if is_train else x
    return hk.Linear(classes)(x)


def _block20(x, width, stride):
    y = hk.Conv2D(width, 3, stride, with_bias=False)(x)
    y = jax.nn.relu(hk.GroupNorm(2)(y))
    y = hk.GroupNorm(2)(hk.Conv2D(width, 3, with_bias=False)(y))
    extra = width - x.shape[-1]
    if extra or stride > 1:
        x = jnp.pad(x[:, ::stride, ::stride], ((0, 0), (0, 0), (0, 0), (extra // 2, extra - extra // 2)))
    return jax.nn.relu(x + y)


def _resnet20(x, classes):
    x = jax.nn.relu(hk.GroupNorm(2)(hk.Conv2D(16, 3, with_bias=False)(x)))
    for stage, width in enumerate((16, 32, 64)):
        for block in range(3):
            x = _block20(x, width, 2 if stage and not block else 1)
    return hk.Linear(classes)(x.mean((1, 2)))


def _lstm(x, classes, embed, hidden, layers, project=0, last=False):
    # FedJAX's own language models unroll every step, which compiles for minutes.
    x = hk.Embed(classes, embed)(x)
    for _ in range(layers):
        core = hk.LSTM(hidden)
        x, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[0]), time_major=False)
    x = x[:, -1] if last else x
    return hk.Linear(classes)(hk.Linear(project)(x) if project else x)


def build(model: str, shape: tuple[int, ...], classes: int) -> fedjax.Model:
    """Returns the network of a case as a fedjax.Model."""
    if model == "emnist_cnn":
        return fedjax.models.emnist.create_conv_model(only_digits=False)
    if model == "emnist_dense":
        return fedjax.models.emnist.create_dense_model(only_digits=False)

    networks = {
        "logistic": lambda x, train: hk.Linear(classes)(x),
        "mlp": lambda x, train: hk.nets.MLP([200, 200, classes])(x),
        "digits_cnn": lambda x, train: _conv_stack((16, 32), (64,), classes, 3, "SAME")(x),
        "lenet5": lambda x, train: _conv_stack((64, 64), (384, 192), classes, 5, "VALID")(x),
        "pfl_cnn": lambda x, train: _dropout_cnn(x, classes, train),
        "resnet20": lambda x, train: _resnet20(x, classes),
        "leaf_lstm": lambda x, train: _lstm(x, classes, 8, 100, 2, last=True),
        "leaf_lstm:hidden=256,predict=all": lambda x, train: _lstm(x, classes, 8, 256, 2),
        "stackoverflow_lstm:predict=all": lambda x, train: _lstm(x, classes, 96, 670, 1, project=96),
    }
    tokens = "_lstm" in model
    kind = jnp.int32 if tokens else jnp.float32
    per_token = tokens and model != "leaf_lstm"
    loss = fedjax.metrics.unreduced_cross_entropy_loss
    return fedjax.create_model_from_haiku(
        hk.transform(lambda batch, is_train=True: networks[model](batch["x"], is_train)),
        {"x": jnp.zeros((1, *shape), kind), "y": jnp.zeros(1, jnp.int32)},
        lambda batch, logits: loss(batch["y"], logits).mean(-1) if per_token else loss(batch["y"], logits),
        train_kwargs={"is_train": True},
        eval_kwargs={"is_train": False},
    )
