"""PyTorch's own state dicts, as torch.save and safetensors write them, give PyTorch's logits."""

import jax
import numpy as np
import pytest

from fedwin import models
from fedwin.models import interchange
from fedwin.runs.checkpoint import named_leaves
from tests.models.interchange.test_parameters import CASES, GOLDEN, convert, examples, state_of

torch = pytest.importorskip("torch", reason="needs torch, which is no dependency")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", ["lenet5", "resnet20"])
def test_the_golden_logits_are_pytorchs(case):
    """Those of BatchNorm are fedwin's, whose network the last case below prints for PyTorch."""
    from experiments.tools.peers import torch_nets

    module = torch_nets.build(case, (32, 32, 3), 10).eval()
    shapes = {name: list(value.shape) for name, value in module.state_dict().items()}
    module.load_state_dict({name: torch.from_numpy(value) for name, value in state_of(shapes).items()})
    known = GOLDEN[case]
    assert known["shapes"] == shapes and list(known["shapes"]) == list(shapes)
    with torch.no_grad():
        found = module(torch.from_numpy(examples(CASES[case][1])).movedim(-1, 1)).numpy()
    np.testing.assert_allclose(known["logits"], found, atol=1e-5)


@pytest.mark.parametrize(
    "name, shape",
    [
        ("digits_mlp", (8, 8, 3)),
        ("lenet5:groups=2", (32, 32, 3)),
        ("emnist_cnn", (28, 28, 1)),
        ("digit5_cnn:variant=B", (28, 28, 3)),
        ("resnet20", (16, 16, 3)),
        ("resnet18:variant=wsm,width=8", (32, 32, 3)),
        ("resnet18:variant=imagenet,norm=bn,width=8", (32, 32, 3)),
        CASES["batch_norm"][:2],
    ],
)
def test_the_printed_module_with_the_exported_file_computes_the_same(name, shape, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ("model.safetensors" if "mlp" in name else "model.npz")
    model = models.build(name, shape, 10)
    random = np.random.default_rng(0)
    noisy = lambda value: value + 0.1 * random.uniform(size=value.shape).astype(np.float32)
    variables = jax.tree.map(noisy, model.init(jax.random.key(0)))
    state, source = convert(model, named_leaves(variables), shape, path)
    interchange.write(path, state, {"layout": "torch"})
    exec(compile(source, "model.py", "exec"), known := {})
    x = random.uniform(size=(3, *shape)).astype(np.float32)
    with torch.no_grad():
        found = known["model"](known["prepare"](torch.from_numpy(x))).numpy()
    expected = model.apply(variables, {"x": (x - 0.5) / 0.25}, None, False).logits
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
