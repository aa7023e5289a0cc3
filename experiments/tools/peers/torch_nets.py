"""The benchmark's networks in PyTorch, as a PyTorch user writes them."""

import math

import torch
from torch import nn


class Block20(nn.Module):
    """A ResNet-20 block with GroupNorm(2) and the shortcut without parameters."""

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.stride, self.extra = stride, width - inputs
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(2, width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(2, width)

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        if self.extra or self.stride > 1:
            half = self.extra // 2
            x = nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, self.extra - half))
        return torch.relu(x + y)


def _digits_cnn(channels, classes):
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, classes),
    )  # fmt: skip


def _mlp(inputs, classes):
    return nn.Sequential(
        nn.Linear(inputs, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, classes)
    )  # fmt: skip


def _dropout_cnn(channels, classes, side):
    flat = 64 * ((side - 4) // 2) ** 2
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(flat, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, classes),
    )  # fmt: skip


def _lenet5(channels, classes):
    return nn.Sequential(
        nn.Conv2d(channels, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, classes),
    )  # fmt: skip


def _resnet20(channels, classes):
    layers = [nn.Conv2d(channels, 16, 3, padding=1, bias=False), nn.GroupNorm(2, 16), nn.ReLU()]
    inputs = 16
    for stage, width in enumerate((16, 32, 64)):
        for block in range(3):
            layers.append(Block20(inputs, width, 2 if stage and not block else 1))
            inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


class LeafLSTM(nn.Module):
    """LEAF's character model: embedding 8, two LSTMs of 100, the last step."""

    def __init__(self, classes: int):
        super().__init__()
        self.embedding = nn.Embedding(classes, 8)
        self.lstm = nn.LSTM(8, 100, num_layers=2, batch_first=True)
        self.classifier = nn.Linear(100, classes)

    def forward(self, x):
        return self.classifier(self.lstm(self.embedding(x))[0][:, -1])


class NextToken(nn.Module):
    """Embedding, LSTMs [, dense], classifier at every step: logits [B, classes, T], as cross_entropy takes them.

    Args:
      project: width of the dense layer; 0: none.
    """

    def __init__(self, classes: int, embed: int, hidden: int, layers: int, project: int = 0):
        super().__init__()
        self.embedding = nn.Embedding(classes, embed)
        self.lstm = nn.LSTM(embed, hidden, num_layers=layers, batch_first=True)
        self.projection = nn.Linear(hidden, project) if project else nn.Identity()
        self.classifier = nn.Linear(project or hidden, classes)

    def forward(self, x):
        return self.classifier(self.projection(self.lstm(self.embedding(x))[0])).transpose(1, 2)


class Block18(nn.Module):
    """A ResNet-18 block with GroupNorm(2)."""

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(2, width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(2, width)
        self.shortcut = nn.Identity()
        if stride > 1 or inputs != width:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.GroupNorm(2, width))

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def _resnet18(channels, classes):
    """ResNet-18 with the stem of ImageNet's networks: 7x7 at stride 2, max-pool 3x3 at stride 2."""
    layers = [nn.Conv2d(channels, 64, 7, 2, 3, bias=False), nn.GroupNorm(2, 64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, width in enumerate((64, 128, 256, 512)):
        for block in range(2):
            layers.append(Block18(inputs, width, 2 if stage and not block else 1))
            inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def build(model: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Returns the network of a case; shape is that of one example, channels last."""
    channels = shape[-1]
    builders = {
        "digits_cnn": lambda: _digits_cnn(channels, classes),
        "mlp": lambda: _mlp(channels, classes),
        "pfl_cnn": lambda: _dropout_cnn(channels, classes, shape[0]),
        "emnist_cnn": lambda: _dropout_cnn(channels, classes, shape[0]),
        "lenet5": lambda: _lenet5(channels, classes),
        "resnet20": lambda: _resnet20(channels, classes),
        "leaf_lstm": lambda: LeafLSTM(classes),
        "logistic": lambda: nn.Linear(channels, classes),
        "emnist_dense": lambda: nn.Sequential(nn.Flatten(), *_mlp(math.prod(shape), classes)),
        "resnet18:variant=imagenet": lambda: _resnet18(channels, classes),
        "leaf_lstm:hidden=256,predict=all": lambda: NextToken(classes, 8, 256, 2),
        "stackoverflow_lstm:predict=all": lambda: NextToken(classes, 96, 670, 1, project=96),
    }
    return builders[model]()


def tensors(x, y):
    """Returns each client's examples as tensors: images with channels first, ids and labels int64."""
    images = [torch.from_numpy(each) for each in x]
    images = [each if each.is_floating_point() else each.long() for each in images]
    images = [each.movedim(-1, 1).contiguous() if each.ndim == 4 else each for each in images]
    return images, [torch.from_numpy(each).long() for each in y]
