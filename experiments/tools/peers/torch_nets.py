"""The benchmark's networks in PyTorch, as a PyTorch user writes them."""

import math

import torch
from torch import nn


class Block(nn.Module):
    """A block of a ResNet with GroupNorm(2).

    Args:
      projected: whether the shortcut is a convolution where the shape changes, else it has no parameters.
    """

    def __init__(self, inputs: int, width: int, stride: int, projected: bool):
        super().__init__()
        self.stride, self.extra, self.projection = stride, width - inputs, None
        self.path = nn.Sequential(
            nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.GroupNorm(2, width), nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.GroupNorm(2, width),
        )  # fmt: skip
        if projected and (stride > 1 or self.extra):
            self.projection = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.GroupNorm(2, width))

    def forward(self, x):
        y = self.path(x)
        if self.projection is not None:
            x = self.projection(x)
        elif self.extra or self.stride > 1:
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


def _resnet(channels, stem, widths, blocks, projected, classes):
    """Returns a ResNet with `blocks` blocks per width.

    Args:
      stem: kernel, stride and padding of the first convolution.
      projected: see `Block`; such networks have the stem of ImageNet's, with max-pool 3x3 at stride 2.
    """
    layers = [nn.Conv2d(channels, widths[0], *stem, bias=False), nn.GroupNorm(2, widths[0]), nn.ReLU()]
    inputs = widths[0]
    if projected:
        layers.append(nn.MaxPool2d(3, 2, 1))
    for width in widths:
        for block in range(blocks):
            layers.append(Block(inputs, width, 2 if width > widths[0] and not block else 1, projected))
            inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


class TokenLSTM(nn.Module):
    """Embedding, LSTMs [, dense], classifier.

    Its logits are those of every step, [B, classes, T], as cross_entropy takes them, or of the last step, [B, classes].

    Args:
      project: width of the dense layer; 0: none.
      last: whether it predicts after the last step alone.
    """

    def __init__(self, classes: int, embed: int, hidden: int, layers: int, project: int = 0, last: bool = False):
        super().__init__()
        self.last = last
        self.embedding = nn.Embedding(classes, embed)
        self.lstm = nn.LSTM(embed, hidden, num_layers=layers, batch_first=True)
        self.projection = nn.Linear(hidden, project) if project else nn.Identity()
        self.classifier = nn.Linear(project or hidden, classes)

    def forward(self, x):
        y = self.lstm(self.embedding(x))[0]
        y = self.classifier(self.projection(y[:, -1] if self.last else y))
        return y if self.last else y.transpose(1, 2)


class TransformerBlock(nn.Module):
    """x + attention(norm1(x)), then x + down(GELU(up(norm2(x)))); one dense layer gives query, key and value."""

    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        split = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1))
        y = nn.functional.scaled_dot_product_attention(*split.permute(2, 0, 3, 1, 4), is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Transformer(nn.Module):
    """A causal decoder of tokens whose classifier is the embedding; logits [B, classes, T]."""

    def __init__(self, classes: int, positions: int, layers: int = 2, width: int = 64, causal: bool = True):
        super().__init__()
        self.embedding = nn.Parameter(0.02 * torch.randn(classes, width))
        self.positions = nn.Parameter(0.02 * torch.randn(positions, width))
        self.blocks = nn.Sequential(*[TransformerBlock(width, 4, causal) for _ in range(layers)], nn.LayerNorm(width))

    def forward(self, x):
        y = self.blocks(nn.functional.embedding(x, self.embedding) + self.positions)
        return nn.functional.linear(y, self.embedding).transpose(1, 2)


class ViT(Transformer):
    """Patches, a class token (the only embedding), positions, blocks and a classifier of the token."""

    def __init__(self, channels: int, side: int, classes: int, patch: int = 4, width: int = 64):
        super().__init__(1, (side // patch) ** 2 + 1, 4, width, False)
        self.patches, self.classifier = nn.Conv2d(channels, width, patch, patch), nn.Linear(width, classes)

    def forward(self, x):
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.embedding.expand(len(y), 1, -1), y], 1) + self.positions
        return self.classifier(self.blocks(y)[:, 0])


def build(model: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Returns the network of a case; shape is that of one example, channels last."""
    channels = shape[-1]
    builders = {
        "digits_cnn": lambda: _digits_cnn(channels, classes),
        "mlp": lambda: _mlp(channels, classes),
        "pfl_cnn": lambda: _dropout_cnn(channels, classes, shape[0]),
        "emnist_cnn": lambda: _dropout_cnn(channels, classes, shape[0]),
        "lenet5": lambda: _lenet5(channels, classes),
        "resnet20": lambda: _resnet(channels, (3, 1, 1), (16, 32, 64), 3, False, classes),
        "transformer": lambda: Transformer(classes, shape[0]),
        "vit": lambda: ViT(channels, shape[0], classes),
        "leaf_lstm": lambda: TokenLSTM(classes, 8, 100, 2, last=True),
        "logistic": lambda: nn.Linear(channels, classes),
        "emnist_dense": lambda: nn.Sequential(nn.Flatten(), *_mlp(math.prod(shape), classes)),
        "resnet18:variant=imagenet": lambda: _resnet(channels, (7, 2, 3), (64, 128, 256, 512), 2, True, classes),
        "leaf_lstm:hidden=256,predict=all": lambda: TokenLSTM(classes, 8, 256, 2),
        "stackoverflow_lstm:predict=all": lambda: TokenLSTM(classes, 96, 670, 1, project=96),
    }
    return builders[model]()


def tensors(x, y):
    """Returns each client's examples as tensors: images with channels first, ids and labels int64."""
    images = [torch.from_numpy(each) for each in x]
    images = [each if each.is_floating_point() else each.long() for each in images]
    images = [each.movedim(-1, 1).contiguous() if each.ndim == 4 else each for each in images]
    return images, [torch.from_numpy(each).long() for each in y]
