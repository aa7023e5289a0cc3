"""Fetching original files: resumed where they broke off, checked, and renamed when they are whole."""

import http.client
import os
import pathlib
import urllib.error
import urllib.request

from fedwin import registry
from fedwin.data.formats import checksums, files
from fedwin.data.registries import DATASETS
from fedwin.errors import UserError

CHUNK = 1 << 20
TIMEOUT = 30  # seconds without an answer


def sources(text: str) -> tuple[tuple[str, str | None, str | None], ...]:
    """Returns the files of a choice such as `landmarks:small=true`; () where no program can fetch them.

    Args:
      text: a data set, with parameters or without.

    Returns:
      (address, checksum kind, checksum) of each file; kind and checksum are None where none is published.
    """
    wanted = registry.parse(text)
    facts = DATASETS.entries[wanted.name].facts
    best, listed = 0, facts["downloads"]
    for key, other in dict(facts["variants"]).items():
        params = registry.parse(f"{wanted.name}:{key}").params
        if params.items() <= wanted.params.items() and len(params) > best:
            best, listed = len(params), other
    return tuple((url, *checksums.known(wanted.name, url.rsplit("/", 1)[-1])) for url in listed)


def fetch(
    url: str, folder, kind: str | None = None, checksum: str | None = None, progress=lambda done, total: None
) -> pathlib.Path:
    """Downloads a file to `folder` unless it is there, resuming where an earlier attempt broke off.

    Args:
      url: address of the file.
      folder: where it goes.
      kind: of the checksum, 'md5' or 'sha256'.
      checksum: its hexadecimal value, or None.
      progress: called with bytes done and the total, 0 if unknown.

    Returns:
      The path of the complete file.

    Raises:
      UserError: no network, an error of the server, a full disk, or a wrong checksum (the partial file is removed
        then).
    """
    final = pathlib.Path(folder) / url.rsplit("/", 1)[-1]
    if final.is_file():
        return final
    partial = final.with_name(final.name + ".part")
    hand = f"fetch it by hand to {final}"
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        done = partial.stat().st_size if partial.is_file() else 0
        done, total = receive(url, partial, done, hand, progress)
        if done < total:
            raise UserError(f"{url}: broke off after {done} of {total} bytes; run the same command again to continue.")
        found = files.file_digest(partial, kind) if kind and checksum else checksum
        if found != checksum:
            partial.unlink()
            raise UserError(f"{url}: {kind} {found}, not {checksum}; the file was removed, fetch it again.")
        os.replace(partial, final)
    except OSError as error:  # the network's errors have become UserErrors: this is the disk
        raise UserError(
            f"{final}: cannot be written ({error.strerror or error}); choose a folder of yours with enough space "
            f"and run the same command again to continue."
        ) from error
    return final


def receive(url: str, partial: pathlib.Path, done: int, hand: str, progress) -> tuple[int, int]:
    """Appends what a server has beyond the first bytes.

    Args:
      url: address of the file.
      partial: what it is appended to.
      done: bytes that it has already.
      hand: what the user can do instead, for error lines.
      progress: called with bytes done and the total, 0 if unknown.

    Returns:
      (bytes done, total).

    Raises:
      UserError: the network or the server fails.
      OSError: the disk does.
    """
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to fetch
            return done, done
        raise UserError(f"{url}: the server answers {error.code} {error.reason}; {hand}.") from error
    except NETWORK as error:
        raise UserError(f"{url}: cannot be reached ({files.said(getattr(error, 'reason', error))}); {hand}.") from error
    with answer:
        if done and answer.status != 206:  # this server starts again from the beginning
            done = 0
        length = answer.headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else 0
        with open(partial, "ab" if done else "wb") as target:
            while True:
                try:
                    chunk = answer.read(CHUNK)
                except NETWORK as error:
                    raise UserError(
                        f"{url}: broke off after {done} bytes ({files.said(error)}); run the same command again to "
                        f"continue."
                    ) from error
                if not chunk:
                    return done, total
                target.write(chunk)
                done += len(chunk)
                progress(done, total)


# What the network's side raises: its OSErrors and, from an answer that is not HTTP or ends too early, HTTPException.
NETWORK = (OSError, http.client.HTTPException)
