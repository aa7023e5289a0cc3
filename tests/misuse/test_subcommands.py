"""Errors of the other subcommands, reported before the first run, benchmark case or picture."""

import contextlib
import io
import shlex

import pytest

from experiments import cli
from experiments.cli import terminal
from fedwin.callbacks import scores
from tests.misuse.calls import LONG_NAME

TWO = "compare --num_clients=20 --model=digits_mlp --methods=fedavg --methods="
# Command line | what the line says.
REFUSED = [
    ("compare --methods=", "methods='' | algorithm"),
    (f"{TWO}nosuch", "run 'nosuch' | unknown algorithm"),
    (f"{TWO}'fedavg '", "'fedavg' | share the directory | omit one"),
    (f"{TWO}'fedavg --num_rounds=abc'", "--num_rounds=abc | an integer"),
    (f"{TWO}'fedavg --out_dir=x'", "--out_dir | omit it"),
    (f"{TWO}'fedavg --observe=wima:window=1000000000 --num_rounds=2000000000'", "observers | MB | window=1000000000"),
    (f"compare --methods=fedavg --out_dir={LONG_NAME}", "aaa is too long | check the arguments"),
    (f"{TWO}'fedavg --dataset=california_like --loss=mse --model=mlp'", "predict classes | compare them separately"),
    ("compare --methods=fedavg --out_dir=fieldless", "out_dir=fieldless | directory of one run"),
    ("compare --methods=fedavg --out_dir=fieldless --dry_run", "out_dir=fieldless | directory of one run"),
    ("compare --methods=fedavg --model=digits_mlp --out_dir=afile", "out_dir=afile | Not a directory"),
    ("reproduce", "name what to reproduce | --list"),
    ("reproduce wima/table2 --rows=fedavgg", "rows=fedavgg | 'fedavg'"),
    ("reproduce wima/table2 --budget=soon", "budget='soon' | 20m"),
    ("reproduce ima/figure9 --print_flags", "ima/figure9 | no rows and columns"),
    ("reproduce wima/table4 --scale=smoke --out_dir=fieldless", "out_dir=fieldless | directory of one run"),
    ("sweep --grid=client_lr=0.1 --select=acuracy", "select=acuracy | 'accuracy'"),
    ("sweep --grid=client_lr=0.1 --select=rmse --model=digits_mlp", "select=rmse | accuracy, loss"),
    ("sweep --grid=val_fraction=0,0.2 --select=val_loss", "select=val_loss: no examples are held out"),
    ("sweep --grid=client_lr=0.1 --model=digits_mlp --readout=wima", "readout=wima must be one of model"),
    ("sweep --grid=client_lr=0.1,0.2,0.3 --max_runs=2", "3 runs | --max_runs=2"),
    ("sweep --grid=client_lr=0.1,inf --model=digits_mlp", "run 'client_lr=inf' | finite"),
    ("partition --dataset=cifar10 --data_dir=gone", "gone | --data_dir"),
    ("partition --plot=pie", "--plot=pie | bubbles|skew|examples|none"),
    ("partition --out=p.xyz", "out=p.xyz | png"),
    (f"partition --out={LONG_NAME}.png", "too long | shorter --out"),
    ("prepare", "--dataset=NAME | --list"),
    ("prepare --dataset=cifar10", "--data_dir=FOLDER"),
    ("prepare --dataset=cifar10 --nodownload --data_dir=strangers", "strangers | By hand"),
    ("prepare --dataset=digits --cache_dir=afile/x", "afile/x | cannot be written | --cache_dir"),
    ("bench --cases=nosuch", "cases=nosuch | digits, mlp"),
    ("bench --peers=nosuch", "peers=nosuch | fedjax"),
    ("bench --cohort=lenet5=99999999999x2x2", "cohort=lenet5=99999999999x2x2 | GiB | smaller"),
    ("bench --json=gone/x.json", "json=gone/x.json | can't be written"),
    ("bench --json=afile/x.json", "json=afile/x.json | can't be written"),
    ("bench --device=gpu", "device=gpu | no GPU"),
    ("list", "fedwin list algorithms|"),
    ("runs --delete --yes ''", "--delete: name the runs"),
    ("citation nosuch", "no citation for 'nosuch'"),
    ("citation runs/gone", "runs/gone: this is not the directory of a run"),
    ("citation fieldless", "fieldless | not a run's configuration"),
    ("export", "name one model | fedwin export DIR"),
    ("export run", "--out=model.safetensors"),
]
# A flag without effect | the reason. Every flag that only some calls of a subcommand use is here.
UNUSED = [
    ("compare --methods=fedavg --algorithm=fedavg", "--algorithm | in a comparison | --methods=NAME"),
    ("sweep --grid=client_lr=0.1 --client_lr=0.2", "--client_lr | axis of the grid"),
    ("sweep --grid=algorithm=fedavg --flagfile=digits_sparseloco", "--algorithm | axis | list presets NAME >"),
    ("partition --plot=none --out=x.png", "--out | --plot=none"),
    ("partition --plot=none --shown=3", "--shown | --plot=none"),
    *((f"prepare --list --{flag}", "with --list") for flag in ("dataset=digits", "data_dir=x", "cache_dir=x", "force")),
    ("runs --yes", "--yes | without --delete"),
    ("check --fast --tests", "--tests | with --fast"),
    ("speedrun --keep", "--keep | without `check FOLDER`"),
    ("prepare --list --nodownload", "--download | with --list"),
    ("figure stored.json --metric=loss", "--metric | on a stored figure"),
    ("figure plane run@1 --clients=1,2,3 --labels=a", "--labels | with --clients"),
    ("figure plane run@1 run@2 run@3 --round=4", "--round | kind plane"),
    ("figure line run@1 run@2 --clients=3", "--clients | kind line"),
    ("figure factors run --points=4", "--points | kind factors"),
    ("figure forgetting run --rounds=4", "--rounds | kind forgetting"),
    ("figure smoothness run --target=0.5", "--target | kind smoothness"),
    ("figure targets run --last=4", "--last | kind targets"),
    ("figure sweeps run --labels=a --parameter=x", "--labels | kind sweeps"),
    ("figure labels iid --metric=loss", "--metric | kind labels"),
    ("figure labels iid --labels=a", "--labels | on partitions"),
    ("figure labels strangers --num_clients=3", "--num_clients | on runs"),
    ("figure labels strangers --dataset=digits", "--dataset | on runs"),
    *((f"bench --quick --{flag}=3", "with --quick") for flag in ("turns", "turn_seconds", "case_seconds")),
    ("bench --cases=accelerator --turns=3", "--turns | accelerator, which has its own"),
    ("bench --cases=digits --cohort=lenet5=2x2x32", "lenet5 is not measured"),
    ("bench --cases=digits --peers=flower", "peers=flower | none of the cases"),
]
# Subcommands that use all of their flags in every call, or have none; `reproduce` and `view` have separate tests.
ALL_USED = {"train", "list", "curves", "citation", "export", "docs", "readme", "reproduce", "view"}


def test_every_subcommand_has_its_unused_flags_tested():
    assert {line.split()[0] for line, _ in UNUSED} | ALL_USED == set(cli.ALL)


@pytest.mark.parametrize("line, said", [*REFUSED, *UNUSED], ids=lambda v: v.replace(TWO, "")[:60])
def test_what_makes_no_sense_is_refused(line, said, refused):
    refused(said, *shlex.split(line))


# Clears the screen, begins a line, and turns the text around.
CONTROLLING = "a\x1b[2J\n\u202eb"


@pytest.mark.parametrize(
    "line",
    ["@", "train --algorithm=@", "train --num_rounds=@", "train --@", "train --init_from=@.npz", "citation @\udcff"],
)
def test_names_do_not_control_the_terminal(line, refused):
    told = refused("2", *(word.replace("@", CONTROLLING) for word in line.split()))
    assert "\\x1b[2" in told and "\\u202eb" in told and told.isprintable()


def test_output_is_escaped_but_for_lines_and_columns():
    with contextlib.redirect_stdout(io.StringIO(newline="")) as stream, terminal.escaped_output():
        print(f"1\t2\r{CONTROLLING}\udcff")
        print(scores.plain_table([["run"], [f"{CONTROLLING}\udcff"]]))
    printed = stream.getvalue()
    assert printed == "1\t2\ra\\x1b[2J\n\\u202eb\\udcff\n" + "run\n" + 3 * "-" + "\na\\x1b[2J\\n\\u202eb\\udcff\n"
