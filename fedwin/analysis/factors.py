"""Five factors of the global model's loss: bias on own and on other clients' data, variance, covariance, locality."""

from typing import NamedTuple

import numpy as np

from fedwin.analysis import models
from fedwin.analysis.models import array
from fedwin.errors import UserError


class Factors(NamedTuple):
    """Four factors of the ensemble's loss: bias_squared + variance + covariance = ensemble_loss.

    Attributes:
      bias_squared: E (sum_k p_k b_k)^2.
      variance: E sum_k p_k^2 Var_k.
      covariance: E sum_{k != j} p_k p_j Cov_kj.
      ensemble_loss: mean squared loss of sum_k p_k f_k.
      bound: sum_k p_k E b_k^2, never below bias_squared.
      train_bias: mean of train_biases weighted by p.
      heter_bias: mean of heter_biases weighted by p.
      train_biases: client k's mean b_k^2 on its own examples [K].
      heter_biases: client k's mean b_k^2 on the other clients' examples [K].
      plug_in: whether there was only one replica; then a client's model serves as its own mean, and variance and
        covariance are 0 by construction.
    """

    bias_squared: float
    variance: float
    covariance: float
    ensemble_loss: float
    bound: float
    train_bias: float
    heter_bias: float
    train_biases: np.ndarray
    heter_biases: np.ndarray
    plug_in: bool


def factors(outputs, targets, owner, weights=None) -> Factors:
    """Decomposes the squared loss of the clients' ensemble, which approximates the global model to first order.

        E (y - sum_k p_k f_k)^2 = E (sum_k p_k b_k)^2 + E sum_k p_k^2 Var_k + E sum_{k != j} p_k p_j Cov_kj
        b_k = y - mean_s f_k,   f_GM = sum_k p_k f_k + O(locality^2)

    Args:
      outputs: f, client k's output on example n in replica s of its training (the same start, other batch orders)
        [S, K, N, ...]. In the mean, 1 - 1/S of variance and covariance count as such, 1/S as bias: S = 1 is plug-in.
      targets: y in the same units, such as one-hot where the outputs are softmax [N, ...].
      owner: the client that holds the example, integers [N].
      weights: p up to a factor, by default the clients' numbers of examples [K].

    Raises:
      UserError: when shapes do not match, a client has no example, there are fewer than two clients, or a weight is
        below 0.

    Source: Zhou et al., Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data, 2023,
    https://arxiv.org/abs/2305.07845.

    Example:
      >>> import numpy as np
      >>> outputs = np.array([[[0.0, 2.0], [0.0, 0.0]]])  # one replica, two clients, two examples
      >>> split = factors(outputs, targets=np.array([0.0, 2.0]), owner=[0, 1])
      >>> split.ensemble_loss, split.bias_squared, split.variance, split.covariance, split.plug_in
      (0.5, 0.5, 0.0, 0.0, True)
    """
    f, y = array("factors: outputs", outputs), array("factors: targets", targets)
    if f.ndim < 3 or f.shape[2:] != y.shape:
        raise UserError(f"factors: outputs {f.shape} and targets {y.shape}; [S, K, N, ...] and [N, ...] are needed.")
    f, y = f.reshape(*f.shape[:3], -1), y.reshape(len(y), -1)
    replicas, clients = f.shape[:2]
    owner = _owners(owner, clients, len(y))
    p = array("factors: weights", np.bincount(owner, minlength=clients) if weights is None else weights, 1)
    if len(p) != clients or (p < 0).any() or not 0 < p.sum() < np.inf:
        raise UserError(f"factors: weights must be {clients} numbers >= 0, one per client, not all 0.")
    p = p / p.sum()
    mean = f.mean(0)
    squares = lambda x: float(np.mean(np.sum(x**2, -1)))  # over coordinates; examples and replicas averaged
    ensemble, bias, spread = np.einsum("k,sknc->snc", p, f), y - mean, f - mean
    variance = squares(p[:, None, None] * spread) * clients
    pairs = np.einsum("k,sknc->snc", p, spread)
    losses = np.sum(bias**2, -1)
    own, others = by_ownership(losses, owner)
    return Factors(
        bias_squared=squares(np.einsum("k,knc->nc", p, bias)),
        variance=variance,
        covariance=squares(pairs) - variance,
        ensemble_loss=squares(y - ensemble),
        bound=float(p @ losses.mean(1)),
        train_bias=float(p @ own),
        heter_bias=float(p @ others),
        train_biases=own,
        heter_biases=others,
        plug_in=replicas == 1,
    )


def by_ownership(losses, owner) -> tuple[np.ndarray, np.ndarray]:
    """Computes the clients' training and heterogeneous bias: mean losses on own and on other clients' examples.

    Args:
      losses: loss of client k's model on example n [K, N].
      owner: the client that holds the example, integers [N].

    Returns:
      (own [K], others [K]).

    Raises:
      UserError: when an owner is not a client, a client has no example, or there are fewer than two clients.

    Example:
      >>> own, others = by_ownership([[1.0, 3.0, 5.0], [2.0, 2.0, 0.0]], [0, 0, 1])
      >>> own.tolist(), others.tolist()
      ([2.0, 0.0], [5.0, 2.0])
    """
    losses = array("by_ownership: losses", losses, 2)
    own = _owners(owner, *losses.shape) == np.arange(len(losses))[:, None]
    return np.mean(losses, 1, where=own), np.mean(losses, 1, where=~own)


def client_losses(logits, labels, kind: str = "mse") -> np.ndarray:
    """Computes the loss of every client's model on every example.

    Args:
      logits: logits of client k's model on example n [K, N, C].
      labels: integers in 0..C-1 [N].
      kind: 'mse' (softmax against one-hot) or 'ce'.

    Returns:
      float64 [K, N].

    Raises:
      UserError: when the kind is neither of these, shapes do not match, or a label is outside 0..C-1.

    Example:
      >>> import numpy as np
      >>> client_losses(np.zeros((1, 2, 4)), [0, 3]).tolist()  # softmax is uniform
      [[0.75, 0.75]]
    """
    logits, labels = array("client_losses: logits", logits, 3), np.asarray(labels)
    classes = logits.shape[2]
    if (
        labels.shape != logits.shape[1:2]
        or labels.dtype.kind not in "iu"
        or labels.min() < 0
        or labels.max() >= classes
    ):
        raise UserError(f"client_losses: labels must be {logits.shape[1]} integers in 0..{classes - 1}.")
    logits = logits - logits.max(-1, keepdims=True)
    logs = logits - np.log(np.sum(np.exp(logits), -1, keepdims=True))
    if kind == "ce":
        return -logs[:, np.arange(len(labels)), labels]
    if kind == "mse":
        return np.sum((np.exp(logs) - np.eye(classes)[labels]) ** 2, -1)
    raise UserError(f"client_losses: kind must be 'mse' or 'ce', not '{kind}'.")


def _owners(owner, clients: int, examples: int) -> np.ndarray:
    owner = np.asarray(owner)
    numbers = owner.shape == (examples,) and owner.dtype.kind in "iu"
    if clients < 2 or not numbers or owner.min() < 0 or owner.max() >= clients:
        raise UserError(
            f"owner must be {examples} integers in 0..{clients - 1}, one per example; at least two clients are needed."
        )
    if len(np.unique(owner)) < clients:
        raise UserError("owner: a client has no examples, so its training bias is undefined; leave it out.")
    return owner


def locality(clients, center) -> np.ndarray:
    """Computes the distances of the clients' models from the global one.

        ||w_k - w_GM||_2 over parameters;   f_GM = sum_k p_k f_k + O(max_k ||w_k - w_GM||^2)

    Args:
      clients: w_k, a list of K Variables or trees.
      center: w_GM = sum_k p_k w_k.

    Returns:
      float64 [K].

    Raises:
      UserError: when models are of different networks.

    Source: Zhou et al., Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data, 2023,
    https://arxiv.org/abs/2305.07845.

    Example:
      >>> import numpy as np
      >>> locality([{"w": np.array([3.0, 4.0])}, {"w": np.zeros(2)}], {"w": np.zeros(2)}).tolist()
      [5.0, 0.0]
    """
    models.check_alike((center, *clients))
    origin = models.vector(center)
    return np.array([np.linalg.norm(models.vector(client) - origin) for client in clients])
