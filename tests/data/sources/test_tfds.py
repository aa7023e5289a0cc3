"""A data set prepared by TensorFlow Datasets, read without TensorFlow."""

import sys

import numpy as np
import pytest

from fedwin import data
from fedwin.data.sources import cifar
from tests.data.files import refused
from tests.programs import output_of

# 20 and 6 images of one gray value each but for a white corner; in a separate process, as a user would prepare it.
PREPARE = """
import io, sys
import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

def png(value, channels):
    stream = io.BytesIO()
    image = np.full((8, 8, channels), value, np.uint8)
    image[0, 7] = 255
    Image.fromarray(image.squeeze()).save(stream, "PNG")
    return stream.getvalue()

def builder(name, channels, levels=1):
    labels = {"label": 3} if levels == 1 else {"label": 4, "coarse_label": 2}

    def _info(self):
        features = {"image": tfds.features.Image(shape=(8, 8, channels))}
        features |= {key: tfds.features.ClassLabel(num_classes=count) for key, count in labels.items()}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(20), "test": self._generate_examples(6)}

    def _generate_examples(self, n):
        for i in range(n):
            fine = i % labels["label"]
            coarse = {"coarse_label": fine // 2} if levels == 2 else {}
            yield i, {"image": png(10 * i, channels), "label": fine, **coarse}

    members = {"VERSION": tfds.core.Version("1.0.0"), "__module__": __name__}
    members |= {f.__name__: f for f in (_info, _split_generators, _generate_examples)}
    return type(name, (tfds.core.GeneratorBasedBuilder,), members)

tfds.disable_progress_bar()
for made in (builder("Tiny", 1), builder("Emnist", 1), builder("Cifar10", 3), builder("Cifar100", 3, 2)):
    made(data_dir=sys.argv[1], file_format="array_record").download_and_prepare()
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    output_of(sys.executable, "-c", PREPARE, folder)
    return folder


def test_a_prepared_folder_is_read(prepared):
    dataset = data.load("tfds:name=tiny", prepared)
    assert dataset.train["x"].shape == (20, 8, 8, 1) and dataset.train["x"].dtype == np.uint8
    values = dataset.train["x"][:, 0, 0, 0] // 10
    assert sorted(values) == list(range(20))
    np.testing.assert_array_equal(dataset.train["y"], values % 3)  # image and label stay together
    assert dataset.num_classes == 3 and len(dataset.test["y"]) == 6
    assert len(data.load("tfds:name=tiny:1.0.0", prepared).train["y"]) == 20
    assert "tensorflow" not in sys.modules


def test_builders_of_known_sets_are_what_those_sets_are(prepared):
    assert data.load("tfds:name=tiny", prepared).mean is None
    assert data.load("tfds:name=tiny,constants=mnist", prepared).mean == (0.1307,)
    own = data.load("tfds:name=cifar10", prepared)
    assert (own.mean, own.std) == cifar.CONSTANTS["cifar10"]
    assert data.load("tfds:name=cifar10,constants=none", prepared).mean is None
    upright, as_it_lies = (data.load(f"tfds:name=emnist{text}", prepared) for text in ("", ",transpose=false"))
    assert (upright.train["x"][:, 7, 0] == 255).all() and (as_it_lies.train["x"][:, 0, 7] == 255).all()


def test_labels_of_two_levels_stay_together(prepared):
    fine, coarse = (data.load(f"tfds:name=cifar100,y={y}", prepared) for y in ("label", "coarse_label"))
    assert fine.num_classes == 4 and coarse.num_classes == 2
    np.testing.assert_array_equal(fine.train["coarse"], fine.train["y"] // 2)
    np.testing.assert_array_equal(coarse.test["y"], coarse.test["fine"] // 2)
    for dataset in (fine, coarse):
        assert data.make_partition(dataset, "pachinko", 4, 0).sizes.tolist() == [5] * 4


@pytest.mark.parametrize(
    "text, message",
    [("tfds:name=tiny,test=validation", "validation"), ("tfds:name=absent_set", "'absent_set' is not prepared")],
)
def test_what_is_not_there_is_named(prepared, text, message):
    refused(message, data.load, text, prepared)
