"""A repository to publish: workflows whose commands exist, no placeholder in a release, the paper's numbers."""

import itertools
import os
import re
import subprocess

from experiments import check, cli
from fedwin.registry import papers


def test_the_commands_of_the_workflows_exist():
    assert {"readthedocs", "wheel", "docs"} < check.jobs().keys()
    commands = list(itertools.chain(*check.jobs().values()))
    subprocess.run(["bash", "-n", "-c", "\n".join(commands)], check=True)
    setup = (check.ROOT / "setup.cfg").read_text()
    for command in commands:
        assert set(re.findall(r"experiments\.(\w+)", command)) <= set(cli.ALL)
        assert all(f"\n{extra} =\n" in setup for extra in re.findall(r"'\.\[(\w+)\]'", command))
        assert not command.startswith(".") or os.access(check.ROOT / command, os.X_OK)


def test_a_release_is_refused_for_placeholders_and_another_date(tmp_path):
    assert any(line.startswith("setup.cfg:") and "github.com/OWNER" in line for line in check.unreleased())
    for path in itertools.chain(*(check.ROOT.glob(pattern) for pattern in (*check.PUBLISHED, "CHANGELOG.md"))):
        copy = tmp_path / path.relative_to(check.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(re.sub(r"\bOWNER\b", "someone", path.read_text()).replace("## Unreleased\n", ""))
    assert check.unreleased(tmp_path) == []
    changes, date = tmp_path / "CHANGELOG.md", "date-released: 2020-01-01\n"
    for path, text in ((changes, "## Unreleased\n" + changes.read_text()), (tmp_path / "CITATION.cff", date)):
        path.write_text(text)
        assert [line.partition(":")[0] for line in check.unreleased(tmp_path)] == ["CHANGELOG.md"]


def test_the_paper_cites_known_papers_and_has_with_the_readme_the_numbers_of_results_and_notes():
    text = (check.ROOT / "experiments" / "paper" / "paper.md").read_text()
    notes = (check.ROOT / "BUILD_NOTES.md").read_text().splitlines()
    readme = (check.ROOT / "README.md").read_text()
    verdicts = re.findall(r"^\| \[.+?\) \| (\d+) \| (\d+) \| (\d+) \|", readme, re.M)
    results = (check.ROOT / "experiments" / "RESULTS.md").read_text()
    copied = re.findall(r"^\| \[.+?\]\(experiments/(.+) \|$", readme, re.M)
    assert len(copied) == len(verdicts) == 4 and all(f"]({line} | " in results for line in copied)
    decided = re.findall(r"^\| [^\[|]+ \| (\d+) \| (\d+) \| \d+ \|$", results, re.M)
    sentence = r"Of the\s+(\d+)\s+decided.+?,\s+(\d+)\s+remain.+?\s+and\s+(\d+)\s+when"
    said = [re.search(sentence, of, re.S).groups() for of in (readme, text)]
    assert said == 2 * [(decided[-1][0], str(sum(int(holm) for _, holm in decided[:4])), decided[-1][1])]
    for row in re.findall(r"^\| .+ \| ([\d.,]+) \| (\d+ %) \| .+ ([\d.,]+) \| ([\d.]+) \|$", readme, re.M):
        assert any(re.search(r"\| {} \| {} \| .*\b{} \({}\)".format(*row), line) for line in notes), row
    totals = re.search(r"(\d+) hold, (\d+) are contradicted and (\d+) are open", text).groups()
    assert totals == tuple(str(sum(map(int, column))) for column in zip(*verdicts, strict=True))
    lines = len((check.ROOT / "experiments" / "reading.py").read_text().splitlines())
    assert f"a program of {lines} lines" in text and set(re.findall(r"@(\w+)", text)) <= set(papers.shipped())
    rows = re.findall(r"^\| ([\w-]+: .+?) \| (.+) \|$", text, re.M)
    assert len(rows) == 6
    for work, numbers in rows:
        (noted,) = (line for line in notes if line.startswith(f"| {work} ("))
        assert numbers.split(" | ") == [cell.split()[0] for cell in noted.split("|")[2:9]]
