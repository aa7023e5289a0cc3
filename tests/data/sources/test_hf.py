"""Data sets of Hugging Face `datasets`, written by the real package and read without a network."""

import io
import sys

import numpy as np
import pytest
from PIL import Image

import fedwin
from fedwin import data
from fedwin.data import cache
from fedwin.data.sources import shakespeare
from tests.data.files import refused


def png(value, channels=1, shape=(4, 5)):
    image = np.full((*shape, channels), value, np.uint8)
    image[0, -1] = 255
    stream = io.BytesIO()
    Image.fromarray(image.squeeze(-1) if channels == 1 else image).save(stream, "PNG")
    return {"bytes": stream.getvalue(), "path": None}


def rows(count, channels=1):
    """Columns of a split: record i has the gray value 10 i."""
    return {
        "image": [png(10 * i, channels) for i in range(count)],
        "label": [i % 3 for i in range(count)],
        "word": [("cat", "ant", "bee")[i % 3] for i in range(count)],
        "writer": [f"w{i % 4}" for i in range(count)],
        "number": [7 * (i % 2) for i in range(count)],
        "vector": [[float(i), 0.5] for i in range(count)],
        "text": [f"line {i}" for i in range(count)],
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with the same data set, saved in four ways, and a few others."""
    datasets = pytest.importorskip("datasets", reason="needs the extra `hf`: the package datasets")
    folder = tmp_path_factory.mktemp("hf")
    kinds = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["zero", "one", "two"]),
            "word": datasets.Value("string"),
            "writer": datasets.Value("string"),
            "number": datasets.Value("int64"),
            "vector": datasets.Sequence(datasets.Value("float64"), length=2),
            "text": datasets.Value("string"),
        }
    )
    train, test = (datasets.Dataset.from_dict(rows(n), features=kinds) for n in (12, 5))
    datasets.DatasetDict({"train": train, "test": test, "validation": test.select([1, 2])}).save_to_disk(
        folder / "both"
    )
    train.save_to_disk(folder / "single")
    (folder / "parquet" / "data").mkdir(parents=True)
    for part in range(2):
        shard = train.shard(2, part, contiguous=True)
        shard.to_parquet(folder / "parquet" / "data" / f"train-0000{part}-of-00002.parquet")
    test.to_parquet(folder / "parquet" / "data" / "test-00000-of-00001.parquet")
    for name in ("one", "two"):
        (folder / "twice" / name).mkdir(parents=True)
        test.to_parquet(folder / "twice" / name / "train.parquet")
    more = datasets.Dataset.from_dict(
        {
            "pixels": [[[i, 255], [0, 1]] for i in range(4)],
            "ragged": [[0] * (i + 1) for i in range(4)],
            "holes": [0, None, 1, 2],
            "sizes": [png(1, shape=(4 + i, 4)) for i in range(4)],
            "y": [True, False, True, True],
            "onehot": [[i % 2, 1 - i % 2] for i in range(4)],
        },
        features=datasets.Features(
            {
                "pixels": datasets.Array2D((2, 2), "uint8"),
                "ragged": datasets.Sequence(datasets.Value("int32")),
                "holes": datasets.Value("int32"),
                "sizes": datasets.Image(),
                "y": datasets.Value("bool"),
                "onehot": datasets.Sequence(datasets.Value("int32"), length=2),
            }
        ),
    )
    datasets.DatasetDict({"train": more, "test": more}).save_to_disk(folder / "more")
    return folder


@pytest.mark.parametrize("name", ["both", "parquet"])
def test_images_labels_and_clients(saved, name):
    dataset = data.load(f"hf:name={name},client=writer", saved)
    assert dataset.train["x"].shape == (12, 4, 5, 1) and dataset.train["x"].dtype == np.uint8
    assert (
        dataset.train["x"][:, 1, 0, 0].tolist() == [10 * i for i in range(12)] and dataset.train["x"][3, 0, 4, 0] == 255
    )
    assert dataset.train["y"].tolist() == [i % 3 for i in range(12)] and len(dataset.test["y"]) == 5
    assert dataset.class_names == ("zero", "one", "two") and dataset.num_classes == 3 and dataset.mean is None
    assert dataset.natural.ids.tolist() == ["w0", "w1", "w2", "w3"]
    assert dataset.natural.client(1).tolist() == [1, 5, 9] and dataset.test_natural.client(0).tolist() == [0, 4]
    assert data.make_partition(dataset, None, None, 0).num_clients == 4


def test_options(saved):
    dataset = data.load("hf:name=both,y=word,test=validation,constants=mnist", saved)
    assert dataset.class_names == ("ant", "bee", "cat") and dataset.train["y"][:3].tolist() == [2, 0, 1]
    assert dataset.test["x"][:, 1, 0, 0].tolist() == [10, 20] and dataset.mean == (0.1307,) and dataset.natural is None
    assert data.load("hf:name=both,y=number", saved).num_classes == 8
    refused("^constants=cifar10 has 3 channels; 'hf_both' has 1", data.load, "hf:name=both,constants=cifar10", saved)
    color = data.load(f"hf:name={saved / 'both'},channels=3,size=3")
    assert color.train["x"].shape == (12, 3, 3, 3) and isinstance(color.train["x"], data.Images)
    assert color.train["x"][2][1, 1].tolist() == [20, 20, 20]
    vectors = data.load("hf:name=both,x=vector", saved)
    assert vectors.train["x"].dtype == np.float32 and vectors.train["x"][3].tolist() == [3.0, 0.5]
    pixels = data.load("hf:name=more,x=pixels,y=y", saved)
    assert pixels.train["x"].dtype == np.uint8 and pixels.train["x"][2].tolist() == [[2, 255], [0, 1]]
    assert pixels.train["y"].tolist() == [1, 0, 1, 1]
    refused("one-hot labels", data.load, "hf:name=more,x=pixels,y=onehot", saved)
    assert data.load("hf:name=more,x=onehot,y=onehot,task=sequence", saved).task == "sequence"


def test_text_is_rows_of_characters(saved):
    dataset = data.load("hf:name=both,x=text,client=writer,length=10", saved)
    assert dataset.task == "sequence" and dataset.num_classes == shakespeare.VOCABULARY
    own = shakespeare.rows([b"line 1", b"line 5", b"line 9"], 10)
    np.testing.assert_array_equal(dataset.train["x"][dataset.natural.client(1)], own["x"])
    np.testing.assert_array_equal(dataset.train["y"][dataset.natural.client(1)], own["y"])
    assert data.load("hf:name=both,x=text", saved).natural is None


def test_it_is_packed_and_trained(saved, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDWIN_CACHE_DIR", str(tmp_path / "cache"))
    text = "hf:name=both,client=writer"
    cache.write_to(cache.user_path(text, saved), data.original(text, saved), text, data_dir=saved)
    monkeypatch.setitem(sys.modules, "datasets", None)  # the cache needs no package
    settings = dict(dataset=text, data_dir=str(saved), model="mlp:hidden=4", num_rounds=2, clients_per_round=2)
    summary = fedwin.run(fedwin.Config(**settings, out_dir=str(tmp_path / "run")), quiet=True)
    assert 0 <= summary["over_seeds"]["model"]["accuracy"]["mean"] <= 1
    refused(r"pip install 'fedwin\[hf\]'", data.load, text + ",train=test", saved)


@pytest.mark.parametrize(
    "text, words",
    [
        ("hf:name=ylecun/mnist", ["no folder", "never downloaded", "load_dataset('ylecun/mnist').save_to_disk"]),
        ("hf:name=both,test=dev", ["no split 'dev'", "train, test, validation", "test="]),
        ("hf:name=twice,test=train", ["files of 'train' in one, two"]),
        ("hf:name=both,x=picture", ["no column 'picture'", "it has image, label"]),
        ("hf:name=both,x=text,y=label", ["labels are its next characters", "leave out y="]),
        ("hf:name=more,x=pixels,y=holes", ["record 1: 'holes' is missing"]),
        ("hf:name=more,x=ragged,y=y", ["'ragged' is not a list of as many numbers"]),
        ("hf:name=more,x=sizes,y=y", ["record 1: an image of 5 x 4 pixels, before 4 x 4", "size="]),
    ],
)
def test_what_is_wrong_is_one_line(saved, text, words):
    refused(words, data.load, text, saved)


def test_without_the_package_one_line_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    refused(r"the package 'datasets' is not installed; pip install 'fedwin\[hf\]'", data.load, "hf:name=.", tmp_path)
    refused("no folder .*never downloaded", data.load, "hf:name=squad", tmp_path)
