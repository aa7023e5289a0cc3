"""The viewer's page: its numbers are those of the runs, and no text of a run becomes a script."""

import base64
import hashlib
import html.parser
import json
import re
import shlex
import shutil

import numpy as np
import pytest

import fedwin
from experiments import records
from experiments.figures import style
from experiments.papers.catalogue import catalogue
from experiments.reproduction.numbers import values
from experiments.reproduction.results import stored as stored_results
from experiments.viewer import groups, page, runs
from fedwin.runs.metrics_log import read_lines
from tests.experiments.viewer.runs_to_view import stored, unpacked, viewed
from tests.refusals import refused
from tests.runs.disturbance import interrupted

HOSTILE = "<script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two seeds in a folder whose name tries to be a script: (directory, summary)."""
    directory = tmp_path_factory.mktemp("view") / HOSTILE / "run"
    config = fedwin.Config(
        partition="dirichlet:alpha=0.3", num_clients=6, clients_per_round=3, model="digits_mlp:hidden=8", client_lr=0.2,
        num_rounds=6, eval_every=1, final_evals=2, val_fraction=0.2, eval_clients="all", observe=["wima:window=2"],
        seeds=[0, 1], clock="bandwidth:up=1e5,down=1e6,spread=1", strategy="chunked:k=1", out_dir=str(directory),
    )  # fmt: skip
    return directory, fedwin.run(config, quiet=True)


@pytest.fixture(scope="module")
def data(trained):
    return viewed(trained[0].parent)


def test_the_table_has_the_numbers_of_the_summary(trained, data):
    (run,), (group,) = data["runs"], data["groups"]
    assert run["name"] == "run" and run["settings"]["state"] == "finished" and run["settings"]["round"] == 6
    assert group["readouts"] == ["model", "wima2"]
    for metric in ("accuracy", "loss"):
        factor = 100 if metric == "accuracy" else 1
        table = group["tables"][metric]
        for row in table["rows"]:
            cells = dict(zip(table["head"], row))
            expected = trained[1]["over_seeds"][cells["read-out"]][metric]
            found = [row[2], cells["± std"], cells["last"]]
            wanted = [factor * expected[name] for name in ("mean", "std", "final")]
            assert found == pytest.approx(wanted)


def test_the_curves_are_means_over_seeds_at_the_places_of_each_axis(trained, data):
    lines = read_lines(trained[0] / "metrics.jsonl")
    (curve,) = [c for c in data["runs"][0]["curves"] if (c["readout"], c["metric"]) == ("wima2", "accuracy")]
    seeds = 100 * np.array([[line["wima2"]["accuracy"] for line in lines if line["seed"] == seed] for seed in (0, 1)])
    assert curve["axes"]["round"] == list(range(7))
    np.testing.assert_allclose([curve["mean"], curve["std"]], [seeds.mean(0), seeds.std(0, ddof=1)], 1e-4, 1e-9)
    megabytes = [(line["bytes_down"] + line["bytes_up"]) / 1e6 for line in lines if line["seed"] == 0]
    np.testing.assert_allclose(curve["axes"]["bytes"], megabytes, rtol=1e-4)
    clock = np.mean([[line["simulated_seconds"] for line in lines if line["seed"] == seed] for seed in (0, 1)], 0)
    shown = [*curve["axes"]["simulated_seconds"], data["runs"][0]["settings"]["simulated_seconds"]]
    np.testing.assert_allclose(shown, [*clock, clock[-1]], rtol=1e-4)


def test_settings_command_and_histograms_are_those_of_the_run(trained, data):
    (run,) = data["runs"]
    assert run["settings"]["client_lr"] == 0.2 and "weighting" not in run["settings"]
    assert run["settings"]["partition.alpha"] == 0.3 and run["settings"]["clock.up"] == 1e5
    command = shlex.split(run["command"])
    assert command[:2] == ["fedwin", "train"] and f"--out_dir={trained[0]}" in command
    assert run["facts"]["fingerprint"] == trained[1]["fingerprint"]
    tables = [fedwin.client_table(trained[0], seed) for seed in (0, 1)]
    accuracies = np.concatenate([table["model.accuracy"] for table in tables]).astype(float)
    expected = np.bincount((accuracies * 20).astype(int).clip(0, 19), minlength=20) / len(accuracies)
    bins = [b for b in run["histograms"] if "model, 2 seeds\naccuracy (%) of clients, 12" in b["title"]]
    np.testing.assert_allclose([b["share"] for b in bins], 100 * expected)


def test_a_run_under_way_shows_what_it_has(tmp_path, trained):
    half = interrupted(shutil.copytree(trained[0], tmp_path / "half"), 2)
    lines = (half / "metrics.jsonl").read_text().splitlines()
    (half / "metrics.jsonl").write_text("\n".join(lines[:3]) + "\n")
    (run,) = viewed(tmp_path)["runs"]
    assert run["settings"]["state"] == "unfinished" and run["settings"]["round"] == 2
    accuracy = next(curve for curve in run["curves"] if (curve["readout"], curve["metric"]) == ("model", "accuracy"))
    assert accuracy["score"] == pytest.approx(100 * json.loads(lines[2])["model"]["accuracy"])
    (half / "summary.json").write_text("{")
    refused("half/summary.json is not this run's summary", runs.read, half, "half")
    (half / "link").symlink_to(trained[0])
    assert any(name.startswith("..") for name in runs.find([tmp_path]).values())


class Scripts(html.parser.HTMLParser):
    """Elements and their attributes, and the texts of scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self._inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag == "script"
        self.texts += [""] if self._inside else []

    def handle_endtag(self, tag):
        self._inside = False

    def handle_data(self, text):
        if self._inside:
            self.texts[-1] += text


def test_texts_of_runs_are_no_scripts_and_the_page_loads_nothing(tmp_path, trained):
    """In names of folders, read-outs, metrics, settings, titles: as data they are whole, as HTML they do not occur."""
    config = {"algorithm": f"fedavg:x={HOSTILE}"}
    path = stored(tmp_path / "</script><script>1" / "x.tar.xz", rounds=3, config=config,
                  readouts=("model", HOSTILE), metrics=("accuracy", HOSTILE))  # fmt: skip
    data = viewed(path, trained[0])
    text = page.build(data, f"Title {HOSTILE}", "window.library = '</script><!-- <script>'")
    parsed = Scripts(text)
    assert [attributes.get("id") for tag, attributes in parsed.tags if tag == "script"] == ["data", None, None]
    assert HOSTILE not in text and "owned'</script>" not in text and "&lt;script&gt;" in text  # the title
    assert unpacked(text) == data and str(data).count(HOSTILE) > 5
    assert not [tag for tag, attributes in parsed.tags if tag == "link" or {"src", "href"} & set(attributes)]
    (policy,) = [a["content"] for tag, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy"]
    digests = [base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in parsed.texts[1:]]
    assert re.findall(r"'sha256-([^']+)'", policy) == digests
    assert policy.startswith("default-src 'none'") and "http" not in policy


def test_long_curves_are_thinned_and_their_numbers_are_not(tmp_path):
    paths = [stored(tmp_path / f"{n}.tar.xz", rounds=3_000, seed=n) for n in range(2)]
    data = viewed(*paths)
    table = data["groups"][0]["tables"]["accuracy"]
    for run, row in zip(data["runs"], table["rows"]):
        best, place = (row[table["head"].index(name)] for name in ("best", "in round"))
        for curve in run["curves"]:
            rounds = curve["axes"]["round"]
            assert 300 < len(curve["mean"]) <= 500 and rounds[0] == 0 and rounds[-1] == 3_000
            if curve["metric"] == "accuracy":
                assert place in rounds and best == pytest.approx(max(curve["mean"]), rel=1e-3)


def test_every_chart_is_valid_vega_lite_and_labels_differ_by_color():
    vl_convert = pytest.importorskip("vl_convert", reason="needs pip install 'fedwin[view]'")
    charts = json.loads((page.FOLDER / "charts.json").read_text())
    for name in ("curves", "map", "clients"):
        assert vl_convert.vegalite_to_vega(charts[name] | {"config": charts["themes"][1]})["marks"]
    for labels in (["fedavg", "scaffold"], ["a", "b"], [f"{n}" for n in range(40)]):
        for dark in (False, True):
            assert len(set(page.colors(labels, dark))) == len(labels)
    dash = charts["curves"]["layer"][1]["encoding"]["strokeDash"]
    assert dash["legend"]["symbolSize"] ** 0.5 > max(map(sum, dash["scale"]["range"]))  # it shows patterns whole


def test_lines_are_seen_on_a_dark_page():
    """The contrast of WCAG 2.2, (L1 + 0.05) / (L2 + 0.05), of every color that a line may have."""
    linear = lambda part: np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    luminance = lambda color: linear(np.array([*bytes.fromhex(color[1:])]) / 255) @ (0.2126, 0.7152, 0.0722)
    back = re.findall(r"--back: (#\w{6})", (page.FOLDER / "page.css").read_text())[1]
    shown = [page.LIGHTER.get(color, color) for color in (*style.COLORS, *style.VARIATIONS)]
    for color in (*shown, *page.colors([*map(str, range(40))], dark=True)):
        assert (luminance(color) + 0.05) / (luminance(back) + 0.05) >= 4.5, color


def test_only_the_runs_of_one_sweep_have_a_heat_map_of_its_axes(tmp_path):
    paths = [stored(tmp_path / name, rounds=3) for name in ("a/1.tar.xz", "a/2.tar.xz", "b/3.tar.xz", "main.tar.xz")]
    grids = lambda: {group["name"]: group["grid"] for group in viewed(tmp_path, *paths)["groups"]}
    assert grids() == dict.fromkeys(("all runs", "a", "b", "top folder"), [])
    for folder, fingerprint in (("a", "0123456789abcdef"), ("b", "of another run")):
        text = f"winner,client_lr,algorithm,readout,fingerprint\n1,0.1,fedavg,model,{fingerprint}\n"
        (tmp_path / folder / "sweep.csv").write_text(text)
    assert grids() == dict.fromkeys(("all runs", "a"), ["client_lr", "algorithm"]) | {"b": [], "top folder": []}
    shutil.copy(tmp_path / "a" / "sweep.csv", tmp_path / "b")
    assert grids()["all runs"] == [] != grids()["b"]


def test_a_seed_that_diverged_has_ended_and_counts_in_no_mean(tmp_path):
    record = records.read(stored(tmp_path / "a.tar.xz", rounds=20, seeds=(0, 1)))
    lines = [line for line in record.lines if line["seed"] == 0 or line["round"] < 9]
    ended = records.Record(record.about, lines, {"seeds": {"1": {"diverged_at": 9}}})
    last = [100 * line["model"]["accuracy"] for line in lines[11:21]]
    assert runs.of_record(ended, "a").curves[0]["final"] == [pytest.approx(np.mean(last)), None]
    lost = records.Record(record.about, lines, {"seeds": {"0": {"diverged_at": 21}, "1": {"diverged_at": 9}}})
    assert [runs.of_record(each, "a").curves[0]["score"] is None for each in (ended, lost)] == [False, True]


def test_stored_results_are_shown_as_their_table_shows_them(monkeypatch):
    item = catalogue()["wima/table4"]
    monkeypatch.setattr(groups, "catalogue", lambda: {item.name: item})
    shown, (group,) = groups.kept()
    assert group.heading == "wima" and group.name == "wima/table4 (trend)"
    expected = [value for value in values(stored_results("trend"), item) if value.by_seed]
    assert [row[3] for row in group.numbers] == [value.mean for value in expected]
    assert len({entry.run for entry in group.entries}) == len(shown) > 1
    by_name = {run.name: run for run in shown}
    for entry in group.entries:
        assert any(curve["readout"] == entry.readout for curve in by_name[entry.run].curves)
    assert all("fedwin train" in run.command for run in shown)


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(page.importlib.util, "find_spec", lambda name: None)
    refused(r"vl-convert-python.*pip install 'fedwin\[view\]'", page.library)
