"""`fedwin train` with numbers out of range, unknown names, invalid files, folders, data and user code."""

import shlex

import pytest

from tests.misuse.calls import LONG_NAME

BASE = (
    "train --dataset=digits --model=digits_mlp --num_clients=20 --clients_per_round=2 --num_rounds=3 --out_dir=run"
).split()

# Command line | what the line says. Ranges: tests/test_registry.py and tests/runs/test_config.py.
REFUSED = [
    ("--model=cnn --augment=crop_flip:padding=100", "padding=100 | 8 x 8 | below 8"),
    ("--lr_schedule=cosine --lr_decay=0.1", "lr_schedule=cosine | lr_decay=0.1 | keep one"),
    ("--local_steps=5 --local_epochs=1", "--local_epochs has no effect beside --local_steps"),
    ("--local_steps=1000000000", "smaller --local_steps"),
    ("--client_optimizer=adam --client_momentum=0.5", "client_momentum | sgd | adam"),
    ("--algorithm=fedopt:momentum=0.9", "momentum and nesterov | optimizer=momentum"),
    ("--eval_val", "eval_val | set --val_fraction"),
    ("--keep_rounds=500 --num_rounds=400", "keep_rounds | 500"),
    ("--num_clients=20.5", "--num_clients=20.5 | an integer"),
    ("--num_clients=1000000000", "1000000000 clients | fewer clients"),
    ("--seeds=", "seeds | at least one | --seeds=0,1,2"),
    # Rejected by the estimate of memory alone.
    ("--batch_size=1000000000 --batching=repeat --local_epochs=3", "batch_size=1000000000 | 2,147,483,647 | smaller"),
    ("--rounds_per_dispatch=2000000000", "cohorts | MB | --rounds_per_dispatch=2000000000"),
    ("--window=file --observe=wima:window=1000000000 --num_rounds=2000000000", "windows | MB | disk space"),
    ("--algorithm=ghb:tau=1000000000", "tau=1000000000 | never start | num_rounds=3"),
    ("--algorithm=ghb:tau=1000000000 --num_rounds=2000000000", "algorithm | MB | ghb:tau=1000000000"),
    # Choices that do not go together, or with the run.
    ("--process_id=0", "coordinator_address, num_processes and process_id go together | --distributed"),
    ("--num_processes=2 --process_id=0 --coordinator_address=node0", "coordinator_address=node0 | HOST:PORT"),
    ("--num_processes=2 --process_id=2 --coordinator_address=node0:1234", "process_id=2 | from 0 to 1"),
    ("--wrap=ima:schedule=epoch --local_epochs=1.5", "needs a whole number"),
    ("--wrap=ima:schedule=epoch --local_steps=5", "needs a whole number"),
    ("--wrap=ima:window=2,start=9", "start=9 | after the last round"),
    ("--wrap=ima:window=2,start=1.0", "start=1.0 must be a number in [0, 1) or an integer"),
    ("--algorithm=amplified_scaffold:period=4", "period=4 | never start | num_rounds=3 | smaller period"),
    ("--algorithm=qffl --loss=wsm:proportions=train", "loss=wsm:proportions=train | negative | wsm:mask=true"),
    ("--algorithm=fedfa:anchor_from=3", "anchor_from=3 | never start | num_rounds=3 | smaller anchor_from"),
    ("--observe=swa:cycle=2", "observer 'swa' | from round 2 on | cycle=2 | no model | num_rounds=3 | smaller cycle"),
    ("--observe=wima:window=3 --observe=wima:window=3", "twice"),
    ("--observe=swa:start=3", "observer 'swa' | start=3 | after the last round, 2 | earlier start"),
    ("--strategy=chunkd", "strategy=chunkd must be one of | 'chunked'"),
    ("--strategy=sharded:devices=100", "devices=100 | lower it"),
    ("--dataset=shakespeare_leaf_synthetic --model=transformer", "(2, 80, 80) | --model=transformer:predict=last"),
    # Unknown or unreadable words.
    ("--lr=0.1", "unknown flag --lr | 'client_lr' | --help"),
    ("--seed=3", "unknown flag --seed. Did you mean 'seeds'?"),
    ("--epochs=3", "unknown flag --epochs. Did you mean 'local_epochs'?"),
    ("--mu=0.1", "unknown flag --mu. --help lists all. A method's parameter | --algorithm=NAME:mu=VALUE"),
    ("--observe=wima50", "unknown observer 'wima50'. Did you mean 'wima:window=50'?"),
    ("--wrap=ima_5", "unknown wrapper 'ima_5'. Did you mean 'ima:window=5'?"),
    ("--algorithm=swa:cycle=2", "algorithm 'swa' does not exist; write --wrap or --observe=swa:cycle=2."),
    ("--dataset=digit", "unknown dataset 'digit' | 'digits'"),
    ("--model=resnet56", "unknown model 'resnet56'. Did you mean 'resnet"),
    ("--dataset=cifar10:constants=ima", "data set 'cifar10:constants=ima' | prepare --dataset=cifar10:constants=ima"),
    ("fedavg", "'fedavg' is not a flag | --help"),
    ("--dataset=\udcff", r"\udcff | encoding | rename it | LC_ALL=C.UTF-8"),
    ("--algorithm", "Missing value for flag --algorithm"),
    ("--noshuffle=1", "takes no value"),
    # Files and folders.
    ("--flagfile=latin.flags", "latin.flags | not UTF-8 | save it as UTF-8"),
    (f"--flagfile={LONG_NAME}", "neither a file nor a preset"),
    ("--out_dir=folder", "folder/config.json | Is a directory | --out_dir"),
    ("--out_dir=fieldless", "fieldless/config.json | not a run's configuration"),
    ("--out_dir=strangers", "out_dir=strangers | other files | --out_dir"),
    (f"--out_dir={LONG_NAME}", "out_dir=aaa | name too long | --out_dir"),
    ("--out_dir=afile/run", "can't be written"),
    ("--out_dir=~/run", "out_dir=~/run | write $HOME"),
    ("--fork_from=x", "fork_from='x' | DIR@ROUND"),
    ("--fork_from=gone@1", "gone: there is no such folder"),
    ("--init_from=gone@1:part=head", "part=head | all, classifier, features"),
    ("--init_from=gone@1", "gone/checkpoints | No such file | check the path"),
    ("--init_from=gone@1 --fork_from=gone@1", "init_from=gone@1 | fork_from=gone@1 | keep one"),
    ("--partition=csv:path=columns.csv", "columns.csv | user_id is missing"),
    # The user's code.
    ("--import=own/leaves.py", "leaves.py | SystemExit"),
    (f"--import={LONG_NAME}.py", "no such file"),
    (f"--import={LONG_NAME}", "no module of this name"),
    ("--import=own/number.py --algorithm=number", "algorithm 'number' | must return Algorithm, not int"),
    ("--import=own/divides.py --algorithm=divides", "algorithm 'divides' | divides.py:7 | ZeroDivisionError"),
]


@pytest.mark.parametrize("line, said", REFUSED, ids=lambda v: v[:40])
def test_what_cannot_be_trained_is_refused(line, said, refused):
    refused(said, *BASE, *shlex.split(line))
