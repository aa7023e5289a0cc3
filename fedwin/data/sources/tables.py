"""Tables with a continuous label: scikit-learn's diabetes, and a linear model whose optimum is known."""

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, FullSize
from fedwin.data.rng import generator
from fedwin.data.sources.digits import sklearn_file
from fedwin.registry.ranges import Decay, NonNegative, NonNegativeInt, PositiveInt

TRAIN = 354


@DATASETS.register("diabetes", how="comes with scikit-learn", full=FullSize(TRAIN, 88))
def diabetes(data_dir=None, *, standardize: bool = True) -> Dataset:
    """Progress of diabetes in a year (25 to 346) from ten measurements of 442 patients; reads no data_dir.

    x float32 [N, 10], standardized when used; a random fifth, the same in every run, is the test set.

    Args:
      standardize: whether y is in standard deviations from the mean, both of the training examples.

    Source: Efron et al., Least Angle Regression, 2004, https://doi.org/10.1214/009053604000000067.

    Example:
      >>> diabetes().train["x"].shape
      (354, 10)
    """
    x, y = (np.loadtxt(sklearn_file(f"diabetes_{part}.csv.gz")) for part in ("data_raw", "target"))
    rows = generator(0, "diabetes split").permutation(len(y))
    if standardize:
        y = (y - y[rows[:TRAIN]].mean()) / y[rows[:TRAIN]].std()
    mean, std = (tuple(moment(x[rows[:TRAIN]], axis=0).tolist()) for moment in (np.mean, np.std))
    return _dataset("diabetes", x, y, (np.sort(rows[:TRAIN]), np.sort(rows[TRAIN:])), mean=mean, std=std)


@DATASETS.register("california_like", how="no files needed")
def california_like(
    data_dir=None,
    *,
    n: PositiveInt = 16_512,
    tests: PositiveInt = 4_128,
    features: PositiveInt = 8,
    correlation: Decay = 0.5,
    noise: NonNegative = 0.5,
    seed: NonNegativeInt = 0,
) -> Dataset:
    """A linear model with noise, of the size of California housing: its optimum has a closed form.

        x_1 = z_1,   x_j = r x_{j-1} + sqrt(1 - r^2) z_j,   y = w x + b + noise e,   z, e, w, b ~ N(0, 1)

    The least-squares solution on the training examples is what `--model=logistic --loss=mse` converges to.

    Args:
      features: length of x.
      correlation: r, the correlation of neighboring features.
      noise: standard deviation of the noise.

    Example:
      >>> california_like(n=10, tests=5).train["y"].dtype
      dtype('float32')
    """
    rng = generator(seed, "california_like")
    w, x = rng.standard_normal(features + 1), rng.standard_normal((n + tests, features))
    for j in range(1, features):
        x[:, j] = correlation * x[:, j - 1] + np.sqrt(1 - correlation**2) * x[:, j]
    y = x @ w[:-1] + w[-1] + noise * rng.standard_normal(len(x))
    return _dataset("california_like", x, y, np.split(np.arange(len(x)), [n]))


def _dataset(name: str, x: np.ndarray, y: np.ndarray, sides, **fields) -> Dataset:
    """Builds a data set from the rows of its training and test examples."""
    train, test = ({"x": x[rows].astype(np.float32), "y": y[rows].astype(np.float32)} for rows in sides)
    return Dataset(name, train, test, 1, task="regression", **fields)
