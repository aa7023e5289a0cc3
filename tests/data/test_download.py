"""Downloads: unusual failures, files that a choice needs, checksums of files copied by hand."""

import hashlib
import http.server
import io
import lzma
import socketserver
import threading
import warnings

import numpy as np
import pytest

from experiments import prepare
from fedwin import data
from fedwin.data import download
from fedwin.data.formats import checksums, files
from fedwin.errors import UserError
from tests.data.files import objects, write_fedjax_sqlite, write_tff_sqlite
from tests.data.idx_files import write


def serve(answer: bytes):
    """Starts a server that answers every request with these bytes; returns it and its address."""

    class Raw(socketserver.StreamRequestHandler):
        def handle(self):
            while self.rfile.readline().strip():
                pass
            self.wfile.write(answer)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Raw)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}/file.bin"


@pytest.mark.parametrize(
    "answer, message",
    [
        (b"nonsense\r\n\r\n", "cannot be reached .*nonsense.*download it by hand"),
        (b"", "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", "cannot be reached"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", "interrupted after"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "interrupted after 3 of 9 bytes|interrupted after"),
    ],
)
def test_answers_that_are_not_http_or_end_early(tmp_path, answer, message):
    server, url = serve(answer)
    with pytest.raises(UserError, match=message) as error:
        download.fetch(url, tmp_path)
    server.shutdown()
    server.server_close()
    assert "\n" not in str(error.value) and not (tmp_path / "file.bin").exists()


def test_an_odd_length_is_no_error(tmp_path):
    server, url = serve(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\nConnection: close\r\n\r\nabc")
    assert download.fetch(url, tmp_path).read_bytes() == b"abc"
    server.shutdown()
    server.server_close()


def test_a_disk_that_is_full_or_not_ours_is_named(tmp_path, monkeypatch):
    server, url = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")

    class Full(io.BytesIO):
        def write(self, piece):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(download, "open", lambda *_: Full(), raising=False)
    with pytest.raises(UserError, match="file.bin: cannot be written .No space left on device."):
        download.fetch(url, tmp_path)
    monkeypatch.undo()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written .Not a directory|cannot be written .File exists"):
        download.fetch(url, tmp_path / "file" / "below")
    with pytest.raises(UserError, match="file/below: cannot be made"):
        prepare.prepare("mnist", tmp_path / "file" / "below", tmp_path / "cache")
    server.shutdown()
    server.server_close()


def test_an_archive_as_data_dir_has_its_cache_next_to_it(tmp_path):
    write_tff_sqlite(tmp_path / "plain.sqlite", pam())
    path = tmp_path / "cifar100.sqlite.lzma"
    path.write_bytes(lzma.compress((tmp_path / "plain.sqlite").read_bytes(), format=lzma.FORMAT_ALONE))
    with pytest.warns(UserWarning, match="unverified"):
        text = prepare.prepare("cifar100_pam", path, path)
    assert "2 clients, checksums unverified" in text and (tmp_path / "cifar100_pam.fedwin").is_dir()
    with pytest.raises(UserError, match="found no mnist|not a readable tar or zip archive"):
        prepare.prepare("mnist", path, tmp_path)


def names(text):
    return [url.rsplit("/", 1)[-1] for url, _, _ in download.download_urls(text)]


def test_a_choice_downloads_the_files_that_it_reads():
    assert names("landmarks") == names("landmarks:size=64") == ["landmarks-user-160k.zip"]
    assert names("landmarks:small=true,size=64") == ["mini_gld_train_split.csv", "mini_gld_test.csv"]
    assert names("femnist_digits:form=hdf5") == ["fed_emnist_digitsonly.tar.bz2"]
    assert names("femnist:paper=1") == names("femnist") and names("femnist:form=leaf") == names("pacs") == []


def test_downloads_and_loaders_have_the_same_checksums():
    known = 0
    for name, entry in data.DATASETS.entries.items():
        for text in (name, *(f"{name}:{params}" for params in dict(entry.facts["variants"]))):
            for url, kind, checksum in download.download_urls(text):
                assert checksums.published_checksum(name, url.rsplit("/", 1)[-1]) == (kind, checksum)
                known += kind is not None
    assert known == 21
    sizes = {"md5": 32, "sha256": 64}
    for entry in data.DATASETS.entries.values():
        assert all(len(checksum) == sizes[kind] for kind, checksum in dict(entry.facts["checksums"]).values())


def pam():
    row = {"image": np.zeros(3072, int), "label": np.array([1]), "coarse_label": np.array([2])}
    return {"train": {"a": [row], "b": [row]}, "test": {"c": [row]}}


@pytest.mark.parametrize("form", ["download", "decoded"])
def test_a_file_with_the_published_checksum_is_verified(tmp_path, monkeypatch, form):
    """Files of the format stand for the originals: the table gets their checksums."""
    if form == "download":
        path = tmp_path / "cifar100.sqlite.lzma"
        write_tff_sqlite(path, pam(), compress=True)
        right = {path.name: ("sha256", files.file_digest(path, "sha256"))}
    else:
        right = {}
        for side in ("train", "test"):
            path = tmp_path / f"federated_cifar100_{side}.sqlite"
            write_fedjax_sqlite(path, {b"a": {"image": np.zeros((1, 32, 32, 3), np.uint8), "label": np.array([1])}})
            right[path.name] = ("sha256", files.file_digest(path, "sha256"))
            path.with_name(path.name + ".xz").write_bytes(lzma.compress(path.read_bytes()))
            path.unlink()
    with pytest.warns(UserWarning, match="cifar100_pam: unverified"):
        assert not data.load("cifar100_pam", tmp_path).verified
    monkeypatch.setitem(data.DATASETS.entries["cifar100_pam"].facts, "checksums", right)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert data.load("cifar100_pam", tmp_path).verified
        assert ", verified\n" in prepare.prepare("cifar100_pam", tmp_path, tmp_path / "cache")


def test_idx_files_are_verified_as_distributed(tmp_path, monkeypatch):
    write(tmp_path)
    right = {path.name: ("sha256", hashlib.sha256(path.read_bytes()).hexdigest()) for path in tmp_path.iterdir()}
    monkeypatch.setitem(data.DATASETS.entries["fmnist"].facts, "checksums", right)
    assert data.load("fmnist", tmp_path).verified


@pytest.mark.parametrize("name, original", [("femnist", "3,400"), ("femnist_digits", "3,383"), ("shakespeare", "715")])
def test_another_number_of_clients_causes_a_warning(tmp_path, name, original):
    content = {b"f0001_00": {"pixels": np.ones((1, 28, 28), np.float32), "label": np.array([1])}}
    stem = {"femnist": "federated_emnist", "femnist_digits": "federated_emnist_digitsonly"}.get(name, name)
    if name == "shakespeare":
        content = {b"A": {"snippets": objects([b"x"])}}
    for side in ("train", "test"):
        write_fedjax_sqlite(tmp_path / f"{stem}_{side}.sqlite", content)
    with pytest.warns(UserWarning, match=f"unverified, 1 clients, but the original {name} has {original}"):
        assert not data.load(name, tmp_path).verified


@pytest.mark.filterwarnings("ignore:.*unverified")
def test_lists_of_landmarks_are_verified(tmp_path):
    (tmp_path / "mini_gld_train_split.csv").write_text("user_id,image_id,class\n1,a,0\n")
    (tmp_path / "mini_gld_test.csv").write_text("image_id,class\nb,0\n")
    with pytest.warns(UserWarning, match="landmarks: unverified, the checksums of .*mini_gld_train_split.csv"):
        with pytest.raises(UserError, match="image 'a' .record 1. is not among the 0 image files"):
            data.load("landmarks:small=true", tmp_path)


def test_prepare_fetches_the_small_list(tmp_path, monkeypatch):
    class Lists(http.server.BaseHTTPRequestHandler):
        asked = []

        def do_GET(self):
            self.asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Lists)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_address[1]}"
    local = tuple((f"{base}/{name}", None, None) for name in names("landmarks:small=true"))
    monkeypatch.setattr(download, "download_urls", lambda text: local)
    with pytest.raises(UserError, match="404"):
        prepare.prepare("landmarks:small=true", tmp_path, tmp_path)
    server.shutdown()
    server.server_close()
    assert Lists.asked == ["/mini_gld_train_split.csv"]
