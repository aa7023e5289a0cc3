"""The viewer's page in headless Chromium: it opens without messages, and its controls work."""

import html
import json
import re
import shutil
import subprocess
import urllib.parse

import pytest

from experiments.viewer import groups, page, runs
from tests.experiments.viewer.runs_to_view import stored, viewed

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytest.importorskip("vl_convert", reason="needs pip install 'fedwin[view]'")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")]

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def bundle():
    return page.library()


@pytest.fixture(scope="module")
def few(tmp_path_factory, bundle):
    """A page of a grid of six runs, of three seeds and two read-outs."""
    folder = tmp_path_factory.mktemp("few")
    for number, (rate, epochs) in enumerate((rate, epochs) for rate in (0.01, 0.1, 1.0) for epochs in (1, 5)):
        config = {"client_lr": rate, "local_epochs": epochs}
        path = folder / f"run{number}.tar.xz"
        stored(path, rounds=30, seeds=(0, 1, 2), config=config, readouts=("model", "wima5"), seed=number)
    (folder / "sweep.csv").write_text("winner,client_lr,local_epochs,readout,fingerprint\n1,,,model,0123456789abcdef\n")
    out = folder / "few.html"
    out.write_text(page.build(viewed(*sorted(folder.glob("*.tar.xz"))), "Runs", bundle))
    return out


def opened(path, **state):
    """Opens a page with controls in a state, without a network; returns its elements as HTML."""
    with_state = f"{path.resolve().as_uri()}#{urllib.parse.quote(json.dumps(state))}"
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command += [f"--user-data-dir={path.parent / 'profile'}", "--proxy-server=127.0.0.1:9", "--enable-logging=stderr"]
    command += ["--virtual-time-budget=60000", "--dump-dom", with_state]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert "CONSOLE" not in done.stderr, done.stderr[-2000:]
    dom = done.stdout.partition('<script id="data"')[0]
    assert re.search(r'<p id="problem" role="status"></p>', dom)
    assert 'data-ready="' in done.stdout
    return dom


def cells(dom, table):
    """Returns the texts of a table, row by row."""
    inside = re.search(rf'<table id="{table}">(.*?)</table>', dom, re.S)[1]
    rows = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.S) for row in re.findall(r"<tr>(.*?)</tr>", inside, re.S)]
    return [[html.unescape(cell) for cell in row] for row in rows]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("client_lr=0.1", "23"),
        ("local_epochs>1 client_lr<1", "13"),
        ("run4", "4"),
        ("readout=wima5 local_epochs!=5", "024"),
        ("accuracy>1000", ""),
        ("MB>0 run4", "4"),
    ],
)
def test_the_filter_is_words_and_conditions(few, text, expected):
    dom = opened(few, filter=text)
    assert {row[0][3] for row in cells(dom, "table")[1:]} == set(expected)


def test_charts_table_and_a_run_are_shown_in_the_order_of_the_address(few):
    dom = opened(few, sort="best", down=True, run="run2.tar.xz", x="bytes", log=True, smooth="5")
    head, *rows = cells(dom, "table")
    best = [float(row[head.index("best")]) for row in rows]
    assert best == sorted(best, reverse=True) and len(rows) == 12
    assert {"eval_every", "num_rounds", "seeds"} <= {row[0] for row in cells(dom, "config")}
    assert ["fingerprint", "0123456789abcdef"] in cells(dom, "facts")
    for chart in ("curves", "map"):
        assert re.search(rf'<div id="{chart}"[^>]*>.*?<canvas[^>]* width="[1-9]\d\d', dom, re.S)


def test_texts_of_runs_are_shown_and_never_run(tmp_path, bundle):
    path = tmp_path / "a.tar.xz"
    stored(path, rounds=3, config={"algorithm": HOSTILE}, readouts=("model", HOSTILE), metrics=("accuracy", HOSTILE))
    found = [runs.read(path, HOSTILE)]
    group = groups.of_folders(found)[0]
    numbers, claims = [(HOSTILE, HOSTILE, HOSTILE, 1.0, None, 1, HOSTILE)], [(HOSTILE, HOSTILE)]
    other = groups.Group(HOSTILE, HOSTILE, HOSTILE, group.entries, numbers, claims)
    out = tmp_path / "hostile.html"
    out.write_text(page.build(page.payload(found, [group, other], [HOSTILE]), HOSTILE, bundle))
    dom = opened(out, group=HOSTILE, metric=HOSTILE, run=HOSTILE)
    assert f"<title>{html.escape(HOSTILE, quote=False)}</title>" in dom and "<img" not in dom and "<script" not in dom
    assert HOSTILE in cells(dom, "table")[1] and HOSTILE in cells(dom, "claims")[1]
