"""The benchmark: its timer, its cases, and one short complete run."""

import json
import sys

import jax
import numpy as np
import pytest
from absl import flags

from experiments import bench
from experiments.cli import subcommand
from experiments.tools import operations, timer
from experiments.tools.peers import cases
from fedwin import models
from fedwin.errors import UserError
from fedwin.models.convolution.conv import conv_general_dilated
from tests.misuse.calls import called, own_flags

TOY = """
import json, sys, time
request = json.loads(sys.stdin.readline())
if "missing" in request:
    import no_such_library
print(json.dumps({"version": "toy 1"}), flush=True)
for turn, line in enumerate(sys.stdin):
    if turn == request.get("dies"):
        raise MemoryError("on purpose")
    print(json.dumps({"seconds": request["seconds"] * int(line)}), flush=True)
"""


def toy(label, **request):
    return timer.Contestant(label, [sys.executable, "-c", TOY], {"seconds": 0.01} | request)


def test_contestants_take_turns_and_absent_ones_are_named():
    some = [toy("fedwin"), toy("slow", seconds=0.02), toy("absent", missing=1), toy("dying", dies=4)]
    lines = []
    timings, failed = timer.take_turns(some, timer.Effort(3, 0.05, 10), lines.append)
    assert list(timings) == ["fedwin", "slow"]
    assert "no_such_library" in failed["absent"] and "on purpose" in failed["dying"]
    summary = timings["slow"].summary(timings["fedwin"])
    assert summary["times_first"] == pytest.approx(2) and summary["ms_per_round"] == pytest.approx(20)
    assert summary["turns"] == 3 and summary["quartiles_ms"] == pytest.approx([20, 20])
    assert sum("turn " in line for line in lines) == 3
    late = timer.take_turns(some[:1], timer.Effort(3, 0.05, 10, start_seconds=-1), lines.append)
    assert late == ({}, {"fedwin": "no time left"})


def test_contestants_have_the_users_packages(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "own:more")
    with own_flags():
        bench.define_flags()
        subcommand.define_import()
        flags.FLAGS(["bench", "--peers=fedjax"])
        runners = bench.contestants(cases.CASES["digits"])
    assert len(runners) == 3 and all(each.variables["PYTHONPATH"].endswith(":own:more") for each in runners)


def test_shares_of_the_peak_follow_operations_and_seeds():
    case = cases.CASES["mlp"]
    four = timer.Contestant("four", [], {"config": {"seeds": [0, 1, 2, 3]}})
    runners = [toy("fedwin"), toy(bench.PRODUCT), four, toy("absent")]
    timings = {r.label: timer.Timing("1", seconds) for r, seconds in zip(runners, ([1.0, 2.0], [0.5, 1.0], [1.0, 2.0]))}
    own, product, vmapped = bench.records_of(case, runners, timings)
    assert product["share"] == 1 and own["operations"] == operations.of_round(case)
    assert own["share"] == pytest.approx(own["operations"] / (2 * 2048**3) / 2)
    assert vmapped["share"] == pytest.approx(4 * own["share"])


def test_all_contestants_get_the_same_work():
    generator = np.random.default_rng(0)
    for case in cases.CASES.values():
        rows = cases.batches(case, case.examples, generator)
        assert len(rows) == case.steps and all(len(each) == case.batch for each in rows)
        first = np.concatenate(rows)[: case.examples]
        assert len(set(first)) == len(first)  # a pass is a permutation
        whole = case.epochs * case.examples % case.batch == 0
        assert whole or not {"pfl", "flower", "fluke"} & set(case.peers)
    x, y = cases.examples(cases.scaled(cases.CASES["lenet5"], "2x3x4"))
    assert len(x) == 10 and x[0].shape == (12, 32, 32, 3) and y[0].shape == (12,)


def test_a_case_that_fails_leaves_the_report_of_those_before(monkeypatch):
    def measured(case, *rest):
        if case.name == "mlp":
            raise UserError("case mlp: on purpose.")
        return [{"case": case.name, "cohort": str(case), "who": "fedwin", "absent": "not measured"}]

    monkeypatch.setattr(bench, "measure", measured)
    ended = called("bench", "--cases=digits,mlp", "--peers=")
    assert (ended.status, ended.lines) == (2, ["error: case mlp: on purpose."]) and "not measured" in ended.out


def test_the_report_has_ratios_and_published_figures():
    common = {"case": "mnist_lr", "cohort": str(cases.CASES["mnist_lr"])}
    own = {"ms_per_round": 4.0, "quartiles_ms": [3.0, 5.0], "times_first": 1.0}
    own |= {"operations": 8 * 10**9, "share": 0.25, "memory": 3 << 29}
    absent = common | {"who": "torch", "absent": "No module named 'torch'"}
    records = [common | own | {"who": "fedwin"}, common | own | {"who": "fedjax", "times_first": 1.5}, absent]
    text = bench.report_text({"machine": "a toy", "load_before": [0.5], "records": records})
    assert "1.50 x" in text and "absent" in text and "0.4 s" in text and "FLUTE 1:26 min" in text
    assert "8 2000 25.0% 1.50" in " ".join(text.split())


@pytest.mark.parametrize("name", ["mnist_lr", "mlp", "transformer", "vit"])
def test_counted_operations_are_those_of_xla(name):
    case = cases.scaled(cases.CASES[name], "2x3x4")
    function, shapes = operations.gradient(case)
    counted = 2 * 3 * jax.jit(function).lower(*shapes).cost_analysis()["flops"]
    assert 0.9 * counted < operations.of_round(case) < counted  # XLA counts sums and functions, too


@pytest.mark.parametrize("channels", [1, 8])
def test_counted_operations_of_convolutions_and_loops_are_those_of_xla(channels):
    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((2, 9, 9, channels), (3, 3, channels, 16))]
    count = lambda function, *shapes: operations.of_jaxpr(jax.make_jaxpr(function)(*shapes).jaxpr)

    def gradients(convolve):  # of x and of the kernel, after a forward pass
        forward = lambda x, k: convolve(x, k, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jax.grad(lambda x, k: (forward(x, k) ** 2).sum(), (0, 1))

    counted = jax.jit(gradients(jax.lax.conv_general_dilated)).lower(*shapes).cost_analysis()["flops"]
    assert counted == pytest.approx(count(gradients(conv_general_dilated), *shapes), rel=0.02)
    loop = lambda a: jax.lax.scan(lambda b, _: (a @ b, None), a, length=5)
    assert count(loop, jax.ShapeDtypeStruct((8, 8), np.float32)) == 5 * 2 * 8**3


@pytest.mark.parametrize("name", ["transformer", "vit"])
def test_transformers_are_the_same_in_torch(name, monkeypatch):
    torch = pytest.importorskip("torch")
    from experiments.tools.peers import torch_nets

    case = cases.scaled(cases.CASES[name], "1x1x3")
    model = models.build(case.model, case.shape, case.classes)
    variables = model.init(jax.random.key(0))
    noise = lambda a: a + 0.1 * np.random.default_rng(a.size).standard_normal(a.shape, np.float32)  # biases are zero
    params = jax.tree.map(noise, variables.params)
    network = torch_nets.build(case.model, case.shape, case.classes)
    own = {}
    norm = lambda name, layer: own.update({f"{name}.weight": layer["scale"], f"{name}.bias": layer["bias"]})

    def dense(name, *layers):
        own[f"{name}.weight"] = np.concatenate([layer["kernel"].T for layer in layers])
        own[f"{name}.bias"] = np.concatenate([layer["bias"] for layer in layers])

    blocks = [params[key] for key in sorted(params) if key.startswith("block")]
    for i, block in enumerate(blocks):
        attention = block["attention"]
        dense(f"blocks.{i}.qkv", attention["query"], attention["key"], attention["value"])
        dense(f"blocks.{i}.out", attention["out"])
        for name in ("up", "down"):
            dense(f"blocks.{i}.{name}", block[name])
        for name in ("norm1", "norm2"):
            norm(f"blocks.{i}.{name}", block[name])
    norm(f"blocks.{len(blocks)}", params["norm"])
    own["positions"] = params["positions"]
    if case.vocabulary:
        own["embedding"] = params["classifier"]["kernel"].T
    else:
        dense("classifier", params["classifier"])
        dense("patches", params["patches"])
        own["embedding"] = params["token"][0]
        own["patches.weight"] = own["patches.weight"].reshape(-1, 4, 4, 3).transpose(0, 3, 1, 2)
    network.load_state_dict({key: torch.tensor(np.asarray(value)) for key, value in own.items()})
    assert sum(p.numel() for p in network.parameters()) == sum(a.size for a in jax.tree.leaves(params))
    x, y = cases.examples(case)
    batch = {"x": x[0], "y": y[0], "mask": np.ones(3, np.float32)}
    logits = model.apply(variables._replace(params=params), batch, None, False).logits
    theirs = network(torch_nets.tensors(x, y)[0][0]).detach().movedim(1, -1).numpy()
    np.testing.assert_allclose(theirs, logits, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_quick_run_against_fedjax(tmp_path, monkeypatch):
    path = tmp_path / "bench.json"
    # Unoptimized programs compile in half the time, and this is not about speed.
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
    monkeypatch.setitem(bench.GROUPS, "accelerator", ("digits",))  # what --device=gpu prints, on a small network
    monkeypatch.setattr(bench, "ACCELERATOR_EFFORT", bench.TINY_EFFORT)
    for names, more in (("digits,mnist_lr,fedjax_apfl", ["scaffold --window=host"]), ("accelerator", bench.VARIANTS)):
        own = [f"--methods={text}" for text in more if names != "accelerator"]
        peers = "fedjax" if own else ""
        ended = called("bench", "--quick", f"--cases={names}", f"--peers={peers}", *own, f"--json={path}")
        assert ended.status == 0, ended.lines[-5:]
        records = json.loads(path.read_text())["records"]
        labels = [f"fedwin {text}" if own else f"fedwin fedavg {text}" for text in more]
        expected = ["fedwin", bench.PRODUCT, *labels, *filter(None, [peers])]
        assert [record["who"] for record in records] == expected * (3 if own else 1)
        assert all(record["ms_per_round"] > 0 and record["memory"] > 1 << 20 for record in records)
        assert all(record["share"] == 1 for record in records if record["who"] == bench.PRODUCT)
        assert "fedwin is faster" in ended.out and "of peak" in ended.out
