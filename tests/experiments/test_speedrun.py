"""Records of the speedrun: their flags are accepted, their statistics are those of their curves; rules for entries."""

import dataclasses
import json

import pytest

from experiments import records, speedrun
from fedwin import plugins
from fedwin.runs.choices import check_choices
from fedwin.runs.run import readout_names
from tests.misuse import calls
from tests.misuse.calls import called
from tests.refusals import refused

STORED = speedrun.stored()
GHB = speedrun.FOLDER / "ghb"
BETTER = (280, 380, 300, 300, 340)
# What an entry may change.
FREE = ("--num_rounds=400", "--local_epochs=2", "--data_dir=DIR")


def write_entry(folder, rounds=BETTER, every=20, flags=(), device="cpu x2", seconds=60.0, finished=True, **config):
    """Writes an entry: GHB's flags, and packed runs whose model has 50 % from a round on, and once by luck before."""
    (folder / "run.flags").write_text("\n".join([(GHB / "run.flags").read_text(), *FREE, *flags]))
    record = records.read(next(GHB.glob("*.tar.xz")))
    lines = []
    for seed, reached in enumerate(rounds):
        for round in range(0, 401, every):
            accuracy = 0.5 if round >= reached - 40 else 0.6 * (round == 100)
            sent = {"bytes_up": 1e6 * round, "bytes_down": 1e6 * round}
            lines.append({"seed": seed, "round": round, "model": {"accuracy": accuracy}, **sent})
    about = {**record.about, "device": device}
    about["config"] = {**record.about["config"], "num_rounds": 400, "local_epochs": 2.0, **config}
    ends = {"seeds": {str(seed): {"wall_seconds": seconds} for seed in range(len(rounds))}}
    records.write(folder / "runs.tar.xz", records.Record(about, lines, ends if finished else None))


@pytest.mark.parametrize("name", STORED)
def test_a_record_has_valid_flags_and_the_statistics_of_its_curves(name):
    entry, config = STORED[name], speedrun.config_of(speedrun.FOLDER / name / "run.flags")
    plugins.load(config.imports)
    check_choices(config)
    any_data = {"dataset": "cifar10_synthetic:n=1000,tests=20", "eval_examples": 0, "seeds": [0]}
    assert entry["readout"] in readout_names(dataclasses.replace(config, **any_data))
    images = lambda folder: {records.read(path).stored["data"]["checksum"] for path in folder.glob("*.tar.xz")}
    assert images(speedrun.FOLDER / name) == images(GHB) and len(images(GHB)) == 1
    again = speedrun.statistics(speedrun.FOLDER / name, entry["readout"])
    assert again == {key: entry[key] for key in again}
    for cost, beaten in entry["beats"].items():
        order = speedrun.holders(STORED, cost)
        verdict = speedrun.judged(entry, {other: STORED[other] for other in order[: order.index(name)]})[cost]
        assert verdict["wins"] and verdict["record"] == beaten["record"]
        assert verdict["p"] == (beaten["p"] and pytest.approx(beaten["p"]))


def test_a_better_entry_is_kept_as_a_record(tmp_path, monkeypatch):
    for name in STORED:
        (tmp_path / name).symlink_to(speedrun.FOLDER / name)
    monkeypatch.setattr(speedrun, "FOLDER", tmp_path)
    (tmp_path / "mine").mkdir()
    write_entry(tmp_path / "mine")
    assert "a new record, p = 0.0019 against ghb" in called("speedrun", "check", str(tmp_path / "mine"), "--keep").out
    kept = json.loads((tmp_path / "mine" / "record.json").read_text())
    assert tuple(kept["costs"]["rounds"].values()) == BETTER and kept["missed"] == []
    assert kept["costs"]["megabytes"]["0"] == 560 and kept["beats"].keys() == {"rounds"}
    assert speedrun.holders(speedrun.stored(), "rounds")[-1] == "mine" and "ghb:tau=10 model" in called("speedrun").out
    monkeypatch.setattr(records, "run_directories", lambda folder: [folder / "trained_again"])
    refused("mine has packed runs", speedrun.keep, tmp_path / "mine", kept, speedrun.judged(kept, STORED))


NO_RECORD = {
    "p = 0.19 against ghb": (320, 400, 380, 340, 380),
    "p = 0.0019 against ghb, whose mean is not above this one": (*BETTER, *8 * (400,)),
    "1 of 5 seeds miss the target": (40, 40, 40, 40, 1000),
}


@pytest.mark.parametrize("reason", NO_RECORD)
def test_an_entry_that_is_no_record_is_not_kept(tmp_path, reason):
    write_entry(tmp_path, NO_RECORD[reason])
    ended = called("speedrun", "check", str(tmp_path), "--keep")
    assert f"rounds: no record, {reason}" in ended.out and ended.status == 2 and "is not a record" in ended.lines[0]
    assert not (tmp_path / "record.json").exists()


BROKEN = {
    "clients_per_round=20 changes the task, which has 10": {"flags": ["--clients_per_round=20"]},
    "unknown flag --client_rl": {"flags": ["--client_rl=1"]},
    "trained with client_lr=0.07, not 0.05, as run.flags says": {"client_lr": 0.07},
    "trained with init_from=good, not , as run.flags says": {"init_from": "good"},
    "the seeds 0, 1, 2, 3; train 0 to 4": {"rounds": BETTER[:4]},
    "seed 0 is not evaluated every 20 rounds": {"every": 50},
    "60 s on gpu x1; the limit": {"device": "gpu x1"},
    "2000 s on cpu x2; the limit is 1800 s": {"seconds": 2000.0},
    "has not finished": {"finished": False},
}


@pytest.mark.parametrize("message", BROKEN)
def test_an_entry_that_breaks_a_rule_is_one_line(tmp_path, message):
    write_entry(tmp_path, **BROKEN[message])
    calls.refused(tmp_path, message, "speedrun", "check", str(tmp_path))


def test_arguments_that_make_no_sense_are_one_line():
    calls.refused(GHB, "`fedwin speedrun check FOLDER` checks an entry", "speedrun", "nothing")
    calls.refused(GHB, "nowhere has no run.flags", "speedrun", "check", "nowhere")
    calls.refused(GHB, "readout=wima7 must be one of", "speedrun", "check", str(GHB), "--readout=wima7")
