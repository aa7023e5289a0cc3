"""`fedwin figure` and `fedwin curves`: the files that they write, and user errors as one line."""

import json
import shlex

import pytest

from tests.misuse import calls

REFUSED = [
    ("figure", "fedwin figure plane|line"),
    ("figure plain RUN", "plain | 'plane'"),
    ("figure plane", "name the runs"),
    ("figure plane RUN --clients=a,b,c", "--clients=a,b,c | integers"),
    ("figure line RUN@1 RUN@2 --out=gone/x.png", "no folder gone"),
    ("figure line RUN@1 RUN@2 --out=x.png --format=pdf", "--format=pdf"),
    ("figure line RUN@1 RUN@2 --labels=a,a", "1 different label(s) for 2"),
    ("figure factors bare", "bare has no checkpoint"),
    ("figure forgetting RUN --seed=3", "no checkpoint of seed 3"),
    ("figure factors RUN --clients=3", "fewer than two"),
    ("figure targets RUN", "--target=0.6"),
    ("figure targets RUN --target=0.1,nan", "--target=0.1,nan | finite numbers"),
    ("figure sweeps RUN", "--parameter"),
    ("figure labels iid --clients=1000", "0..99"),
    ("figure labels RUN --seed=3", "seed=3 | seeds 0, 4"),
    ("figure labels RUN iid --dataset=mnist_synthetic", "data sets are digits, mnist"),
    ("figure odd.json", "not a stored figure"),
    ("figure part.json", "all data of a figure"),
    ("figure gone.json", "can't be read"),
    ("curves", "name the runs"),
    ("curves RUN --out=", "out= | curves.png"),
    ("curves RUN --highest=inf", "highest must be finite"),
    ("curves RUN --out=bare/config.png", "replace bare/config.json | another --out"),
    ("figure line RUN@1 RUN@2 --out=own.svg", "replace own.json | another --out"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory, finished):
    folder = tmp_path_factory.mktemp("place")
    (folder / "RUN").symlink_to(finished)
    (folder / "folder").mkdir()
    (folder / "bare").mkdir()
    for name in ("config.json", "metrics.jsonl"):
        (folder / "bare" / name).write_bytes((finished / name).read_bytes())
    (folder / "own.json").write_text("{}")
    (folder / "odd.json").write_text('{"kind": "pie", "title": ""}')
    (folder / "part.json").write_text('{"kind": "plane", "title": ""}')
    return folder


@pytest.mark.parametrize("line, said", REFUSED, ids=lambda text: text[:40])
def test_bad_input_is_one_line_and_writes_nothing(line, said, place, monkeypatch):
    monkeypatch.chdir(place)
    calls.refused(place, said, *shlex.split(line))


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("figure plane RUN@1 RUN@2 RUN@3 RUN:wima2 --points=3 --examples=50", marks=pytest.mark.slow),
        "figure targets RUN bare --target=0.1,0.3 --readouts=model",
        "figure labels RUN",
        pytest.param("figure line RUN@1 RUN@3 --points=5", marks=pytest.mark.slow),
        pytest.param("figure factors RUN --rounds=2 --replicas=1 --clients=0,2", marks=pytest.mark.slow),
        pytest.param("figure forgetting RUN bare/../RUN --labels=a,b --round=1", marks=pytest.mark.slow),
        "figure sweeps RUN --parameter=partition.alpha",
        "curves RUN bare --readouts=wima2 --lowest=0 --format=png",
    ],
)
def test_a_picture_and_what_it_shows(line, place, tmp_path, monkeypatch):
    monkeypatch.chdir(place)
    arguments = shlex.split(line)
    ended = calls.called(*arguments, f"--out={tmp_path / 'one.png'}")
    assert ended.status == 0, ended.lines
    shown = json.loads((tmp_path / "one.json").read_text())
    assert shown["kind"] in arguments[:2] and "last 100 rounds" not in shown["title"]  # of a run of 4
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.json").rename("two.json")
    (tmp_path / "two").mkdir()  # not in the way of two.png
    assert calls.called("figure", "two.json").status == 0
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
