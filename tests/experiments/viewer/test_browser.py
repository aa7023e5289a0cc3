"""The viewer's page in headless Chromium: it opens fast and without errors, and its controls work."""

import pytest

from experiments.viewer import groups, page, runs
from tests.experiments.viewer import browser
from tests.experiments.viewer.runs_to_view import stored

pytest.importorskip("vl_convert", reason="needs pip install 'fedwin[view]'")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(browser.MISSING), reason=browser.MISSING)]

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
MOST_SECONDS = 8
MOST_BYTES = 5_000_000


@pytest.fixture(scope="module")
def bundle():
    return page.library()


@pytest.fixture(scope="module")
def chromium():
    with browser.started() as session:
        session.size(1400, 900)
        yield session


def written(path, folder, bundle, reload=0):
    """Writes the page of a folder of stored results; returns the path."""
    paths = sorted(folder.glob("*.tar.xz"))
    found = [runs.read(each, name) for each, name in runs.find(paths).items()]
    path.write_text(page.build(page.payload(found, groups.of_folders(found), reload=reload), "Runs", bundle))
    return path


@pytest.fixture(scope="module")
def few(tmp_path_factory, bundle):
    """A page of a grid of six runs, of three seeds and two read-outs."""
    folder = tmp_path_factory.mktemp("few")
    for number, (rate, epochs) in enumerate((rate, epochs) for rate in (0.01, 0.1, 1.0) for epochs in (1, 5)):
        config = {"client_lr": rate, "local_epochs": epochs}
        path = folder / f"run{number}.tar.xz"
        stored(path, rounds=30, seeds=(0, 1, 2), config=config, readouts=("model", "wima5"), seed=number)
    return written(folder / "few.html", folder, bundle)


def labels(chromium):
    return {label for label, _ in chromium.run("return window.fedwin.shown()")}


def choose(chromium, name, value):
    """Sets a control of the page and waits for its charts."""
    chromium.run(
        "const c = document.getElementById(arguments[0]); c.value = arguments[1]; c.dispatchEvent(new Event('change'))",
        name,
        value,
    )
    chromium.settle()


def test_it_opens_without_messages_in_both_color_schemes(chromium, few, tmp_path):
    backgrounds = set()
    for scheme in ("light", "dark"):
        chromium.scheme(scheme)
        for width in (1400, 400):
            chromium.size(width, 900)
            chromium.open(few)
            assert chromium.errors() == []
            assert chromium.run("return document.getElementById('problem').textContent") == ""
            assert chromium.run("return document.documentElement.scrollWidth") <= width
            assert len(chromium.screenshot(tmp_path / f"{scheme}{width}.png")) > 20_000
        backgrounds.add(chromium.run("return getComputedStyle(document.body).backgroundColor"))
        for name in ("curves", "map"):
            drawn = "const c = document.querySelector(arguments[0] + ' canvas'); return c.width * c.height"
            assert chromium.run(drawn, f"#{name}") > 10_000
    chromium.scheme("light")
    chromium.size(1400, 900)
    assert len(backgrounds) == 2


def test_filter_order_and_run_of_the_table(chromium, few):
    chromium.open(few)
    rows = "return [...document.querySelectorAll('#table tr')].slice(1).map((row) => row.children[0].textContent)"
    for text, expected in (
        ("client_lr=0.1", {"run2", "run3"}),
        ("local_epochs>1 client_lr<1", {"run1", "run3"}),
        ("run4", {"run4"}),
        ("readout=wima5 local_epochs!=5", {"run0", "run2", "run4"}),
        ("accuracy>1000", set()),
        ("", {f"run{n}" for n in range(6)}),
    ):
        choose(chromium, "filter", text)
        assert {name.partition(".")[0] for name in chromium.run(rows)} == expected, text
        assert {name.partition(".")[0] for name in labels(chromium)} == expected, text
    column = "const n = [...document.querySelectorAll('#table th')].findIndex((h) => h.textContent === 'best');"
    chromium.run(f"{column} document.querySelectorAll('#table th')[n].click()")
    chromium.settle()
    cells = "[...document.querySelectorAll('#table tr')].slice(1).map((row) => Number(row.children[n].title))"
    values = chromium.run(f"{column} return {cells}")
    assert values == sorted(values, reverse=True) and len(set(values)) == 12
    chromium.run("document.querySelectorAll('#table tr')[1].children[0].click()")
    chromium.settle()
    config = "return [...document.querySelectorAll('#config tr')].map((row) => row.children[0].textContent)"
    assert {"eval_every", "num_rounds", "seeds"} <= set(chromium.run(config))
    assert "0123456789abcdef" in chromium.run("return document.getElementById('facts').textContent")
    # What is shown is part of the address.
    choose(chromium, "filter", "run2")
    chromium.call("POST", "refresh")
    chromium.ready()
    assert labels(chromium) == {"run2.tar.xz"} and chromium.errors() == []


def test_texts_of_runs_are_shown_and_never_run(chromium, tmp_path, bundle):
    path = tmp_path / "a.tar.xz"
    stored(path, rounds=3, config={"algorithm": HOSTILE}, readouts=("model", HOSTILE), metrics=("accuracy", HOSTILE))
    found = [runs.read(path, HOSTILE)]
    group = groups.of_folders(found)[0]
    numbers, claims = [(HOSTILE, HOSTILE, HOSTILE, 1.0, None, 1, HOSTILE)], [(HOSTILE, HOSTILE)]
    other = groups.Group(HOSTILE, HOSTILE, HOSTILE, group.entries, numbers, claims)
    out = tmp_path / "hostile.html"
    out.write_text(page.build(page.payload(found, [group, other], [HOSTILE]), HOSTILE, bundle))
    chromium.open(out)
    choose(chromium, "metric", HOSTILE)
    choose(chromium, "group", HOSTILE)
    chromium.run("document.querySelectorAll('#table tr')[1].children[0].click()")
    chromium.settle()
    assert chromium.run(
        "return [document.title, document.querySelectorAll('script').length, document.images.length]"
    ) == [HOSTILE, 3, 0]
    assert HOSTILE in chromium.run("return document.getElementById('table').textContent")
    assert chromium.errors() == []


def test_a_thousand_curves_open_fast_and_fit_a_small_file(chromium, tmp_path, bundle):
    for number in range(1_000):
        config = {"client_lr": 0.001 * (1 + number % 40), "local_epochs": 1 + number // 40}
        stored(tmp_path / f"run{number:04}.tar.xz", rounds=160, config=config, seed=number)
    out = written(tmp_path / "many.html", tmp_path, bundle)
    seconds = []
    for _ in range(3):
        chromium.call("POST", "url", {"url": "about:blank"})
        # Seconds of the processor, which other processes of the machine do not change.
        chromium.command("Performance.enable", timeDomain="threadTicks")
        chromium.open(out)
        metrics = chromium.command("Performance.getMetrics")["metrics"]
        seconds.append(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))
    print(f"\n1,000 curves: {min(seconds):.2f} s, {out.stat().st_size / 1e6:.2f} MB")
    assert len(labels(chromium)) == 1_000 and chromium.errors() == []
    assert 0 < min(seconds) < MOST_SECONDS and out.stat().st_size < MOST_BYTES
