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
from experiments.papers.catalogue import catalogue
from experiments.reproduction.store import StoredResults
from experiments.reproduction.values import values
from experiments.viewer import groups, page, runs
from fedwin.errors import UserError
from fedwin.runs.directory import verified_lines
from tests.experiments.viewer.runs_to_view import stored

HOSTILE = "<script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two seeds in a folder whose name tries to be a script: (directory, summary)."""
    directory = tmp_path_factory.mktemp("view") / HOSTILE / "run"
    config = fedwin.Config(
        partition="dirichlet:alpha=0.3",
        num_clients=6,
        clients_per_round=3,
        model="digits_mlp:hidden=8",
        client_lr=0.2,
        num_rounds=6,
        eval_every=1,
        final_evals=2,
        val_fraction=0.2,
        eval_clients="all",
        observe=["wima:window=2"],
        seeds=[0, 1],
        clock="bandwidth:up=1e5,down=1e6",
        strategy="chunked:k=1",
        out_dir=str(directory),
    )
    return directory, fedwin.run(config, quiet=True)


def viewed(*paths):
    """The data of the page of some folders."""
    found = [runs.read(path, name) for path, name in runs.find(paths).items()]
    return page.payload(found, groups.of_folders(found))


@pytest.fixture(scope="module")
def data(trained):
    return viewed(trained[0].parent)


def test_the_table_has_the_numbers_of_the_summary(trained, data):
    (run,) = data["runs"]
    assert run["name"] == "run" and run["state"] == "finished" and run["numbers"]["seeds"] == [0, 1]
    compared = 0
    for curve in run["curves"]:
        expected = trained[1]["over_seeds"][curve["readout"]][curve["metric"]]
        assert curve["final"] == {key: expected[key] for key in ("mean", "std", "seeds")}
        assert curve["last"] == expected["final"]
        compared += 1
    assert compared >= 4


def test_the_curves_are_means_over_seeds_at_the_places_of_each_axis(trained, data):
    lines = verified_lines(trained[0])
    (run,) = data["runs"]
    (curve,) = [each for each in run["curves"] if (each["readout"], each["metric"]) == ("wima2", "accuracy")]
    seeds = [[line["wima2"]["accuracy"] for line in lines if line["seed"] == seed] for seed in (0, 1)]
    assert run["rounds"] == list(range(7)) and curve["evaluations"] == 7
    np.testing.assert_allclose(curve["mean"], np.mean(seeds, 0), rtol=1e-4)
    np.testing.assert_allclose(curve["std"], np.std(seeds, 0, ddof=1), rtol=1e-4, atol=1e-9)
    megabytes = [(line["bytes_down"] + line["bytes_up"]) / 1e6 for line in lines if line["seed"] == 0]
    np.testing.assert_allclose(run["axes"]["bytes"], megabytes, rtol=1e-4)
    clock = np.mean([[line["simulated_seconds"] for line in lines if line["seed"] == seed] for seed in (0, 1)], 0)
    np.testing.assert_allclose(run["axes"]["simulated_seconds"], clock, rtol=1e-4)
    assert run["numbers"]["megabytes"] == pytest.approx(megabytes[-1])


def test_the_command_trains_the_run_again_and_the_fields_are_those_that_were_set(trained, data):
    (run,) = data["runs"]
    assert run["config"]["client_lr"] == 0.2 and "weighting" not in run["config"]
    assert run["parameters"]["partition.alpha"] == 0.3 and run["parameters"]["clock.up"] == 1e5
    command = shlex.split(run["command"])
    assert command[:2] == ["fedwin", "train"] and f"--out_dir={trained[0]}" in command
    assert run["facts"]["fingerprint"] == trained[1]["fingerprint"]


def test_the_histogram_counts_every_client_of_both_seeds(trained, data):
    tables = [fedwin.client_table(trained[0], seed) for seed in (0, 1)]
    (histogram,) = [h for h in data["runs"][0]["histograms"] if (h["readout"], h["metric"]) == ("model", "accuracy")]
    accuracies = np.concatenate([table["model.accuracy"] for table in tables]).astype(float)
    expected = [((accuracies * 20).astype(int).clip(0, 19) == number).sum() for number in range(20)]
    assert histogram["counts"] == expected and histogram["clients"] == len(accuracies) == 12
    assert histogram["mean"] == pytest.approx(accuracies.mean())


def test_a_run_under_way_shows_what_it_has(tmp_path, trained):
    shutil.copytree(trained[0], tmp_path / "half")
    (tmp_path / "half" / "summary.json").unlink()
    shutil.rmtree(tmp_path / "half" / "checkpoints")
    lines = (tmp_path / "half" / "metrics.jsonl").read_text().splitlines()
    (tmp_path / "half" / "metrics.jsonl").write_text("\n".join(lines[:3]) + "\n")
    (run,) = viewed(tmp_path)["runs"]
    assert run["state"] == "unfinished" and run["numbers"]["round"] == 2 and run["rounds"] == [0, 1, 2]
    curve = run["curves"][0]
    assert curve["final"] is None and curve["last"] == json.loads(lines[2])["model"][curve["metric"]]


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


def test_texts_of_runs_are_no_scripts(tmp_path, trained):
    """In names of folders, read-outs, metrics, settings, titles: as data they are whole, as HTML they do not occur."""
    config = {"algorithm": f"fedavg:x={HOSTILE}"}
    path = stored(tmp_path / "</script><script>1" / "x.jsonl.gz", rounds=3, config=config,
                  readouts=("model", HOSTILE), metrics=("accuracy", HOSTILE))  # fmt: skip
    data = viewed(path, trained[0])
    text = page.build(data, f"Title {HOSTILE}", "window.library = '</script><!-- <script>'")
    parsed = Scripts(text)
    assert [attributes.get("id") for tag, attributes in parsed.tags if tag == "script"] == ["data", None, None]
    assert HOSTILE not in text and "owned'</script>" not in text
    assert "&lt;script&gt;" in text  # the title
    again = page.unpacked(text)
    assert again == data
    names = str(again)
    assert str(path.parent.name) in names and names.count(HOSTILE) > 5


def test_the_page_loads_nothing_and_allows_its_own_scripts_alone(data):
    text = page.build(data, "Title", "window.library = 1")
    parsed = Scripts(text)
    assert not [tag for tag, attributes in parsed.tags if tag == "link" or {"src", "href"} & set(attributes)]
    (policy,) = [a["content"] for tag, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy"]
    digests = [base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in parsed.texts[1:]]
    assert re.findall(r"'sha256-([^']+)'", policy) == digests
    assert (
        policy.startswith("default-src 'none'") and "http" not in policy and "unsafe-inline' 'unsafe-eval" not in policy
    )


def test_long_curves_are_thinned_and_their_numbers_are_not(tmp_path):
    paths = [stored(tmp_path / f"{n}.jsonl.gz", rounds=3_000, seed=n) for n in range(2)]
    data = viewed(*paths)
    assert data["points"] == 500
    for run in data["runs"]:
        for curve in run["curves"]:
            assert 300 < len(curve["mean"]) <= 500 and curve["evaluations"] == 3_001
            finest = max(max(curve["mean"]), -min(curve["mean"]))
            assert curve["highest"][0] == pytest.approx(max(curve["mean"]), abs=1e-4 * finest)
            rounds = [run["rounds"][place] for place in curve.get("at", range(len(run["rounds"])))]
            assert rounds[0] == 0 and rounds[-1] == 3_000 and curve["highest"][1] in rounds


def test_stored_results_are_shown_as_their_table_shows_them(monkeypatch):
    item = catalogue()["wima/table4"]
    monkeypatch.setattr(groups, "catalogue", lambda: {item.name: item})
    shown, (group,) = groups.kept()
    assert group.heading == "wima" and group.name == "wima/table4 (trend)"
    expected = [value for value in values(StoredResults("trend"), item, "trend") if value.by_seed]
    assert [row[3] for row in group.numbers] == [value.mean for value in expected]
    assert len({entry.run for entry in group.entries}) == len(shown) > 1
    by_name = {run.name: run for run in shown}
    for entry in group.entries:
        assert any(curve.readout == entry.readout for curve in by_name[entry.run].curves)
    assert all("fedwin train" in run.command for run in shown)


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(page.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"vl-convert-python.*pip install 'fedwin\[view\]'"):
        page.library()
