"""Downloads: resuming, checksums, and no repeated downloads."""

import hashlib
import http.server
import threading

import numpy as np
import pytest

from experiments import prepare
from fedwin import data
from fedwin.data import download
from fedwin.errors import UserError


class Server(http.server.BaseHTTPRequestHandler):
    """Serves one file, with ranges; breaks off the first answer in the middle when `breaks` is set."""

    content, ranges, breaks, asked = b"", True, 0, []

    def do_GET(self):
        kind = type(self)
        start = 0
        wanted = self.headers.get("Range")
        kind.asked.append(wanted)
        if self.path.endswith("absent"):
            return self.send_error(404)
        if wanted and kind.ranges:
            start = int(wanted[len("bytes=") :].rstrip("-"))
            if start >= len(kind.content):
                return self.send_error(416)
            self.send_response(206)
        else:
            self.send_response(200)
        body = kind.content[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if kind.breaks:
            body, kind.breaks = body[: len(body) // 2], kind.breaks - 1
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    kind = type("OneServer", (Server,), {"content": bytes(range(256)) * 40, "asked": []})
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    kind.url = f"http://127.0.0.1:{running.server_address[1]}/"
    yield kind
    running.shutdown()
    running.server_close()


def test_downloads_are_checked_and_not_repeated(tmp_path, server):
    right = hashlib.sha256(server.content).hexdigest()
    seen = []
    path = download.fetch(
        server.url + "file.bin", tmp_path, "sha256", right, lambda done, total: seen.append((done, total))
    )
    assert path.read_bytes() == server.content and seen[-1] == (len(server.content),) * 2
    download.fetch(server.url + "file.bin", tmp_path, "sha256", right)
    assert len(server.asked) == 1 and [p.name for p in tmp_path.iterdir()] == ["file.bin"]


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_resumes(tmp_path, server, ranges):
    server.breaks, server.ranges = 1, ranges
    right = hashlib.md5(server.content).hexdigest()
    with pytest.raises(UserError, match="interrupted after 5120 of 10240|cannot be reached"):
        download.fetch(server.url + "file.bin", tmp_path, "md5", right)
    assert [p.name for p in tmp_path.iterdir()] == ["file.bin.part"]
    path = download.fetch(server.url + "file.bin", tmp_path, "md5", right)
    assert path.read_bytes() == server.content and server.asked == [None, "bytes=5120-"]


def test_wrong_checksums_and_missing_files_leave_nothing(tmp_path, server):
    with pytest.raises(UserError, match="md5 .*, not 0000; the file was removed"):
        download.fetch(server.url + "file.bin", tmp_path, "md5", "0000")
    with pytest.raises(UserError, match="404"):
        download.fetch(server.url + "absent", tmp_path)
    with pytest.raises(UserError, match="cannot be reached.*by hand"):
        download.fetch("http://127.0.0.1:9/file.bin", tmp_path)
    assert not list(tmp_path.iterdir())


def test_prepare_downloads_packs_and_reports(tmp_path, server, monkeypatch):
    import gzip

    from tests.data.idx_files import encode

    arrays = {"images": np.zeros((4, 28, 28), np.uint8), "labels": np.arange(4, dtype=np.uint8)}
    urls = []
    for split in ("train", "t10k"):
        for what, dims in (("images", 3), ("labels", 1)):
            kind = type("Part", (Server,), {"content": gzip.compress(encode(arrays[what])), "asked": []})
            running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
            threading.Thread(target=running.serve_forever, daemon=True).start()
            urls.append((f"http://127.0.0.1:{running.server_address[1]}/{split}-{what}-idx{dims}-ubyte.gz", None, None))
    monkeypatch.setattr(download, "download_urls", lambda text: tuple(urls) if text == "mnist" else ())
    with pytest.warns(UserWarning, match="unverified"):
        text = prepare.prepare("mnist", tmp_path / "new", tmp_path / "cache")
    assert "mnist: 4 training and 4 test examples" in text and "opens in" in text
    assert isinstance(data.load("mnist", tmp_path / "cache").train["x"], np.memmap)
    with pytest.raises(UserError, match="found no emnist.*By hand.*gzip.zip"):
        prepare.prepare("emnist", tmp_path, tmp_path)
    with pytest.raises(UserError, match="--data_dir"):
        prepare.prepare("digits", None, None)
