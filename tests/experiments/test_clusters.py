"""Grids through Slurm and Ray on this host, killed in the middle and continued: bit for bit those of one process."""

import contextlib
import importlib.util
import shutil
import subprocess
import time

import pytest

from tests.experiments.test_launching import table
from tests.programs import ROOT
from tests.runs.disturbance import assert_same_outcome, free_port, started

pytestmark = pytest.mark.slow
SLURM = ROOT / "experiments" / "tools" / "slurm.sh"
GRID = "--model=digits_mlp --num_rounds=2000 --eval_every=50 --checkpoint_every=50 --grid=client_lr=0.05,0.1,0.2,0.4"


def sweep(folder, *more: str) -> subprocess.Popen:
    flags = ["--dataset=digits", *GRID.split(), "--rounds_per_dispatch=10", *more]
    return started(flags, folder, "sweep", devices=1, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def said_by(process: subprocess.Popen, status: int = 0) -> str:
    said, _ = process.communicate(timeout=900)
    assert process.returncode == status, said
    return said


def kill_with_two_runs(folder, launcher: str) -> None:
    """Starts a sweep and kills it when two of its runs have checkpoints."""
    process = sweep(folder, launcher)
    while len({path.parent for path in folder.glob("*/checkpoints/seed_0/*0")}) < 2:
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.1)
    process.kill()
    process.communicate()
    assert len(list(folder.glob("*/summary.json"))) < 4


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    """A check that a folder's runs and table are those of one process."""
    whole = tmp_path_factory.mktemp("whole")
    said_by(sweep(whole))

    def check(folder):
        assert table(folder) == table(whole) and len(table(whole)) == 4
        for path in whole.glob("client_lr_*"):
            assert_same_outcome(folder / path.name, path)

    return check


@pytest.mark.skipif(shutil.which("sbatch") is None, reason="Slurm is not installed")
def test_slurm(check, tmp_path, tmp_path_factory, monkeypatch):
    def slurm(*command):
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    cluster, launcher = tmp_path_factory.mktemp("slurm"), "--launcher=slurm:time=20m,array=2"
    monkeypatch.setenv("SLURM_CONF", str(cluster / "slurm.conf"))
    jobs = lambda *states: slurm("squeue", "--noheader", "--array", "--format=%i", *states)
    with contextlib.ExitStack() as stack:
        stack.callback(subprocess.run, [SLURM, "end", cluster], check=True)
        subprocess.run([SLURM, "start", cluster, str(free_port())], check=True)
        kill_with_two_runs(tmp_path, launcher)
        at_its_limit, preempted = jobs("--states=RUNNING")
        slurm("scancel", "--signal=USR2", f"{at_its_limit}.0")  # Slurm sends it 90 seconds before
        slurm("scontrol", "requeue", preempted)
        process = sweep(tmp_path, launcher)
        stack.callback(process.kill)
        assert "2 at a time" in process.stdout.readline()  # it knows which jobs are left
        slurm("scancel", jobs()[0])
        assert "1 run(s) failed" in said_by(process, 2)
        said_by(sweep(tmp_path, launcher))
    check(tmp_path)
    # Of the four jobs only one was ended for good; the others continued.
    assert len(list(tmp_path.glob("jobs/submitit/*_submitted.pkl"))) == 5
    assert "resuming after round" in "".join(path.read_text() for path in tmp_path.glob("jobs/*.log"))


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_ray(check, tmp_path):
    cluster_utils = importlib.import_module("ray.cluster_utils")
    head = {"include_dashboard": False, "num_cpus": 1}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)  # on a busy machine Ray gives up
    try:
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        launcher = f'--launcher=ray:address="{cluster.address}"'  # each node has room for one task
        kill_with_two_runs(tmp_path, launcher)
        said_by(sweep(tmp_path, launcher))
    finally:
        cluster.shutdown()
    check(tmp_path)
