"""The subcommands `fedwin prepare` and `fedwin partition`."""

import functools

import numpy as np
import pytest

from experiments import partition as partition_binary
from fedwin import data
from fedwin.data import catalog
from fedwin.errors import UserError
from tests.misuse.calls import called


def test_the_list_names_every_data_set():
    lines = catalog.listing().splitlines()
    assert [line.split()[0] for line in lines] == sorted(data.DATASETS)
    assert any("by hand" in line and line.startswith("pacs ") for line in lines)


def test_the_binaries_exit_with_one_line_on_bad_input(tmp_path):
    ended = called("prepare", "--dataset=cifar1O", f"--data_dir={tmp_path}")
    assert ended.status == 2 and len(ended.lines) == 1 and "Did you mean 'cifar10'" in ended.lines[0]
    ended = called("partition", "--partition=dirichlet:alpha=-1", f"--out={tmp_path / 'p.png'}")
    assert ended.status == 2 and len(ended.lines) == 1 and "alpha=-1" in ended.lines[0]


@pytest.mark.parametrize("kind", ["bubbles", "bars"])
def test_the_picture_is_drawn_and_the_report_complete(tmp_path, kind):
    from PIL import Image

    dataset = data.load("digits")
    part = data.make_partition(dataset, "dirichlet:alpha=0.5", 20, 0)
    partition_binary.draw_picture(part, dataset, kind, 12, str(tmp_path / "p.png"))
    picture = np.asarray(Image.open(tmp_path / "p.png").convert("RGB"))
    assert picture.shape[0] > 300 and picture.shape[1] > 500
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 20  # colors of ten classes and their edges
    text = partition_binary.describe(part)
    for words in (
        "clients            20",
        "1,400 assigned, 0 left out",
        "min 70",
        "classes per client",
        "share of top class",
    ):
        assert words in text


def test_what_cannot_be_drawn_is_said(tmp_path):
    dataset = data.load("stackoverflow_synthetic:users=20,n=200")
    draw = functools.partial(
        partition_binary.draw_picture, data.make_partition(dataset, None, None, 0), dataset, "bars", 10
    )
    with pytest.raises(UserError, match="no class histogram"):
        draw(str(tmp_path / "p.png"))
    digits = data.load("digits")
    with pytest.raises(UserError, match="cannot be written"):
        partition_binary.draw_picture(
            data.make_partition(digits, "iid", 5, 0), digits, "bars", 5, str(tmp_path / "no" / "p.png")
        )
