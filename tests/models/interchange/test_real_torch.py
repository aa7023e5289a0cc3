"""PyTorch's own state dicts, as torch.save and safetensors write them, give PyTorch's logits."""

import jax
import numpy as np
import pytest

from fedwin import models
from fedwin.models import interchange
from fedwin.runs.checkpoint import leaves_of
from tests.models.interchange.test_parameters import convert
from tests.models.interchange.torch_state import CASES, examples, golden, state_of

torch = pytest.importorskip("torch", reason="needs torch, which is no dependency")
pytestmark = pytest.mark.slow


class Block18(torch.nn.Module):
    """A basic block with BatchNorm; its names are those of fedwin's block."""

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(width)
        self.conv2 = torch.nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = torch.nn.BatchNorm2d(width)
        if stride > 1 or inputs != width:
            self.shortcut = torch.nn.Conv2d(inputs, width, 1, stride, bias=False)
            self.shortcut_norm = torch.nn.BatchNorm2d(width)

    def forward(self, x):
        y = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        return torch.relu(y + (self.shortcut_norm(self.shortcut(x)) if hasattr(self, "shortcut") else x))


class ResNet18(torch.nn.Module):
    """ResNet-18 with BatchNorm and a first stage of 4 channels."""

    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 4, 3, 1, 1, bias=False)
        self.stem_norm = torch.nn.BatchNorm2d(4)
        inputs = 4
        for stage, width in enumerate((4, 8, 16, 32)):
            for block in range(2):
                stride = 2 if stage and not block else 1
                self.add_module(f"stage{stage + 1}_block{block + 1}", Block18(inputs, width, stride))
                inputs = width
        self.linear = torch.nn.Linear(32, 10)

    def forward(self, x):
        x = torch.relu(self.stem_norm(self.stem(x)))
        for name, block in self.named_children():
            x = block(x) if name.startswith("stage") else x
        return self.linear(x.mean((2, 3)))


def network(case):
    """Returns the PyTorch network of a case in evaluation mode, and the shapes of its state dict."""
    from experiments.tools.peers import torch_nets

    module = ResNet18() if case == "batch_norm" else torch_nets.build(case, (32, 32, 3), 10)
    return module.eval(), {name: list(value.shape) for name, value in module.state_dict().items()}


def logits(module, x):
    with torch.no_grad():
        return module(torch.from_numpy(x).movedim(-1, 1)).numpy()


@pytest.mark.parametrize("case", CASES)
def test_the_golden_logits_are_pytorchs(case):
    module, shapes = network(case)
    module.load_state_dict({name: torch.from_numpy(value) for name, value in state_of(shapes).items()})
    known = golden()[case]
    assert known["shapes"] == shapes and list(known["shapes"]) == list(shapes)
    np.testing.assert_allclose(known["logits"], logits(module, examples(CASES[case][1])), atol=1e-5)


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
    ],
)
def test_the_printed_module_with_the_exported_file_computes_the_same(name, shape, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ("model.safetensors" if "mlp" in name else "model.npz")
    model = models.build(name, shape, 10)
    random = np.random.default_rng(0)
    noisy = lambda value: value + 0.1 * random.uniform(size=value.shape).astype(np.float32)
    variables = jax.tree.map(noisy, model.init(jax.random.key(0)))
    state, source = convert(model, leaves_of(variables), shape, path)
    interchange.write(path, state, {"layout": "torch"})
    exec(compile(source, "model.py", "exec"), known := {})
    x = random.uniform(size=(3, *shape)).astype(np.float32)
    with torch.no_grad():
        found = known["model"](known["prepare"](torch.from_numpy(x))).numpy()
    expected = model.apply(variables, {"x": (x - 0.5) / 0.25}, None, False).logits
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
