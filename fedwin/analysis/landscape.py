"""The plane through three models: its axes, the models on it, and projections of other models."""

from typing import Annotated, Any, NamedTuple

import numpy as np

from fedwin.analysis import models
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegative, Range, check_values


class Plane(NamedTuple):
    """Plane through three models.

    Attributes:
      models: (w_1, w_2, w_3).
      origin: w_1's parameters, float64 [P].
      u: first axis, of length 1 [P].
      v: second axis, of length 1 and orthogonal to u [P].
      a2: ||w_2 - w_1||, the first coordinate of w_2.
      a3: first coordinate of w_3.
      b3: second coordinate of w_3.
    """

    models: tuple[Any, Any, Any]
    origin: np.ndarray
    u: np.ndarray
    v: np.ndarray
    a2: float
    a3: float
    b3: float


class Place(NamedTuple):
    """Projection of a model onto a plane, and the distance from it.

    Attributes:
      a: coordinate along u.
      b: coordinate along v.
      residual: distance of the model from the plane.
    """

    a: float
    b: float
    residual: float


def plane(first, second, third) -> Plane:
    """Returns the plane through three models; its axes measure true distances (no filter normalization).

        u = (w_2 - w_1) / ||w_2 - w_1||,   v ~ (w_3 - w_1) - <w_3 - w_1, u> u,   ||v|| = 1

    Args:
      first: w_1, Variables (the axes are those of their params) or a tree.

    Raises:
      UserError: when the models are of different networks, not finite, or on one line.

    Source: Garipov et al., Loss Surfaces, Mode Connectivity, and Fast Ensembling of DNNs, 2018,
    https://arxiv.org/abs/1802.10026.

    Example:
      >>> import numpy as np
      >>> three = [{"w": np.array(w)} for w in ([0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [1.0, 1.0, 0.0])]
      >>> through = plane(*three)
      >>> corners(through).tolist()
      [[0.0, 0.0], [2.0, 0.0], [1.0, 1.0]]
    """
    models.check_alike((first, second, third))
    origin, *others = (models.vector(model) for model in (first, second, third))
    along, beside = (other - origin for other in others)
    if not (np.isfinite(along).all() and np.isfinite(beside).all()):
        raise UserError("plane: a model is not finite; take models from before the run diverged.")
    a2 = float(np.linalg.norm(along))
    if not a2:
        raise UserError("plane: the first two models are equal; three different ones span a plane.")
    u = along / a2
    a3 = float(beside @ u)
    v = beside - a3 * u
    # A second Gram-Schmidt pass removes the component along u that rounding left.
    rest = float(v @ u)
    a3, v = a3 + rest, v - rest * u
    b3 = float(np.linalg.norm(v))
    if b3 < 1e-8 * a2:
        raise UserError("plane: the three models lie on one line; take models that differ more.")
    return Plane((first, second, third), origin, u, v / b3, a2, a3, b3)


def point(plane: Plane, a: float, b: float):
    """Returns the model at coordinates (a, b), statistics included; to the bit, the three models at their coordinates.

        w_1 + a u + b v = c_1 w_1 + c_2 w_2 + c_3 w_3,   c_3 = b / b3, c_2 = (a - c_3 a3) / a2, c_1 = 1 - c_2 - c_3

    Args:
      a: coordinate along u.
      b: coordinate along v.

    Example:
      >>> import numpy as np
      >>> three = [{"w": np.array(w)} for w in ([0.0, 0.0], [2.0, 0.0], [1.0, 1.0])]
      >>> point(plane(*three), 1.0, 0.5)["w"].tolist()
      [1.0, 0.5]
    """
    third = b / plane.b3
    second = (a - third * plane.a3) / plane.a2
    return models.mix([1 - second - third, second, third], plane.models)


def place(plane: Plane, model) -> Place:
    """Projects a model onto a plane.

        a = <w - w_1, u>,   b = <w - w_1, v>,   residual = ||w - w_1 - a u - b v||

    Raises:
      UserError: when the model is of another network.

    Example:
      >>> import numpy as np
      >>> three = [{"w": np.array(w)} for w in ([0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [1.0, 1.0, 0.0])]
      >>> place(plane(*three), {"w": np.array([1.0, 3.0, 0.5])})
      Place(a=1.0, b=3.0, residual=0.5)
    """
    models.check_alike((plane.models[0], model))
    away = models.vector(model) - plane.origin
    a, b = away @ plane.u, away @ plane.v
    return Place(float(a), float(b), float(np.linalg.norm(away - a * plane.u - b * plane.v)))


def corners(plane: Plane) -> np.ndarray:
    """Returns the coordinates of the three models; the mean of the models is at the mean of their coordinates.

    Returns:
      (a, b) of each model, [3, 2].
    """
    return np.array([[0.0, 0.0], [plane.a2, 0.0], [plane.a3, plane.b3]])


def grid(plane: Plane, margin: float = 0.2, points: int = 21) -> tuple[np.ndarray, np.ndarray]:
    """Returns axes that contain the three models, wider by margin ||w_2 - w_1|| and margin b3 on each side.

    Args:
      margin: relative margin, >= 0.
      points: length of either axis, >= 2.

    Returns:
      (a [points], b [points]).

    Raises:
      UserError: when the margin is negative or there are fewer than 2 points.
    """
    check_values("grid", NonNegative, margin=margin)
    check_values("grid", Annotated[int, Range(2)], points=points)
    low, high = corners(plane).min(0), corners(plane).max(0)
    widths = margin * np.array([plane.a2, plane.b3])
    a, b = (np.linspace(low[i] - widths[i], high[i] + widths[i], points) for i in range(2))
    return a, b
