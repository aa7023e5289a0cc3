"""Image folders with lists, PACS, Digit Five, and examples decoded on access."""

import gzip
import io
import pickle
import tarfile
import threading
import zipfile

import numpy as np
import pytest
from PIL import Image

from fedwin import data
from fedwin.data import reader as source
from fedwin.data.sources import digit5
from fedwin.errors import UserError

from .test_mnist import encode

pytestmark = pytest.mark.filterwarnings("ignore:.*unverified")


def picture(colour, size=(40, 30), kind="JPEG") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size, colour).save(stream, kind)
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


@pytest.mark.parametrize(
    "name, folder", [("landmarks", "landmarks-user-160k"), ("inaturalist", "inat"), ("landmarks", "")]
)
def test_lists_with_image_folders(tmp_path, name, folder):
    (tmp_path / folder).mkdir(exist_ok=True)
    write_landmarks(tmp_path / folder)
    dataset = data.load(f"{name}:size=16,resize=20", tmp_path)
    assert dataset.natural.ids.tolist() == ["3", "7", "10"]
    assert [dataset.natural.client(k).tolist() for k in range(3)] == [[3], [0, 2], [1]]
    assert dataset.train["x"].shape == (4, 16, 16, 3) and dataset.train["y"].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(dataset.train["x"][2][8, 8], [120, 0, 0], atol=4)
    np.testing.assert_allclose(np.asarray(dataset.test["x"])[0, 8, 8], [0, 255, 0], atol=4)
    part = data.deal(dataset, None, None, 0)
    assert part.report["histogram"].shape == (3, dataset.num_classes)


def test_lists_inside_their_zip(tmp_path):
    write_landmarks(tmp_path)
    with zipfile.ZipFile(tmp_path / "landmarks-user-160k.zip", "w") as archive:
        for name in ("federated_train.csv", "test.csv"):
            archive.write(tmp_path / name, f"landmarks-user-160k/{name}")
            (tmp_path / name).unlink()
    assert data.load("landmarks:size=8,resize=8", tmp_path).natural.ids.tolist() == ["3", "7", "10"]


def test_tff_lists_choose_the_clients_column(tmp_path):
    for k in range(3):
        (tmp_path / f"{k}.png").write_bytes(picture((k, k, k), kind="PNG"))
    (tmp_path / "iNaturalist_train.csv").write_text("user_120k,geo_100,image_id,class\nu1,g,0,5\nNA,g,1,6\n")
    (tmp_path / "iNaturalist_test.csv").write_text("user_120k,geo_100,image_id,class\nNA,NA,2,1\n")
    dataset = data.load("inaturalist:size=8,resize=8", tmp_path)
    assert dataset.train["y"].tolist() == [5] and dataset.natural.ids.tolist() == ["u1"]
    assert data.load("inaturalist:size=8,resize=8,users=geo_100", tmp_path).natural.sizes.tolist() == [2]


def test_any_folder_or_tar_of_images_with_lists(tmp_path):
    write_landmarks(tmp_path)
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        archive.add(tmp_path / "images", "images")
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "images", "images")
    lists = "train=federated_train.csv,test=test.csv,size=8,resize=8"
    seen = [
        data.load(f"image_folder:{lists},images={place}", tmp_path) for place in ("images", "all.tar", "all.tar.gz")
    ]
    for dataset in seen:
        np.testing.assert_array_equal(np.asarray(dataset.train["x"]), np.asarray(seen[0].train["x"]))
    assert seen[0].num_classes == 4 and seen[0].natural.num_clients == 3
    (tmp_path / "federated_train.csv").write_text("image_id,class\nid0,0\nid1,1\n")
    assert data.load(f"image_folder:{lists},images=images", tmp_path).natural is None


@pytest.mark.parametrize(
    "train, message",
    [
        ("user_id,image_id,class\n1,id0,0\n1,id9,1\n", "federated_train.csv: image 'id9' .record 2."),
        ("user_id,image_id,class\n1,id0,0\n2,id0,1\n", "line 3: image 'id0' is listed twice"),
        ("user_id,image_id,class\n1,id0,cat\n", "line 2: class 'cat'"),
        ("user_id,image_id,class\n1,id0,2028\n", "record 1: class 2028 is not in 0..2027"),
        ("user,image,class\n1,id0,0\n", "column image_id, user_id is missing"),
        ("user_id,image_id,class\n", "lists no image"),
        ("user_id,image_id,class\n1,id0,2.7\n", "line 2: class '2.7' is not a whole number"),
        ("user_id,image_id,class\n1,id0,inf\n", "line 2: class 'inf' is not a whole number"),
        ("user_id,image_id,class\n1,id0,nan\n", "line 2: class 'nan' is not a whole number"),
        ("user_id,image_id,class\n1,id0,3e9\n", "line 2: class '3e9' is not a whole number"),
        ("user_id,image_id,class\n1,id0,-1\n", "line 2: class '-1' is not a whole number >= 0"),
        ("image_id,class,user_id\nid0,0,1\nid1,1\n", "line 3: it has fewer values than the 3 columns"),
        ('user_id,image_id,class\n1,"id0,0\n1,id1,1\n', "line 2: not a CSV file .*is a quote left open"),
        ('user_id,image_id,class\n1,"' + "id0,0\n" * 30_000, "not a CSV file"),
        ('user_id,"image_id,class\n', "not a CSV file"),
    ],
)
def test_bad_lists_are_named(tmp_path, train, message):
    write_landmarks(tmp_path)
    (tmp_path / "federated_train.csv").write_text(train)
    with pytest.raises(UserError, match=message) as error:
        data.load("landmarks", tmp_path)
    assert "\n" not in str(error.value)


def test_an_image_that_two_files_may_be_is_refused(tmp_path):
    write_landmarks(tmp_path)
    other = tmp_path / "images" / "b"
    other.mkdir()
    (other / "id1.jpg").write_bytes(picture((0, 0, 9)))
    both = r"image 'id1' .record 2. names 2 files, .*/images/a/id1.jpg and .*/images/b/id1.jpg"
    with pytest.raises(UserError, match=f"federated_train.csv: {both}"):
        data.load("landmarks", tmp_path)
    text = (tmp_path / "federated_train.csv").read_text()
    (tmp_path / "federated_train.csv").write_text(text.replace("id1", "b/id1"))  # a path leaves no doubt
    np.testing.assert_allclose(data.load("landmarks:size=8", tmp_path).train["x"][1][4, 4], [0, 0, 9], atol=4)
    (other / "id1.png").write_bytes(picture((0, 0, 9), kind="PNG"))
    with pytest.raises(UserError, match="image 'b/id1' .record 2. names 2 files"):
        data.load("landmarks", tmp_path)


def test_lists_of_spreadsheets(tmp_path):
    write_landmarks(tmp_path)
    text = (tmp_path / "federated_train.csv").read_text()
    (tmp_path / "federated_train.csv").write_text("\ufeff" + text.replace(",3\n", ",3.0\n").replace("\n", "\r\n"))
    assert data.load("landmarks", tmp_path).train["y"].tolist() == [0, 1, 2, 3]


def test_an_undecodable_or_vanished_image_is_named_when_it_is_used(tmp_path):
    write_landmarks(tmp_path)
    path = tmp_path / "images" / "a" / "id1.jpg"
    path.write_bytes(path.read_bytes()[:150])
    dataset = data.load("landmarks:size=8,resize=8", tmp_path)
    with pytest.raises(UserError, match="id1.jpg: not a decodable image"):
        np.asarray(dataset.train["x"])
    path.unlink()
    with data.ExampleSource(dataset.train, threads=2) as lazy, pytest.raises(UserError, match="id1.jpg.*No such file"):
        lazy.gather([0, 1])


def write_pacs(root, n=10):
    for domain in ("photo", "art_painting", "cartoon", "sketch"):
        for c in ("dog", "person"):
            folder = root / "PACS" / domain / c
            folder.mkdir(parents=True)
            for i in range(n):
                (folder / f"{i}.png").write_bytes(picture((20 * i, 0, 0), (8, 8), "PNG"))


@pytest.mark.parametrize("packed", ["", ".tar", ".tar.gz"])
def test_pacs_from_folders_and_archives(tmp_path, packed):
    write_pacs(tmp_path / "x")
    place = tmp_path / "x"
    if packed:
        place = tmp_path / "y"
        place.mkdir()
        with tarfile.open(place / f"pacs{packed}", "w:gz" if packed.endswith("gz") else "w") as archive:
            archive.add(tmp_path / "x" / "PACS", "PACS")
    dataset = data.load("pacs:size=8,resize=8", place)
    assert (
        np.bincount(dataset.train["domain"]).tolist() == [18] * 4
        and np.bincount(dataset.test["domain"]).tolist() == [2] * 4
    )
    assert set(dataset.train["y"]) == {0, 6} and np.asarray(dataset.train["x"]).shape == (72, 8, 8, 3)
    again = data.load("pacs:size=8,resize=8", place)
    np.testing.assert_array_equal(dataset.test["y"], again.test["y"])
    part = data.deal(dataset, "domain:inner=iid", 8, 0)
    assert sorted(part.domain) == [0, 0, 1, 1, 2, 2, 3, 3] and part.report["left_out"] == 0


def test_incomplete_pacs_is_named(tmp_path):
    write_pacs(tmp_path)
    (tmp_path / "PACS" / "photo" / "cat").mkdir()
    (tmp_path / "PACS" / "photo" / "cat" / "0.png").write_bytes(picture((0, 0, 0), kind="PNG"))
    with pytest.raises(UserError, match="class folder 'cat'"):
        data.load("pacs", tmp_path)
    for file in (tmp_path / "PACS" / "photo").glob("*/*"):
        file.unlink()
    with pytest.raises(UserError, match="no images of photo"):
        data.load("pacs", tmp_path)
    with pytest.raises(UserError, match="test_fraction=1"):
        data.load("pacs:test_fraction=1", tmp_path)


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


@pytest.mark.parametrize("packed", [True, False])
def test_digit_five_from_fedbns_archive(tmp_path, packed):
    write_fedbn(tmp_path)
    place = tmp_path
    if packed:
        place = tmp_path / "only"
        place.mkdir()
        with zipfile.ZipFile(place / "digit_dataset.zip", "w") as archive:
            for file in (tmp_path / "digit_dataset").glob("**/*.pkl"):
                archive.write(file, file.relative_to(tmp_path))
    dataset = data.load("digit5", place)
    assert dataset.train["x"].shape == (200, 28, 28, 3) and dataset.train["x"].dtype == np.uint8
    assert (
        np.bincount(dataset.train["domain"]).tolist() == [40] * 5
        and np.bincount(dataset.test["domain"]).tolist() == [3] * 5
    )
    grey = pickle.loads((tmp_path / "digit_dataset/MNIST/partitions/train_part0.pkl").read_bytes())
    np.testing.assert_array_equal(dataset.train["x"][:4], np.repeat(grey[0], 3, -1))
    assert len(data.load("digit5:parts=2", place).train["y"]) == 40
    part = data.deal(dataset, "domain:inner=shards", 10, 0)
    assert np.bincount(part.domain).tolist() == [2] * 5


def test_digit_five_pickles_are_checked(tmp_path):
    write_fedbn(tmp_path)
    path = tmp_path / "digit_dataset/SVHN/partitions/train_part3.pkl"
    path.write_bytes(pickle.dumps(print))
    with pytest.raises(UserError, match="train_part3.pkl.*print"):
        data.load("digit5", tmp_path)
    path.write_bytes(pickle.dumps((np.full((2, 8, 8, 1), np.nan), np.array([1, 2]))))
    with pytest.raises(UserError, match="train_part3.pkl: pixels are NaN"):
        data.load("digit5", tmp_path)
    path.unlink()
    with pytest.raises(UserError, match="train_part3.pkl is missing"):
        data.load("digit5", tmp_path)
    with pytest.raises(UserError, match="domains=mnist.cifar"):
        data.load("digit5:domains=mnist+cifar", tmp_path)


def test_digit_five_from_the_original_files(tmp_path):
    from scipy.io import savemat

    rng = np.random.default_rng(0)
    image = lambda n, *shape: rng.integers(0, 256, (n, *shape), np.uint8)
    labels = lambda n: (np.arange(n) % 10).astype(np.uint8)
    for name in ("mnist", "svhn", "usps", "synth", "mnist_m"):
        (tmp_path / name).mkdir()
    for split, side in (("train", "train"), ("t10k", "test")):
        (tmp_path / "mnist" / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(encode(image(25, 28, 28))))
        (tmp_path / "mnist" / f"{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(encode(labels(25))))
        short = rng.integers(-1000, 1001, (25, 16, 16)).astype(np.int16)
        (tmp_path / "usps" / f"usps-{side}-images-idx3-short").write_bytes(encode(short))
        (tmp_path / "usps" / f"usps-{side}-labels-idx1-ubyte").write_bytes(encode(labels(25)))
        svhn = np.where(labels(25) == 0, 10, labels(25)).reshape(-1, 1)
        for folder, prefix in (("svhn", ""), ("synth", "synth_")):
            savemat(
                tmp_path / folder / f"{prefix}{side}_32x32.mat",
                {"X": image(25, 32, 32, 3).transpose(1, 2, 3, 0), "y": svhn},
            )
        folder = tmp_path / "mnist_m" / f"mnist_m_{side}"
        folder.mkdir()
        lines = []
        for i in range(25):
            (folder / f"{i:08d}.png").write_bytes(picture((i, 0, 0), (32, 32), "PNG"))
            lines.append(f"{i:08d}.png {i % 10}")
        (tmp_path / "mnist_m" / f"mnist_m_{side}_labels.txt").write_text("\n".join(lines))
    dataset = data.load("digit5:per_domain=38", tmp_path)
    assert (
        np.bincount(dataset.train["domain"]).tolist() == [38] * 5
        and np.bincount(dataset.test["domain"]).tolist() == [10] * 5
    )
    assert (np.bincount(dataset.test["y"]) == 5).all()  # stratified: one of each class and domain
    (tmp_path / "mnist_m" / "mnist_m_train" / "00000003.png").unlink()
    with pytest.raises(UserError, match="mnist_m_train_labels.txt, line 4: image .*00000003.png is missing"):
        data.load("digit5", tmp_path)
    with pytest.raises(UserError, match="found no mnist"):
        data.load("digit5", tmp_path / "usps")


@pytest.mark.parametrize("n, held", [(70_000, 14_000), (9_298, 1_860), (99_289, 19_858), (488_953, 97_791)])
def test_digit_five_splits_have_the_published_sizes(n, held):
    labels = np.random.default_rng(0).integers(0, 10, n)
    train, test = digit5.stratified(labels, 7438, np.random.default_rng(1))
    assert len(test) == held and len(train) == 7438 and not set(test) & set(train)
    assert np.abs(np.bincount(labels[test]) - 0.2 * np.bincount(labels)).max() <= 1


def test_images_behave_like_a_read_only_array():
    images = data.Images([picture((k, 2 * k, 0), (10, 8), "PNG") for k in range(6)], 4, 6)
    whole = np.asarray(images)
    assert images.shape == whole.shape == (6, 4, 4, 3) and images.dtype == whole.dtype and len(images) == 6
    assert images.nbytes == whole.nbytes and images.ndim == whole.ndim
    np.testing.assert_array_equal(whole[:, 1, 1, 1], 2 * np.arange(6))
    for rows in (3, slice(1, 4), [5, 0, 0], np.array([True, False] * 3), -1):
        np.testing.assert_array_equal(images[rows], whole[rows])
    grey = data.Images([picture((9, 9, 9), kind="PNG")], 4, channels=1)
    assert grey[0].shape == (4, 4, 1) and grey[0].max() == 9
    with pytest.raises(UserError, match="resize >= size"):
        data.Images([], 10, 5)


def test_the_short_side_is_scaled_and_the_centre_cut():
    wide = np.zeros((10, 40, 3), np.uint8)
    wide[:, 15:25] = 255
    stream = io.BytesIO()
    Image.fromarray(wide).save(stream, "PNG")
    cut = source.decode(stream.getvalue(), 8, 10)
    assert cut.shape == (8, 8, 3) and (cut == 255).all()


def test_gather_and_prefetch_give_the_same_rows(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(200).reshape(50, 4))
    images = data.Images([picture((k, 0, 0), (4, 4), "PNG") for k in range(50)], 4)
    features = {"x": images, "m": np.load(tmp_path / "x.npy", mmap_mode="r"), "y": np.arange(50)}
    with data.ExampleSource(features, threads=3) as lazy:
        assert len(lazy) == 50
        rows = np.random.default_rng(0).integers(0, 50, (7, 2, 3))
        for batch, examples in zip(rows, lazy.prefetch(iter(rows)), strict=True):
            assert examples["x"].shape == (2, 3, 4, 4, 3)
            np.testing.assert_array_equal(examples["x"][..., 0, 0, 0], batch)
            np.testing.assert_array_equal(examples["m"][..., 0], 4 * batch)
            np.testing.assert_array_equal(examples["y"], batch)
            assert not isinstance(examples["m"], np.memmap)
        assert lazy.gather(np.zeros((0,), int))["x"].shape == (0, 4, 4, 3)
        for bad in ([50], [-1]):
            with pytest.raises(UserError, match="is not in 0..49"):
                lazy.gather(bad)
    with pytest.raises(UserError, match="differ in length"):
        data.ExampleSource({"x": images, "y": np.arange(3)})


def test_prefetch_decodes_ahead_but_not_further_than_asked():
    started, gate = [], threading.Event()

    class Slow(data.Images):
        def image(self, item):
            started.append(item)
            gate.wait(5)
            return np.zeros((1, 1, 3), np.uint8)

    with data.ExampleSource({"x": Slow(range(100), 1)}, threads=1) as lazy:
        asked = []

        def batches():
            for k in range(10):
                asked.append(k)
                yield np.array([k])

        stream = lazy.prefetch(batches(), depth=2)
        gate.set()
        next(stream)
        assert asked == [0, 1, 2]  # the batch in hand and two ahead
        assert len(list(stream)) == 9 and started == list(range(10))
