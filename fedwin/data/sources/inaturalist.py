"""iNaturalist-User-120k: photographs of species by observer, Hsu et al. 2020, https://arxiv.org/abs/2003.08082."""

from fedwin.data.dataset import DATASETS, Dataset, FullSize
from fedwin.data.sources.folder import find
from fedwin.registry.ranges import PositiveInt


@DATASETS.register(
    "inaturalist",
    title="iNaturalist-User-120k",
    how="by hand",
    sizes="9,275 / 120,300 / 35,641",
    full=lambda params: FullSize(120_300, 35_641, 9_275) if params["users"] == "user_120k" else FullSize(),
    prepared="not measured: file not available",
    by_hand="iNaturalist_{train,test}.csv, and train_val_images.tar.gz and test2017.tar.gz from "
    "https://ml-inat-competition-datasets.s3.amazonaws.com/2017/",
    checksums={
        "iNaturalist_train.csv": ("md5", "63d5a41699434bc2b13f5853f3764c18"),
        "iNaturalist_test.csv": ("md5", "bcf08a5a740ee76dac4e5af668081891"),
        "train_val_images.tar.gz": ("md5", "7c784ea5e424efaec655bd392f87301f"),
        "test2017.tar.gz": ("md5", "7d9b096fa1cd94d67a0fa779ea301234"),
    },
)
def inaturalist(data_dir, *, size: PositiveInt = 224, resize: PositiveInt = 256, users: str = "user_120k") -> Dataset:
    """iNaturalist-User-120k: 120,300 images of 1,203 species by 9,275 observers; images are decoded on access.

    Args:
      data_dir: folder with TFF's `iNaturalist_train.csv` and `iNaturalist_test.csv`, or `federated_train.csv` and
        `test.csv`, and the images of the 2017 competition at any depth.
      users: name of the column of clients in TFF's list (`user_120k`, `geo_100`, ...).

    Source: https://arxiv.org/abs/2003.08082.
    """
    source = "http://storage.googleapis.com/gresearch/federated-vision-datasets/inaturalist-user-120k.zip"
    lists = ("iNaturalist_train.csv", "federated_train.csv"), ("iNaturalist_test.csv", "test.csv")
    photos = find("inaturalist", data_dir, ("inat*",), lists, (users, "user_id"), source)
    return photos.load("inaturalist", size, resize, 1203)
