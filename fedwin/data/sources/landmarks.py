"""Landmarks-User-160k: photographs of landmarks by photographer, Hsu et al. 2020, https://arxiv.org/abs/2003.08082."""

from fedwin.data.dataset import DATASETS, Dataset, FullSize
from fedwin.data.sources.folder import find
from fedwin.registry.ranges import PositiveInt

LISTS = "http://storage.googleapis.com/gresearch/federated-vision-datasets/landmarks-user-160k.zip"
SMALL = "https://storage.googleapis.com/tff-datasets-public/"


@DATASETS.register(
    "landmarks",
    title="Landmarks-User-160k",
    how="lists download; images by hand",
    sizes="1,262 / 164,172 / those in `test.csv`",
    full=lambda params: FullSize(23_080, None, 233) if params["small"] else FullSize(164_172, None, 1_262),
    prepared="not measured: file not available",
    downloads=(LISTS,),
    variants={"small=true": (SMALL + "mini_gld_train_split.csv", SMALL + "mini_gld_test.csv")},
    by_hand="the images <image_id>.jpg named in the lists, from "
    "https://s3.amazonaws.com/google-landmark/train/images_000.tar to _499",
    checksums={
        "landmarks-user-160k.zip": ("md5", "53c36bd7d5fc12f927af2820b7e4a57c"),
        "mini_gld_train_split.csv": ("md5", "9fd62cf79a67046fdd673d3a0ac52841"),
        "mini_gld_test.csv": ("md5", "298e9d19d66357236f66fe8e22920933"),
    },
)
def landmarks(data_dir, *, size: PositiveInt = 224, resize: PositiveInt = 256, small: bool = False) -> Dataset:
    """Landmarks-User-160k: 164,172 images of 2,028 landmarks by 1,262 photographers; images are decoded on access.

    Args:
      data_dir: folder with `federated_train.csv`, `test.csv` and the images `<image_id>.jpg` at any depth, or the
        archives `images_NNN.tar` that contain them.
      small: whether to load gld23k, with 233 clients and 203 classes (`mini_gld_train_split.csv`, `mini_gld_test.csv`).

    Source: https://arxiv.org/abs/2003.08082.
    """
    names = ("mini_gld_train_split.csv", "mini_gld_test.csv") if small else ("federated_train.csv", "test.csv")
    lists = tuple((name,) for name in names)
    photos = find("landmarks", data_dir, ("landmark*", "gld*"), lists, ("user_id",), LISTS)
    return photos.load("landmarks", size, resize, 203 if small else 2028)
