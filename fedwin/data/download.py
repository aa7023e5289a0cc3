"""Original files: how to obtain them, and downloads.

A partial download is resumed, its checksum compared, and a complete file renamed.
"""

import http.client
import os
import pathlib
import urllib.error
import urllib.request

from fedwin import registry
from fedwin.data.dataset import DATASETS
from fedwin.data.formats import checksums, files
from fedwin.errors import UserError

CHUNK = 1 << 20
TIMEOUT = 30  # seconds without a response


def download_urls(text: str) -> tuple[tuple[str, str | None, str | None], ...]:
    """Returns (URL, checksum kind, checksum) of each file to download for a choice such as `landmarks:small=true`.

    Kind and checksum are None if none is published; there is no file if none can be downloaded automatically.
    """
    choice = registry.parse(text)
    facts = DATASETS.entries[choice.name].facts
    urls = facts["downloads"]
    for key, variant_urls in dict(facts["variants"]).items():
        if registry.parse(f"{choice.name}:{key}").params.items() <= choice.params.items():
            urls = variant_urls
    published = checksums.published_checksums(choice.name)
    return tuple((url, *published.get(url.rsplit("/", 1)[-1], (None, None))) for url in urls)


def listing() -> str:
    """Returns one line per data set: its name, how to obtain its files, and its parameters."""
    lines = []
    for name, entry in sorted(DATASETS.entries.items()):
        how, by_hand = entry.facts["how"], entry.facts["by_hand"]
        if urls := download_urls(name):
            how = "downloads " + ", ".join(url.rsplit("/", 1)[-1] for url, _, _ in urls)
            how += f"; by hand: {by_hand}" if by_hand else ""
        elif by_hand:
            how = f"by hand: {by_hand}"
        options = ", ".join(DATASETS.options(name))
        lines.append(f"{name:28} {how}" + (f"  [{options}]" if options else ""))
    return "\n".join(lines)


def fetch(
    url: str, folder, kind: str | None = None, checksum: str | None = None, progress=lambda done, total: None
) -> pathlib.Path:
    """Downloads a file to a folder unless it is there, resuming an earlier partial download.

    Args:
      kind: kind of the checksum, 'md5' or 'sha256'.
      progress: called with the number of bytes received and the total, 0 if unknown.

    Raises:
      UserError: no network, a server error, a full disk, or a wrong checksum (the partial file is then removed).
    """
    final = pathlib.Path(folder) / url.rsplit("/", 1)[-1]
    if final.is_file():
        return final
    partial = final.with_name(final.name + ".part")
    by_hand = f"download it by hand to {final}"
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        done = partial.stat().st_size if partial.is_file() else 0
        done, total = _append_remaining(url, partial, done, by_hand, progress)
        if done < total:
            raise UserError(f"{url}: interrupted after {done} of {total} bytes; run the same command again to resume.")
        actual = files.file_digest(partial, kind) if kind and checksum else checksum
        if actual != checksum:
            partial.unlink()
            raise UserError(f"{url}: {kind} {actual}, not {checksum}; the file was removed, download it again.")
        os.replace(partial, final)
    except OSError as error:  # network errors have become UserErrors, so this is the disk
        raise UserError(
            f"{final}: cannot be written ({error.strerror or error}); choose a writable folder with enough space "
            f"and run the same command again to resume."
        ) from error
    return final


def _append_remaining(url: str, partial: pathlib.Path, done: int, by_hand: str, progress) -> tuple[int, int]:
    """Requests the rest of a file, of which `done` bytes are there, and appends it; returns (bytes received, total).

    Raises:
      UserError: an error of the network or the server.
      OSError: an error of the disk.
    """
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # nothing is left to fetch
            return done, done
        raise UserError(f"{url}: the server responds {error.code} {error.reason}; {by_hand}.") from error
    except NETWORK_ERRORS as error:
        raise UserError(
            f"{url}: cannot be reached ({files.one_line(getattr(error, 'reason', error))}); {by_hand}."
        ) from error
    with response:
        if done and response.status != 206:  # the server does not support ranges and sends the whole file
            done = 0
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else 0
        with open(partial, "ab" if done else "wb") as target:
            while True:
                try:
                    chunk = response.read(CHUNK)
                except NETWORK_ERRORS as error:
                    raise UserError(
                        f"{url}: interrupted after {done} bytes ({files.one_line(error)}); run the same command again "
                        "to resume."
                    ) from error
                if not chunk:
                    return done, total
                target.write(chunk)
                done += len(chunk)
                progress(done, total)


# Network errors: OSError, and HTTPException for a response that is not HTTP or ends too early.
NETWORK_ERRORS = (OSError, http.client.HTTPException)
