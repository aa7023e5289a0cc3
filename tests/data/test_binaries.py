"""The subcommand `fedwin partition`."""

import numpy as np
from PIL import Image

from experiments import partition as partition_binary
from fedwin import data
from tests.data.files import refused
from tests.misuse import calls


def test_the_picture_is_drawn_and_the_report_complete(tmp_path):
    dataset = data.load("digits")
    part = data.make_partition(dataset, "dirichlet:alpha=0.5", 20, 0)
    partition_binary.draw_picture(part, dataset, 12, str(tmp_path / "p.png"))
    picture = np.asarray(Image.open(tmp_path / "p.png").convert("RGB"))
    assert picture.shape[0] > 300 and picture.shape[1] > 500
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20  # colors of ten classes and their edges
    text = partition_binary.describe(part)
    reported = (
        "clients            20",
        "1,400 assigned, 0 left out",
        "min 70",
        "classes per client",
        "share of top class",
        "earth mover's",
    )
    assert all(words in text for words in reported) and "Wasserstein" not in text
    numbers = data.load("california_like:n=100,tests=1")
    part = data.make_partition(numbers, "yurochkin:alpha=1,min_size=1,bins=4", 6, 0)
    assert "bins per client" in (text := partition_binary.describe(part, numbers.task)) and "Wasserstein" in text
    assert len(partition_binary.client_table(part, numbers.task).splitlines()) == 2 + 6
    refused("no images", partition_binary.draw_picture, part, numbers, 3, str(tmp_path / "p.png"), "examples")
    partition_binary.draw_picture(part, numbers, 3, str(tmp_path / "skew.png"), "skew")
    assert len(np.unique(np.asarray(Image.open(tmp_path / "skew.png").convert("RGB")).reshape(-1, 3), axis=0)) > 20


def test_a_tail_and_shifted_examples_are_drawn(tmp_path):
    pictures = []
    for shift in ([], ["--client_shift=noise:std=1"]):
        options = ["--num_clients=6", "--imbalance=20", "--plot=examples", f"--out={tmp_path / 'p.png'}", *shift]
        ended = calls.called("partition", *options)
        assert ended.status == 0 and "examples per class min 7, max 140" in ended.out
        pictures.append(np.asarray(Image.open(tmp_path / "p.png").convert("L"), float))
    assert np.abs(pictures[1] - pictures[0]).mean() > 20
    for shift, plot, words in (("blur", "skew", "set --plot=examples"), ("blurr", "examples", "Did you mean 'blur'")):
        options = [f"--client_shift={shift}", f"--plot={plot}", f"--out={tmp_path / 'p.png'}"]
        calls.refused(tmp_path, words, "partition", *options)


def test_a_sequence_has_no_histogram(tmp_path):
    dataset = data.load("stackoverflow_synthetic:users=20,n=200")
    part = data.make_partition(dataset, "iid", 5, 0)
    refused("no class histogram", partition_binary.draw_picture, part, dataset, 5, str(tmp_path / "p.png"))
