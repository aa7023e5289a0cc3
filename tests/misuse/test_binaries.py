"""The other binaries: what is wrong is found before the first method, case or picture."""

import pytest

from tests.misuse import calls
from tests.misuse.odd_files import LONG_NAME

TWO = "compare --num_clients=20 --model=digits_mlp --methods=fedavg --methods="
# Command line | what the line says.
COMPARE = [
    ("compare --methods=", "methods='' | algorithm"),
    ("compare --methods=' '", "methods=' ' | algorithm"),
    ("compare --methods=--client_lr=1", "does not begin with an algorithm"),
    (f"{TWO}'fedprox:mu=\"1'", "quote is not closed"),
    (f"{TWO}nosuch", "method 'nosuch' | unknown algorithm"),
    (f"{TWO}fedavg", "'fedavg' | same place | keep one"),
    (f"{TWO}'fedavg extra'", "'extra' is not --flag=value"),
    (f"{TWO}'fedavg --nosuch=3'", "'--nosuch=3' is not --flag=value"),
    (f"{TWO}'fedavg --noshuffle'", "'--noshuffle' is not --flag=value"),
    (f"{TWO}'fedavg --num_rounds=abc'", "--num_rounds=abc | an integer"),
    (f"{TWO}'fedavg --client_lr=x'", "--client_lr=x | a number"),
    (f"{TWO}'fedavg --client_lr=inf'", "client_lr=inf | finite"),
    (f"{TWO}'fedavg --shuffle=maybe'", "--shuffle=maybe | true or false"),
    (f"{TWO}'fedavg --out_dir=x'", "--out_dir | omit it"),
    (f"{TWO}'fedavg --algorithm=scaffold'", "--algorithm | omit it"),
    (f"{TWO}'fedavg --wrap=imma'", "method 'fedavg --wrap=imma' | 'ima'"),
    (f"{TWO}'fedavg --partition=natural'", "no clients of its own"),
    (f"{TWO}'fedavg --seeds=0,0'", "duplicate seed 0"),
    (f"{TWO}ghb:tau=1000000000", "tau=1000000000 | never begin"),
    (
        f"{TWO}'fedavg --observe=wima:window=1000000000 --num_rounds=2000000000'",
        "observers | GiB | window=1000000000",
    ),
    (f"{TWO}{LONG_NAME}", "unknown algorithm"),
    ("compare fedavg", "'fedavg' is not a flag"),
    ("compare --methods=fedavg --num_rounds=abc", "--num_rounds=abc | an integer"),
    ("compare --methods=fedavg --dataset=nosuch", "unknown dataset 'nosuch'"),
    ("compare --methods=fedavg --model=digits_mlp --out_dir=afile", "out_dir=afile/fedavg | Not a directory"),
]
PARTITION = [
    ("partition extra", "'extra' is not a flag"),
    ("partition --dataset=nosuch", "unknown dataset 'nosuch'"),
    ("partition --dataset=cifar10 --data_dir=gone", "gone | --data_dir"),
    ("partition --num_clients=abc", "--num_clients=abc | an integer"),
    ("partition --num_clients=0", "--num_clients=0 | positive"),
    ("partition --num_clients=1000000000", "1000000000 clients | fewer clients"),
    ("partition --partition_seed=-1", "--partition_seed=-1 | range [0, 2147483647]"),
    ("partition --partition_seed=99999999999999999999999", "--partition_seed=9999 | range [0, 2147483647]"),
    ("partition --plot=pie", "--plot=pie | bubbles|bars|none"),
    ("partition --shown=0", "--shown=0 | positive"),
    ("partition --out=", "out= | --out=partition.png"),
    ("partition --out=.", "out=. | --out=partition.png"),
    ("partition --out=strangers", "out=strangers | --out=partition.png"),
    ("partition --out=gone/p.png", "out=gone/p.png | no folder gone"),
    ("partition --out=p.xyz", "out=p.xyz | png"),
    (f"partition --out={LONG_NAME}.png", "too long | shorter --out"),
    ("partition --partition=csv:path=header.csv --plot=none", "header.csv"),
    ("partition --partition=dirichlet:alpha=x", "alpha=x | a number"),
]
PREPARE = [
    ("prepare", "--dataset=NAME | --list"),
    ("prepare extra", "'extra' is not a flag"),
    ("prepare --dataset", "Missing value for flag --dataset"),
    ("prepare --dataset=cifar1O --data_dir=strangers", "'cifar1O' | 'cifar10'"),
    ("prepare --dataset=cifar10", "--data_dir=FOLDER"),
    ("prepare --dataset=cifar10 --nodownload --data_dir=strangers", "strangers | By hand"),
    ("prepare --dataset=cifar10 --nodownload --data_dir=gone", "gone | --data_dir"),
    ("prepare --dataset=cifar10 --nodownload=1 --data_dir=gone", "--nodownload=1 | takes no value"),
    ("prepare --dataset=cifar10 --download=maybe", "--download=maybe | true or false"),
    ("prepare --dataset=cifar10 --data_dir=afile --nodownload", "afile | not a readable"),
    ("prepare --dataset=cifar10 --data_dir=afile/x", "afile/x | Not a directory"),
    ("prepare --dataset=cifar10:x=1 --data_dir=strangers", "no parameter 'x'"),
    ("prepare --dataset=digits --cache_dir=afile/x", "afile/x | cannot be written | --cache_dir"),
    ("prepare --force=x", "--force=x | true or false"),
]
BENCH = [
    ("bench extra", "'extra' is not a flag"),
    ("bench --cases=nosuch", "'nosuch' | digits, mlp"),
    ("bench --studies=nosuch", "'nosuch' | windows"),
    ("bench --peers=nosuch", "'nosuch' | fedjax"),
    ("bench --cohort=x", "cohort=x | CASE=CLIENTSxSTEPSxBATCH"),
    ("bench --cohort=lenet5=0x0x0", "cohort=lenet5=0x0x0 | CASE"),
    ("bench --cohort=lenet5=99999999999x2x2", "cohort=lenet5=99999999999x2x2 | GiB | smaller"),
    ("bench --python_torch=/nonexistent", "python_torch=/nonexistent | no such program | --peers=fedjax"),
    ("bench --python_torch=./afile", "python_torch=./afile | no such program"),
    ("bench --python_torch=", "python_torch= | no such program"),
    ("bench --json=gone/x.json", "json=gone/x.json | can't be written"),
    ("bench --json=strangers", "json=strangers | can't be written"),
    ("bench --turns=0", "turns=0 | [1, "),
    ("bench --turns=abc", "--turns=abc | an integer"),
    ("bench --turn_seconds=nan", "turn_seconds=nan | finite"),
    ("bench --case_seconds=inf", "case_seconds=inf | finite"),
    ("bench --cores=-1", "cores=-1 | [0, 1024]"),
    ("bench --cores=1000000", "cores=1000000 | [0, 1024]"),
]
LISTS = [
    ("list", "fedwin list algorithms|"),
    ("list modls", "'modls' | 'models'"),
    ("list models extra", "'extra' is one word too many"),
    ("list runs gone", "gone | no such folder"),
    ("list runs afile", "afile | no such folder"),
    ("list --foo", "'foo'"),
    ("citation", "fedwin citation NAME"),
    ("citation nosuch", "no citation for 'nosuch'"),
    ("citation scaffold nosuch", "no citation for 'nosuch'"),
    ("citation strangers", "strangers | not the directory of a run"),
    ("citation binary", "binary | not the directory of a run"),
    ("citation folder", "folder | not the directory of a run"),
    ("citation fieldless", "fieldless | not the directory of a run"),
    ("citation ''", "fedwin citation NAME"),
    (f"citation {LONG_NAME}", "no citation for 'aaa"),
    ("nosuch", "no word 'nosuch' | train, compare"),
    ("Train", "'train'"),
]
STREAM = [
    ("stream_demo", "--dir=FOLDER"),
    ("stream_demo --dir=", "--dir=FOLDER"),
    ("stream_demo extra", "'extra' is not a flag"),
    ("stream_demo --dir=afile", "dir=afile | can't be written"),
    ("stream_demo --dir=afile/x", "dir=afile/x | can't be written"),
    (f"stream_demo --dir={LONG_NAME}", "dir=aaa"),
    ("stream_demo --dir=x --gigabytes=-1", "--gigabytes=-1"),
    ("stream_demo --dir=x --gigabytes=nan", "gigabytes=nan | finite"),
    ("stream_demo --dir=x --gigabytes=inf", "gigabytes=inf | finite"),
    ("stream_demo --dir=x --gigabytes=1e9", "GB are free | --gigabytes"),
    ("stream_demo --dir=x --clients_per_round=1000000000", "GB are free | --clients_per_round"),
    ("stream_demo --dir=x --kind=png", "--kind=png | packed|jpeg"),
    ("stream_demo --dir=x --rounds=4", "--rounds=4 | >= 5"),
    ("stream_demo --dir=x --model=nosuch", "unknown model 'nosuch'"),
]


@pytest.mark.parametrize(
    "line, said", [*COMPARE, *PARTITION, *PREPARE, *BENCH, *LISTS, *STREAM], ids=lambda v: v.replace(TWO, "")[:40]
)
def test_another_binary_refuses(line, said, refused):
    refused(said, *calls.words_of(line))
