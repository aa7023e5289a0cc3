"""The commands, tables and statements of the README and of the guide's pages that belong to it."""

import itertools
import json
import re
import shlex
import sys

import pytest

import fedwin
from experiments import readme
from experiments.papers import presets
from experiments.papers.remarks import lines_of
from fedwin import testing
from fedwin.algorithms import ALGORITHMS
from fedwin.data import DATASETS
from tests.programs import output_of

ROOT = readme.README.parent
TEXT = readme.README.read_text()
PAGES = {path: path.read_text() for path in sorted([readme.README, *readme.GUIDE.glob("*.md")])}
MOST_LINES = 150
# Page -> table whose numbers it has, and their rows, columns and variants: accuracies, or losses of three decimals.
METHODS = "fedavg scaffold_m fedhbm ghb fedmuon fedacg adabest_average mime scaffold"
COPIED = {
    "README.md": ("survey_table3", METHODS, "alpha0", "base wima100"),
    "diloco.md": ("survey_table4", "base wima10 ema decay", "nesterov nesterov_h5 nesterov_h100 mean", "base"),
    "feedback.md": ("survey_table6", "fedavg fedhbm scaffold", "w20 w100", "f0 f25 f50 f100"),
    "asynchronous.md": ("survey_table7", "alpha0_c10 alpha0_c50 alpha0_c200", "fedavg fedhbm", "base wima100"),
}
NUMBER = re.compile(r"(?<=[|/] )(?:\d\d\.\d|\d\.\d{3})\b|\d\d\.\d(?= /)")


@pytest.mark.parametrize("page", readme.PARTS)
def test_the_generated_parts_are_up_to_date(page):
    assert readme.generated(page) == (readme.GUIDE / page).read_text(), "run `python -m experiments.readme`"


def test_the_guide_has_every_data_set():
    rows = [line for line in PAGES[readme.GUIDE / "data.md"].splitlines() if line.startswith("| ")]
    for name in DATASETS:
        assert name.endswith("_synthetic") or any(re.search(f"`{name}[`:]", row) for row in rows), name


def test_the_readme_is_short():
    assert len(TEXT.splitlines()) <= MOST_LINES


def test_the_readme_or_the_guides_index_names_every_page_of_the_guide():
    """The site adds a page that neither names to its how-to guides."""
    index = (readme.GUIDE / "index.md").read_text()
    for path in PAGES:
        known = f"experiments/guide/{path.name})" in TEXT or f"]({path.name})" in index
        assert known or path.name in ("README.md", "index.md"), path.name


@pytest.mark.parametrize("page", COPIED)
def test_numbers_copied_by_hand_are_those_of_the_stored_tables(page):
    table, *names = COPIED[page]
    lines = lines_of(ROOT / f"experiments/results/tables/trend/{table}.csv")
    means = {frozenset([line["row"], line["column"], line["variant"]]): line["mean"] for line in lines}
    copied = NUMBER.findall(next(text for path, text in PAGES.items() if path.name == page))
    digits = 3 if page == "diloco.md" else 1
    assert copied == [f"{float(means[frozenset(w)]):.{digits}f}" for w in itertools.product(*map(str.split, names))]


def block(name, language):
    """Returns the code of a page that a comment with this name precedes."""
    pattern = rf"<!-- {name} -->\n```{language}\n(.*?)```"
    return next(found[1] for text in PAGES.values() if (found := re.search(pattern, text, re.S)))


def test_the_own_algorithm_is_short_and_passes_the_contract_suite(monkeypatch):
    """As far as compiling one loop goes; all of the suite, by the command that the README gives: slow."""
    code = block("own algorithm", "python")
    assert len(code.splitlines()) <= 40
    checked = []
    monkeypatch.setattr(testing, "check_algorithm", checked.append)
    exec(compile(code, "my_methods.py", "exec"), {"__name__": "__main__"})
    assert checked == [ALGORITHMS["fedema"]]
    problem = testing.classification(shuffle=False)
    testing.check_user_errors(checked[0], problem)
    bench = testing.Bench(checked[0], problem)
    testing.check_loop(bench)
    testing.check_padding(bench)


@pytest.mark.slow
def test_the_own_algorithm_passes_the_whole_contract_suite_and_trains(tmp_path):
    (tmp_path / "my_methods.py").write_text(block("own algorithm", "python"))
    output_of(sys.executable, "my_methods.py", cwd=tmp_path)
    program, *arguments = shlex.split(block("own algorithm command", "bash"))
    assert program == "fedwin"
    output_of(sys.executable, "-m", "experiments", *arguments, "--num_rounds=2", "--out_dir=run", cwd=tmp_path)
    config = json.loads(next((tmp_path / "run").rglob("config.json")).read_text())
    assert "fedema" in json.dumps(config) and (tmp_path / "run").is_dir()


@pytest.mark.slow
def test_the_fedjax_program_runs_and_learns(tmp_path):
    (tmp_path / "program.py").write_text(block("fedjax program", "python"))
    lines = output_of(sys.executable, "program.py", cwd=tmp_path).splitlines()
    assert len(lines) == 5 and float(lines[-1].rpartition(" ")[2]) > 0.8, lines


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_files_that_it_names_exist(page):
    for link in re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", PAGES[page]):
        assert (page.parent / link).exists(), link
    for preset in re.findall(r"--flagfile=([^\s`]+)", PAGES[page]):
        assert preset in presets.names() or preset.startswith("FOLDER/"), preset


def test_a_trained_model_and_clients_models_come_out_as_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = fedwin.Config(
        partition="shards:per_client=2", num_clients=20, model="digits_mlp:hidden=8", num_rounds=3,
        observe=["wima:window=50"], out_dir="runs/mine",
    )  # fmt: skip
    fedwin.run(config, quiet=True)
    known = {"fedwin": fedwin}
    exec(compile(block("getting the model out", "python"), "README.md", "exec"), known)
    assert known["logits"].shape == (5, 10) and len(known["clients"]) == 2
    assert len(capsys.readouterr().out.split()) >= 2
