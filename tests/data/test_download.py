"""Downloads: resuming, checksums, failures, and the files that a choice reads."""

import hashlib
import http.server
import io
import threading
import warnings

import numpy as np
import pytest

from experiments import prepare
from fedwin import data
from fedwin.data import download
from fedwin.data.formats import files
from tests.data.files import refused, taken, write_both, write_idx
from tests.data.sources.test_cifar100_pam import write_tff_clients


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves name -> content, with ranges; breaks off the first answer in the middle when `breaks` is set."""

    contents, ranges, breaks, asked = {}, True, 0, []

    def do_GET(self):
        kind = type(self)
        start, wanted = 0, self.headers.get("Range")
        kind.asked.append(wanted)
        if self.path[1:] not in kind.contents:
            return self.send_error(404)
        content = kind.contents[self.path[1:]]
        if wanted and kind.ranges:
            start = int(wanted[len("bytes=") :].rstrip("-"))
            if start >= len(content):
                return self.send_error(416)
        self.send_response(206 if start else 200)
        body = content[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if kind.breaks:
            body, kind.breaks = body[: len(body) // 2], kind.breaks - 1
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    kind = type("OneServer", (Handler,), {"contents": {"file.bin": bytes(range(256)) * 40}, "asked": []})
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
    kind.url = f"http://127.0.0.1:{running.server_address[1]}/"
    kind.content = kind.contents["file.bin"]
    yield kind
    running.shutdown()
    running.server_close()


def test_downloads_are_checked_and_not_repeated(tmp_path, server):
    right = hashlib.sha256(server.content).hexdigest()
    seen = []
    report = lambda done, total: seen.append((done, total))
    path = download.fetch(server.url + "file.bin", tmp_path, "sha256", right, report)
    assert path.read_bytes() == server.content and seen[-1] == (len(server.content),) * 2
    download.fetch(server.url + "file.bin", tmp_path, "sha256", right)
    assert len(server.asked) == 1 and [p.name for p in tmp_path.iterdir()] == ["file.bin"]


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_resumes(tmp_path, server, ranges):
    server.breaks, server.ranges = 1, ranges
    right = hashlib.md5(server.content).hexdigest()
    interrupted = "interrupted after 5120 of 10240|cannot be reached"
    refused(interrupted, download.fetch, server.url + "file.bin", tmp_path, "md5", right)
    assert [p.name for p in tmp_path.iterdir()] == ["file.bin.part"]
    path = download.fetch(server.url + "file.bin", tmp_path, "md5", right)
    assert path.read_bytes() == server.content and server.asked == [None, "bytes=5120-"]


def test_wrong_checksums_and_missing_files_leave_nothing(tmp_path, server):
    refused("md5 .*, not 0000; the file was removed", download.fetch, server.url + "file.bin", tmp_path, "md5", "0000")
    refused("404", download.fetch, server.url + "absent", tmp_path)
    refused("cannot be reached.*by hand", download.fetch, "http://127.0.0.1:9/file.bin", tmp_path)
    assert not list(tmp_path.iterdir())


def test_prepare_downloads_packs_and_reports(tmp_path, server, monkeypatch):
    write_idx(tmp_path / "published", n=(4, 4))
    server.contents = taken(tmp_path / "published")
    urls = tuple((server.url + name, None, None) for name in server.contents)
    monkeypatch.setattr(download, "download_urls", lambda text: urls if text == "mnist" else ())
    with pytest.warns(UserWarning, match="unverified"):
        text = prepare.prepare("mnist", tmp_path / "new", tmp_path / "cache")
    assert "mnist: 4 training and 4 test examples" in text and "opens in" in text
    assert isinstance(data.load("mnist", tmp_path / "cache").train["x"], np.memmap)
    refused("found no emnist.*By hand.*gzip.zip", prepare.prepare, "emnist", tmp_path, tmp_path)
    refused("--data_dir", prepare.prepare, "digits", None, None)


def test_a_disk_that_is_full_or_not_ours_is_named(tmp_path, server, monkeypatch):
    class Full(io.BytesIO):
        def write(self, piece):
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(download, "open", lambda *_: Full(), raising=False)
        full = "file.bin: cannot be written .No space left on device."
        refused(full, download.fetch, server.url + "file.bin", tmp_path)
    (tmp_path / "file").write_text("")
    occupied = "cannot be written .(Not a directory|File exists)"
    refused(occupied, download.fetch, server.url + "file.bin", tmp_path / "file" / "below")
    refused("file/below: cannot be made", prepare.prepare, "mnist", tmp_path / "file" / "below", tmp_path / "cache")


def names(text):
    return [url.rsplit("/", 1)[-1] for url, _, _ in download.download_urls(text)]


def test_a_choice_downloads_the_files_that_it_reads():
    assert names("landmarks") == names("landmarks:size=64") == ["landmarks-user-160k.zip"]
    assert names("landmarks:small=true,size=64") == ["mini_gld_train_split.csv", "mini_gld_test.csv"]
    assert names("femnist:paper=1") == names("femnist") and names("femnist:form=leaf") == names("pacs") == []
    assert names("femnist_digits:form=leaf") == []


def test_downloads_have_the_checksums_of_their_data_set():
    known = 0
    for name, entry in data.DATASETS.entries.items():
        for text in (name, *(f"{name}:{params}" for params in dict(entry.facts["variants"]))):
            known += sum(kind is not None for _, kind, _ in download.download_urls(text))
        for kind, checksum in dict(entry.facts["checksums"]).values():
            assert len(checksum) == {"md5": 32, "sha256": 64}[kind]
    assert known == 19


def test_a_file_with_the_published_checksum_is_verified(tmp_path, monkeypatch):
    """A file of the format stands for the original: the table gets its checksum."""
    write_tff_clients(tmp_path, ".lzma")
    right = {path.name: ("sha256", files.file_digest(path, "sha256")) for path in tmp_path.iterdir()}
    with pytest.warns(UserWarning, match="cifar100_pam: unverified"):
        assert not data.load("cifar100_pam", tmp_path).verified
    monkeypatch.setitem(data.DATASETS.entries["cifar100_pam"].facts, "checksums", right)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert data.load("cifar100_pam", tmp_path).verified
        assert ", verified\n" in prepare.prepare("cifar100_pam", tmp_path, tmp_path / "cache")


def test_another_number_of_clients_causes_a_warning(tmp_path):
    write_both(tmp_path, "shakespeare", {b"f0001_00": {"snippets": np.array([b"x"], object)}})
    with pytest.warns(UserWarning, match="unverified, 1 clients, but the original shakespeare has 715"):
        assert not data.load("shakespeare", tmp_path).verified
