"""`fedwin train` with invalid arguments, flagfiles, folders, data and user code."""

import pytest

from tests.misuse import calls
from tests.misuse.odd_files import LONG_NAME
from tests.misuse.test_train_numbers import BASE

# Command line | what the line says.
WORDS = [
    ("fedavg", "'fedavg' is not a flag | --help"),
    ("3", "'3' is not a flag"),
    ("-- fedavg", "'fedavg' is not a flag"),
    ("--num_round=3", "num_round | num_rounds"),
    ("--foo=1", "Unknown command line flag 'foo'"),
    ("--algorithm", "Missing value for flag --algorithm"),
]
FLAGFILES = [
    ("--flagfile", "--flagfile with no argument"),
    ("--flagfile=", "flagfile= | neither a file nor a preset"),
    ("--flagfile=latin.flags", "latin.flags | not UTF-8 | save it as UTF-8"),
    ("--flagfile latin.flags", "latin.flags | not UTF-8"),
    ("--flagfile=binary.flags", "binary.flags | not UTF-8"),
    ("--flagfile=null.flags", "--num_rounds=3 | an integer"),
    ("--flagfile=one.flags", "one.flags -> other.flags -> one.flags | remove"),
    ("--flagfile=itself.flags", "includes itself | remove"),
    ("--flagfile=nested.flags", "gone.flags | included by nested.flags | check the path"),
    ("--flagfile=word.flags", "'num_rounds=3' is not a flag"),
    ("--flagfile=typo.flags", "num_round | num_rounds"),
    ("--flagfile=folder.flags", "folder.flags | neither a file nor a preset"),
    ("--flagfile=missing.flags", "missing.flags | neither a file nor a preset"),
    ("--flagfile=wima_femnits", "wima_femnits | 'wima_femnist'"),
]
FOLDERS = [
    ("--out_dir=binary", "binary/config.json | not a run's configuration | --out_dir"),
    ("--out_dir=folder", "folder/config.json | Is a directory | --out_dir"),
    ("--out_dir=empty", "empty/config.json | not a run's configuration"),
    ("--out_dir=list", "list/config.json | not a run's configuration"),
    ("--out_dir=fieldless", "fieldless/config.json | not a run's configuration"),
    ("--out_dir=future", "future/config.json | later version | update fedwin"),
    ("--out_dir=strangers", "out_dir=strangers | other files | --out_dir"),
    ("--out_dir=afile", "out_dir=afile | File exists | --out_dir"),
    ("--out_dir=afile/run", "out_dir=afile/run | Not a directory"),
    (f"--out_dir={LONG_NAME}", "out_dir=aaa | name too long | --out_dir"),
    ("--fork_from=x", "fork_from='x' | DIR@ROUND"),
    ("--fork_from=@1", "fork_from='@1' | DIR@ROUND"),
    ("--fork_from=gone@-1", "fork_from='gone@-1' | DIR@ROUND"),
    ("--fork_from=gone@\N{SUPERSCRIPT TWO}", "DIR@ROUND"),
    ("--fork_from=gone@1", "no checkpoint of round 1 | none"),
    ("--fork_from=gone@3", "nothing to train | --num_rounds"),
    (f"--fork_from={LONG_NAME}@1", "fork_from"),
    ("--init_from=x", "init_from='x' | DIR@ROUND"),
    ("--init_from=@1", "init_from='@1' | DIR@ROUND"),
    ("--init_from=gone@-1", "DIR@ROUND"),
    ("--init_from=gone@\N{SUPERSCRIPT TWO}", "DIR@ROUND"),
    ("--init_from=gone@1:head", "DIR@ROUND:part=PART"),
    ("--init_from=gone@1:part=head", "part=head | all, classifier, features"),
    ("--init_from=gone@1", "gone/checkpoints | No such file | check the path"),
    ("--init_from=afile@1", "afile/checkpoints | Not a directory"),
    (f"--init_from={LONG_NAME}@1:part=features", "init_from | name too long"),
    ("--init_from=gone@1 --fork_from=gone@1", "init_from=gone@1 | fork_from=gone@1 | keep one"),
]
DATA = [
    ("--dataset=cifar10 --data_dir=gone", "gone | --data_dir"),
    ("--dataset=cifar10", "--data_dir=FOLDER"),
    ("--dataset=cifar10 --data_dir=strangers", "cifar10 | found no | strangers"),
    ("--dataset=cifar10 --data_dir=afile", "afile | not a readable tar or zip"),
    (f"--dataset=cifar10 --data_dir={LONG_NAME}", "aaa | --data_dir"),
    ("--dataset=npz --data_dir=afile", "afile | not a readable .npz"),
    ("--dataset=npz:file=x --data_dir=.", "x | not a readable .npz"),
    ("--dataset=npz:num_classes=x --data_dir=.", "num_classes=x | an integer"),
    ("--partition=csv", "'csv' needs path"),
    ("--partition=csv:path=gone.csv", "gone.csv | check the path"),
    ("--partition=csv:path=.", ". | Is a directory"),
    ("--partition=csv:path=header.csv", "header.csv | no "),
    ("--partition=csv:path=columns.csv", "columns.csv | user_id,image_id,class"),
    ("--partition=csv:path=junk.csv", "junk.csv"),
    ("--partition=csv:path=rows.csv", "rows.csv | 999999"),
    ("--partition=csv:path=words.csv", "words.csv"),
    (f"--partition=csv:path={LONG_NAME}", "aaa"),
]
CODE = [
    ("--import=gone", "import=gone | no module of this name"),
    ("--import=gone.py", "import=gone.py | no such file | check the path"),
    ("--import=", "import= | no module"),
    ("--import=.", "import=. | no module"),
    ("--import=own/broken.py", "own/broken.py:1 | SyntaxError"),
    ("--import=own/raises.py", "own/raises.py:1 | ZeroDivisionError"),
    ("--import=own/leaves.py", "own/leaves.py | SystemExit"),
    ("--import=own/clash.py", "algorithm 'fedavg' is registered already | another name"),
    ("--import=own/json.py", "module 'json' exists already | another name"),
    ("--import=own/3x.py", "'3x' is not the name of a module | rename"),
    ("--import=own/number.py --algorithm=number", "algorithm 'number' | returns int | core.algorithm"),
    ("--import=own/divides.py --algorithm=divides", "algorithm 'divides' | divides.py:7 | ZeroDivisionError"),
]


@pytest.mark.parametrize("line, said", [*WORDS, *FLAGFILES, *FOLDERS, *DATA, *CODE], ids=lambda v: v[:40])
def test_invalid_files_and_arguments(line, said, refused):
    refused(said, *BASE, *calls.arguments_of(line))
