"""Plain arrays, and what is checked of every data set."""

import numpy as np
import pytest

from fedwin import data
from fedwin.errors import UserError


def arrays(n=6):
    return np.zeros((n, 2), np.float32), np.arange(n) % 3, np.zeros((3, 2), np.float32), np.arange(3)


def test_arrays_with_and_without_clients():
    dataset = data.from_arrays(*arrays())
    assert dataset.num_classes == 3 and dataset.train["y"].dtype == np.int32 and dataset.natural is None
    dataset = data.from_arrays(*arrays(), clients=[2, 1, 2, 10, 1, 2])
    part = data.deal(dataset, None, None, 0)
    assert part.ids.tolist() == ["1", "2", "10"] and part.client(1).tolist() == [0, 2, 5]


def test_npz_files(tmp_path):
    x, y, tx, ty = arrays()
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=tx, y_test=ty, client_train=np.array(list("aabbcc")))
    for place in (tmp_path, tmp_path / "data.npz"):
        dataset = data.load("npz", place)
        assert dataset.natural.ids.tolist() == ["a", "b", "c"] and len(dataset.test["y"]) == 3
    np.savez(tmp_path / "part.npz", x_train=x, y_train=y)
    with pytest.raises(UserError, match="part.npz: x_test, y_test missing"):
        data.load("npz:file=part.npz", tmp_path)
    (tmp_path / "bad.npz").write_bytes(b"PK\3\4 cut")
    with pytest.raises(UserError, match="bad.npz: not a readable"):
        data.load("npz:file=bad.npz", tmp_path)
    np.savez(tmp_path / "objects.npz", x_train=np.array([{}], object))
    with pytest.raises(UserError, match="objects.npz"):
        data.load("npz:file=objects.npz", tmp_path)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda a: a[0].__setitem__((4, 1), np.nan), "train, record 4: 'x' has NaN"),
        (lambda a: a[2].__setitem__((1, 0), np.inf), "test, record 1: 'x' has NaN or inf"),
        (lambda a: a[3].__setitem__(2, 3), "test, record 2: label 3 is not in 0..2"),
        (lambda a: a[1].__setitem__(5, -1), "train, record 5: label -1"),
        (lambda a: a.__setitem__(1, a[1][:5]), "features differ in length"),
        (lambda a: a.__setitem__(1, a[1] / 2), "whole numbers"),
        (lambda a: a.__setitem__(2, np.zeros((3, 5))), "shape .2,. in train and .5,. in test"),
        (lambda a: a.__setitem__(slice(0, 2), [np.zeros((0, 2)), np.zeros(0, int)]), "no training example"),
        (lambda a: a.__setitem__(0, np.array([[{}, 1]] * 6, object)), "train: 'x' is object; give uint8 images"),
        (lambda a: a.__setitem__(2, np.full((3, 2), "a")), "test: 'x' is <U1; give uint8 images"),
        (lambda a: a.__setitem__(0, np.ones((6, 2), bool)), "train: 'x' is bool"),
        (lambda a: a.__setitem__(0, np.full((6, 8, 8), 255)), "train: images are int64, which is not scaled"),
        (lambda a: a.__setitem__(0, np.full((6, 8, 8, 1), 255, np.uint16)), "train: images are uint16"),
        (lambda a: a.__setitem__(0, np.array(1.0)), "'x' is a single number"),
        (lambda a: a.__setitem__(3, np.array(1)), "'y' is a single number"),
        (lambda a: a.__setitem__(1, np.array(1)), "no training example"),
    ],
)
def test_inconsistent_arrays_are_refused(change, message):
    given = list(arrays())
    change(given)
    with pytest.raises(UserError, match=message):
        data.from_arrays(*given)
    with pytest.raises(UserError, match="give one for each"):
        data.from_arrays(*arrays(), clients=[1, 2])


def test_tokens_are_ids_of_the_vocabulary():
    x = np.array([[1, 2, 0], [1, 3, 4]])
    assert data.from_arrays(x, x, x, x).task == "sequence"
    with pytest.raises(UserError, match="test, record 1: token 5 is not in 0..4"):
        data.from_arrays(x, x, np.where(x == 3, 5, x), x)
    with pytest.raises(UserError, match="train, record 0: token -1 is not in 0..4"):
        data.from_arrays(x - (x == 0), x, x, x)
    with pytest.raises(UserError, match="train: tokens are uint8, .* int32"):
        data.from_arrays(x.astype(np.uint8), x, x, x)
    assert data.from_arrays(x / 2, x, x / 2, x).task == "sequence"  # a series of measurements


def test_unknown_data_sets_name_the_nearest():
    with pytest.raises(UserError, match="Did you mean 'cifar10'"):
        data.load("cifar1O", "/")
    with pytest.raises(UserError, match="Did you mean 'label'"):
        data.load("cifar100:lable=fine", "/")
