"""A data set that TFDS really prepared, read back without TensorFlow."""

import subprocess
import sys

import numpy as np
import pytest

from fedwin import data
from fedwin.errors import UserError

# 20 and 6 images of one grey value each; in a process of its own, as a user would prepare it.
PREPARE = """
import io, sys
import numpy as np
import tensorflow_datasets as tfds
from PIL import Image

def png(value):
    stream = io.BytesIO()
    Image.fromarray(np.full((8, 8), value, np.uint8)).save(stream, "PNG")
    return stream.getvalue()

class Tiny(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {"image": tfds.features.Image(shape=(8, 8, 1)), "label": tfds.features.ClassLabel(num_classes=3)}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(20), "test": self._generate_examples(6)}

    def _generate_examples(self, n):
        for i in range(n):
            yield i, {"image": png(10 * i), "label": i % 3}

tfds.disable_progress_bar()
Tiny(data_dir=sys.argv[1], file_format="array_record").download_and_prepare()
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    subprocess.run([sys.executable, "-c", PREPARE, str(folder)], check=True, capture_output=True)
    return folder


def test_a_prepared_folder_is_read(prepared):
    dataset = data.load("tfds:name=tiny", prepared)
    assert dataset.train["x"].shape == (20, 8, 8, 1) and dataset.train["x"].dtype == np.uint8
    values = dataset.train["x"][:, 0, 0, 0] // 10
    assert sorted(values) == list(range(20))
    np.testing.assert_array_equal(dataset.train["y"], values % 3)  # image and label stay together
    assert dataset.num_classes == 3 and len(dataset.test["y"]) == 6
    assert len(data.load("tfds:name=tiny:1.0.0", prepared).train["y"]) == 20


def test_without_tensorflow(prepared):
    code = "import sys; from fedwin import data; data.load('tfds:name=tiny', sys.argv[1]); "
    code += "print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(prepared)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    "text, message",
    [
        ("tfds:name=tiny,test=validation", "validation"),
        ("tfds:name=tiny,x=picture", "features image, label, not picture"),
        ("tfds:name=absent_set", "'absent_set' is not prepared"),
        ("tfds:name=tiny:9.0.0", "'tiny:9.0.0' is not prepared"),
    ],
)
def test_what_is_not_there_is_named(prepared, text, message):
    with pytest.raises(UserError, match=message) as error:
        data.load(text, prepared)
    assert "\n" not in str(error.value)
