"""Writes image data sets in the layout of their publishers."""

import io
import pickle

import numpy as np
from PIL import Image


def picture(color, size=(40, 30), kind="JPEG") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size, color).save(stream, kind)
    return stream.getvalue()


def write_landmarks(folder, users=("7", "10", "7", "3")):
    (folder / "images" / "a").mkdir(parents=True)
    lines = ["user_id,image_id,class"]
    for k, user in enumerate(users):
        (folder / "images" / "a" / f"id{k}.jpg").write_bytes(picture((60 * k, 0, 0)))
        lines.append(f"{user},id{k},{k}")
    (folder / "federated_train.csv").write_text("\n".join(lines))
    (folder / "images" / "t.jpg").write_bytes(picture((0, 255, 0)))
    (folder / "test.csv").write_text("image_id,class\nt,3\n")


def write_pacs(root, n=10):
    for domain in ("photo", "art_painting", "cartoon", "sketch"):
        for c in ("dog", "person"):
            folder = root / "PACS" / domain / c
            folder.mkdir(parents=True)
            for i in range(n):
                (folder / f"{i}.png").write_bytes(picture((20 * i, 0, 0), (8, 8), "PNG"))


SHAPES = {
    "MNIST": (28, 28, 1),
    "SVHN": (32, 32, 3),
    "USPS": (16, 16),
    "SynthDigits": (32, 32, 3),
    "MNIST_M": (28, 28, 3),
}


def write_fedbn(root, names=tuple(SHAPES)):
    rng = np.random.default_rng(0)
    for name in names:
        folder = root / "digit_dataset" / name / "partitions"
        folder.mkdir(parents=True)
        make = lambda n: (rng.integers(0, 256, (n, *SHAPES[name]), np.uint8), rng.integers(0, 10, n))
        for i in range(10):
            (folder / f"train_part{i}.pkl").write_bytes(pickle.dumps(make(4)))
        (folder.parent / "test.pkl").write_bytes(pickle.dumps(make(3)))
