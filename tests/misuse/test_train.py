"""`fedwin train` with numbers out of range, unknown names, invalid files, folders, data and user code."""

import pytest

from tests.misuse import calls
from tests.misuse.odd_files import LONG_NAME

BASE = (
    "train --dataset=digits --model=digits_mlp --num_clients=20 --clients_per_round=2 --num_rounds=3 --out_dir=run"
).split()

# Command line | what the line says. Ranges of hyper-parameters are tested with the registries (tests/test_registry.py).
NUMBERS = [
    ("--client_lr=nan", "client_lr=nan | finite"),
    ("--client_lr=1e400", "client_lr=inf | finite"),
    ("--client_lr=-1", "client_lr=-1.0 | must not be negative"),
    ("--client_lr=abc", "--client_lr=abc | a number"),
    ("--client_lr=1e-40", "client_lr=1e-40 | 32-bit arithmetic | set 0"),
    ("--model=cnn --augment=crop_flip:padding=100", "padding=100 | 8 x 8 | below 8"),
    ("--weight_decay=-1", "weight_decay=-1.0 | negative"),
    ("--server_lr=-0.5", "server_lr=-0.5 | negative"),
    ("--lr_decay=1", "lr_decay=1.0 | [0, 1)"),
    ("--lr_schedule=cosinus", "lr_schedule=cosinus | 'cosine'"),
    ("--lr_schedule=cosine --lr_decay=0.1", "lr_schedule=cosine | lr_decay=0.1 | keep one"),
    ("--client_momentum=1", "client_momentum=1.0 | [0, 1)"),
    ("--client_optimizer=adam --client_momentum=0.5", "client_momentum | sgd | adam"),
    ("--eval_val", "eval_val | set --val_fraction"),
    ("--val_fraction=1", "val_fraction=1.0 | [0, 1)"),
    ("--num_rounds=abc", "--num_rounds=abc | an integer"),
    ("--num_rounds=0", "num_rounds=0 | at least 1"),
    ("--num_rounds=2147483648", "num_rounds=2147483648 | at most 2147483647 | 32-bit"),
    ("--batch_size=0", "batch_size=0 | at least 1"),
    ("--local_epochs=0", "local_epochs=0 | greater than 0"),
    ("--eval_every=0", "eval_every=0 | at least 1"),
    ("--final_evals=-2", "final_evals=-2 | at least -1"),
    ("--keep_rounds=500 --num_rounds=400", "keep_rounds | 500"),
    ("--checkpoint_every=-1", "checkpoint_every=-1 | negative"),
    ("--num_clients=-5", "num_clients=-5 | negative"),
    ("--num_clients=20.5", "--num_clients=20.5 | an integer"),
    ("--num_clients=1000000000", "1000000000 clients | fewer clients"),
    ("--clients_per_round=21", "clients_per_round=21 | 20 clients | at most 20"),
    ("--clients_per_round=0", "clients_per_round=0 | at least 1"),
    ("--partition_seed=-2", "partition_seed=-2 | at least -1"),
    ("--seeds=", "seeds | at least one | --seeds=0,1,2"),
    ("--seeds=a", "'a' | integer in 0..2147483647"),
    ("--seeds=0,0", "duplicate seed 0 | keep one"),
    ("--seeds=-1", "'-1' | integer in 0.."),
    ("--seeds=\N{SUPERSCRIPT TWO}", "'\N{SUPERSCRIPT TWO}' | integer in 0.."),
    ("--shuffle=maybe", "--shuffle=maybe | true or false"),
    ("--noshuffle=1", "--noshuffle=1 | takes no value"),
    ("--nonum_rounds", "nonum_rounds | num_rounds"),
]
# Rejected by the estimate of memory alone.
SIZES = [
    ("--batch_size=1000000000 --batching=repeat", "local batches | GiB | available | --batch_size"),
    ("--batch_size=1000000000 --batching=repeat --local_epochs=3", "batch_size=1000000000 | 2,147,483,647 | smaller"),
    ("--local_epochs=100000000", "local_epochs=100000000 | 2,147,483,647 | smaller"),
    ("--rounds_per_dispatch=2000000000", "cohorts | GiB | --rounds_per_dispatch=2000000000"),
    (
        "--observe=wima:window=1000000000 --num_rounds=2000000000",
        "observers | GiB | --observe=wima:window=1000000000",
    ),
    ("--observe=wima:window=10000000000000", "window=10000000000000 | 2147483647"),
    ("--window=file --observe=wima:window=1000000000 --num_rounds=2000000000", "windows | GiB | disk space"),
    ("--algorithm=ghb:tau=1000000000", "tau=1000000000 | never start | num_rounds=3"),
    ("--algorithm=ghb:tau=1000000000 --num_rounds=2000000000", "algorithm | GiB | ghb:tau=1000000000"),
    ("--algorithm=ghb:tau=99999999999999999999", "tau=99999999999999999999 | 32 bits"),
    ("--model=mlp:hidden=1000000000000", "hidden=1000000000000 | 2147483647"),
    ("--model=mlp:hidden=100000000", "hidden=100000000 | [1, 1048576]"),
    ("--model=mlp:hidden=1000000", "parameters | GiB | smaller layers"),
]
CHOICES = [
    ("--process_id=0", "coordinator_address, num_processes and process_id go together | --distributed"),
    ("--num_processes=2 --process_id=0 --coordinator_address=node0", "coordinator_address=node0 | HOST:PORT"),
    ("--num_processes=0 --process_id=0 --coordinator_address=node0:1234", "num_processes=0 | at least 1"),
    ("--num_processes=2 --process_id=2 --coordinator_address=node0:1234", "process_id=2 | from 0 to 1"),
    ("--algorithm=", "unknown algorithm '' | fedavg"),
    ("--algorithm=fedprx", "unknown algorithm 'fedprx' | 'fedprox'"),
    ("--algorithm=fedavg,scaffold", "unknown algorithm 'fedavg,scaffold' | scaffold"),
    ("--algorithm=fedprox:mu", "'mu' | key=value"),
    ("--algorithm=fedprox:nu=1", "no parameter 'nu' | 'mu'"),
    ("--algorithm=fedprox:mu=x", "mu=x | a number"),
    ("--algorithm=fedprox:mu=1,mu=2", "'mu' is given twice | keep one"),
    ("'--algorithm=fedprox:mu=\"1'", "quote that opens mu= | not closed"),
    ("--algorithm=fedavg:server_lr=0.5 --server_lr=0.3", "server_lr is given twice | keep one"),
    ("--algorithm=scaffold:option=III", "option=III | I, II"),
    ("--algorithm=fedadam:beta1=2", "no parameter 'beta1' | 'b1'"),
    ("--algorithm=ghb:tau=3", "tau=3 | never start | num_rounds=3"),
    ("--weighting=size", "weighting=size | samples, uniform"),
    ("--wrap=imma", "unknown wrapper 'imma' | 'ima'"),
    ("--wrap=swa --wrap=swa", "swa | given twice | keep one"),
    ("--wrap=swa:start=3", "start=3 | after the last round, 2 | --num_rounds"),
    ("--wrap=ima:window=4", "window=4 | never start | num_rounds=3"),
    ("--wrap=ima:window=2,start=9", "start=9 | after the last round"),
    ("--wrap=clip", "'clip' needs norm | clip:norm=VALUE"),
    ("--wrap=local_bn", "no BatchNorm statistics | omit --wrap=local_bn"),
    ("--observe=wima", "'wima' needs window | wima:window=VALUE"),
    ("--observe=ema --observe=ema", "'ema' is given twice | keep one"),
    ("--observe=swa:start=3", "observer 'swa' | start=3 | after the last round, 2 | earlier start"),
    ("--strategy=unknown", "unknown strategy 'unknown' | default, auto, chunked"),
    ("--strategy=chunkd", "unknown strategy 'chunkd' | 'chunked'"),
    ("--strategy=default:k=2", "'default' has no parameters | --strategy=default"),
    ("--strategy=chunked:k=0", "k=0 | >= 1"),
    ("--strategy=sharded:devices=100", "devices=100 | lower it"),
    ("--strategy=sharded:devices=-1", "devices=-1 | >= 0"),
    ("--table=disk", "table=disk | auto, device, host"),
    ("--precision=float16", "precision=float16 | 'bfloat16'"),
    ("--batching=epochs", "batching=epochs | 'epoch'"),
    ("--loss=wms", "unknown loss 'wms' | 'wsm'"),
    ("--augment=crop", "unknown augmentation 'crop' | 'crop_flip'"),
    ("--augment=crop_flip:size=100000", "size=100000 | smaller size"),
    ("--model=cnnn", "unknown model 'cnnn' | 'cnn'"),
    ("--model=mlp:dtype=int8", "dtype=int8 | float32"),
    ("--model=resnet20:groups=7", "groups=7 | divide"),
    ("--model=shakespeare_lstm", "tokens | --model"),
    ("--dataset=digit", "unknown dataset 'digit' | 'digits'"),
    ("--dataset=digits:x=1", "no parameter 'x' | no parameters"),
    ("--dataset=cifar100:label=x", "label=x | fine, coarse"),
    ("--partition=dirichlt", "unknown partition 'dirichlt' | 'dirichlet'"),
    ("--partition=dirichlet", "'dirichlet' needs alpha | dirichlet:alpha=VALUE"),
    ("--partition=dirichlet:alpha=-1", "alpha=-1 | >= 0"),
    ("--partition=shards:per_client=1000000000", "more than the 1400 | fewer"),
    ("--partition=natural", "no natural clients | --partition=iid"),
]
WORDS = [
    ("fedavg", "'fedavg' is not a flag | --help"),
    ("--num_round=3", "num_round | num_rounds"),
    ("--foo=1", "Unknown command line flag 'foo'"),
    ("--algorithm", "Missing value for flag --algorithm"),
]
FLAGFILES = [
    ("--flagfile", "--flagfile with no argument"),
    ("--flagfile=", "flagfile= | neither a file nor a preset"),
    ("--flagfile=latin.flags", "latin.flags | not UTF-8 | save it as UTF-8"),
    ("--flagfile=binary.flags", "binary.flags | not UTF-8"),
    ("--flagfile=nested.flags", "Unable to open flagfile | 'gone.flags'"),
    ("--flagfile=word.flags", "'num_rounds=3' is not a flag"),
    ("--flagfile=typo.flags", "num_round | num_rounds"),
    ("--flagfile=missing.flags", "missing.flags | neither a file nor a preset"),
    ("--flagfile=wima_femnits", "wima_femnits | 'wima_femnist'"),
]
FOLDERS = [
    ("--out_dir=binary", "binary/config.json | not a run's configuration | --out_dir"),
    ("--out_dir=folder", "folder/config.json | Is a directory | --out_dir"),
    ("--out_dir=fieldless", "fieldless/config.json | not a run's configuration"),
    ("--out_dir=future", "future/config.json | format 99, not 1"),
    ("--out_dir=strangers", "out_dir=strangers | other files | --out_dir"),
    ("--out_dir=afile", "out_dir=afile | File exists | --out_dir"),
    (f"--out_dir={LONG_NAME}", "out_dir=aaa | name too long | --out_dir"),
    ("--fork_from=x", "fork_from='x' | DIR@ROUND"),
    ("--fork_from=gone@-1", "fork_from='gone@-1' | DIR@ROUND"),
    ("--fork_from=gone@1", "no checkpoint of round 1 | none"),
    ("--fork_from=gone@3", "nothing to train | --num_rounds"),
    ("--init_from=x", "init_from='x' | DIR@ROUND"),
    ("--init_from=gone@1:head", "DIR@ROUND:part=PART"),
    ("--init_from=gone@1:part=head", "part=head | all, classifier, features"),
    ("--init_from=gone@1", "gone/checkpoints | No such file | check the path"),
    ("--init_from=afile@1", "afile/checkpoints | Not a directory"),
    ("--init_from=gone@1 --fork_from=gone@1", "init_from=gone@1 | fork_from=gone@1 | keep one"),
]
DATA = [
    ("--dataset=cifar10 --data_dir=gone", "gone | --data_dir"),
    ("--dataset=cifar10", "--data_dir=FOLDER"),
    ("--dataset=cifar10 --data_dir=strangers", "cifar10 | found no | strangers"),
    ("--dataset=cifar10 --data_dir=afile", "afile | not a readable tar or zip"),
    ("--dataset=npz --data_dir=afile", "afile | not a readable .npz"),
    ("--dataset=npz:file=x --data_dir=.", "x | not a readable .npz"),
    ("--partition=csv", "'csv' needs path"),
    ("--partition=csv:path=gone.csv", "gone.csv | check the path"),
    ("--partition=csv:path=.", ". | Is a directory"),
    ("--partition=csv:path=header.csv", "header.csv | no "),
    ("--partition=csv:path=columns.csv", "columns.csv | user_id is missing"),
    ("--partition=csv:path=rows.csv", "rows.csv | 999999"),
    ("--partition=csv:path=words.csv", "words.csv"),
]
CODE = [
    ("--import=gone.py", "import=gone.py | no such file | check the path"),
    ("--import=own/leaves.py", "own/leaves.py | SystemExit"),
    ("--import=own/clash.py", "algorithm 'fedavg' is registered already | another name"),
    ("--import=own/number.py --algorithm=number", "algorithm 'number' | returns int | core.algorithm"),
    ("--import=own/divides.py --algorithm=divides", "algorithm 'divides' | divides.py:7 | ZeroDivisionError"),
]


@pytest.mark.parametrize(
    "line, said", [*NUMBERS, *SIZES, *CHOICES, *WORDS, *FLAGFILES, *FOLDERS, *DATA, *CODE], ids=lambda v: v[:40]
)
def test_what_cannot_be_trained_is_refused(line, said, refused):
    refused(said, *BASE, *calls.arguments_of(line))
