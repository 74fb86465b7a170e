"""One file over HTTP: what came is kept, and a later try goes on from there.

What has come lies in `NAME.part`, and in `NAME.part.json` what it is a part of: its address and the server's mark of
that version (ETag or date). A server that has another version by then sends all of it, and so the file starts over.
"""

from __future__ import annotations

import json
import re
import shutil
import ssl
import time
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException, HTTPResponse
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from fleetlab.core import TraceError
from fleetlab.core.progress import Progress

CHUNK = 1 << 18
ENOUGH = 1 << 20  # bytes: a try that brought so many is no failure, however it ended
AGAIN = {408, 425, 429, 500, 502, 503, 504}  # what a server says when it is worth asking once more


@dataclass(frozen=True)
class File:
    """One file of a published trace: its address, and what is known of its content."""

    address: str
    sha256: str | None = None
    table: str | None = None  # SHA-256 of the one table inside, where the file is a tar.gz
    size: int | None = None

    @property
    def name(self) -> str:
        """What the file is called, there and here."""
        name = PurePosixPath(urlsplit(self.address).path).name
        if name in ("", "..") or "\\" in name:
            raise TraceError(f"no file name in the address: {self.address}")
        return name


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server."""

    timeout: float = 60.0  # seconds without a byte
    tries: int = 5  # in a row that brought next to nothing
    pause: float = 1.0  # seconds before the second of them; twice as long before each one more


class _Broken(Exception):
    """A try that failed, of a kind that another may mend."""


class _Unreachable(_Broken):
    """Nobody answered at all."""


def download(file: File, address: str, part: Path, *, progress: Progress, patience: Patience) -> None:
    """Bring everything at `address` into `part`, in as many tries as it takes and patience allows."""
    failed, answered = 0, False
    while True:
        before = _size(part)
        try:
            return _try(file, address, part, progress, patience.timeout)
        except _Broken as e:
            if isinstance(e, _Unreachable) and not answered:
                raise _cannot_reach(address, part, e) from None
            answered = answered or not isinstance(e, _Unreachable)
            failed = 1 if _size(part) >= before + ENOUGH else failed + 1
            if failed >= patience.tries:
                raise _given_up(address, part, failed, e) from None
            time.sleep(min(60.0, patience.pause * 2 ** (failed - 1)))


def discard(part: Path) -> None:
    """Forget what came so far."""
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


def _try(file: File, address: str, part: Path, progress: Progress, timeout: float) -> None:
    try:
        partial = _partial_file(file, address, part)
        if partial.size is not None and partial.bytes == partial.size:
            return
        with _request(address, partial, part, timeout) as response:
            at, total = _agreed(response, partial, part)
            _acceptable(response, file, address, total)
            _check_disk_space(part, total - at if total is not None else 0)
            with part.open("ab" if at else "wb") as out:
                if not at:
                    note = {"address": address, "mark": _mark(response.headers), "size": total}
                    _note(part).write_text(json.dumps(note), "utf-8")
                _copy(response, out, at, total, file, progress)
    except OSError as e:
        # Errors of the network are handled below: this one is of the disk.
        msg = f"cannot write {part}: {e.strerror or e}"
        raise TraceError(
            msg, hint="free space or fix permissions, then run the same command again: it resumes"
        ) from None


# -- what is there already -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _PartialFile:
    """The part that an earlier try left."""

    bytes: int = 0
    mark: str | None = None
    size: int | None = None


def _partial_file(file: File, address: str, part: Path) -> _PartialFile:
    for path in (part, _note(part)):
        if path.is_symlink():
            path.unlink()  # it may lead anywhere
    try:
        note = json.loads(_note(part).read_text("utf-8"))
        mark, size = note["mark"], note["size"]
        # Without a mark only a checksum can tell whether two pieces are of one file.
        fits = note["address"] == address and (isinstance(mark, str) or (mark is None and file.sha256 is not None))
        partial = _PartialFile(part.stat().st_size, mark, size)
        if fits and partial.bytes and (size is None or partial.bytes <= size):
            return partial
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass
    discard(part)
    return _PartialFile()


def _note(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _size(part: Path) -> int:
    try:
        return part.stat().st_size
    except OSError:
        return 0


# -- asking --------------------------------------------------------------------------------------------------------


class _Redirects(request.HTTPRedirectHandler):
    """Follows a server to another place on the web, to no other kind of place, and not out of TLS."""

    def redirect_request(
        self, req: request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> request.Request | None:
        scheme = urlsplit(newurl).scheme
        if scheme != "https" and scheme != urlsplit(req.full_url).scheme:
            what = f"{urlsplit(req.full_url).hostname} redirects to an address without HTTPS: {newurl}"
            raise TraceError(what, hint="nothing was fetched; see the owner's page")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def _opener() -> request.OpenerDirector:
    # Only what speaks HTTP: the usual opener would also read local files.
    opener = request.OpenerDirector()
    for handler in (request.ProxyHandler, request.HTTPHandler, request.HTTPSHandler, request.UnknownHandler):
        opener.add_handler(handler())
    for more in (request.HTTPDefaultErrorHandler, request.HTTPErrorProcessor, _Redirects):
        opener.add_handler(more())
    opener.addheaders = [("User-Agent", f"fleetlab/{version('fleetlab')}"), ("Accept-Encoding", "identity")]
    return opener


def _request(address: str, partial: _PartialFile, part: Path, timeout: float) -> HTTPResponse:
    try:
        query = request.Request(address)
        if partial.bytes:
            query.add_header("Range", f"bytes={partial.bytes}-")
            if partial.mark:
                query.add_header("If-Range", partial.mark)
        return _opener().open(query, timeout=timeout)  # type: ignore[no-any-return]
    except HTTPError as e:
        e.close()
        raise _refused(e.code, str(e.reason), address, part) from None
    except URLError as e:
        raise _not_connected(e.reason, address) from None
    except (OSError, HTTPException) as e:
        raise _Broken(_error_text(e)) from None
    except ValueError as e:
        raise TraceError(f"not an address: {address!r}: {e}") from None


def _refused(code: int, reason: str, address: str, part: Path) -> Exception:
    if code == 416:
        discard(part)
        return _Broken("the server rejects the requested byte range")
    if code in AGAIN:
        return _Broken(f"the server answered {code} {reason}")
    msg = f"the server answered {code} {reason}: {address}"
    return TraceError(msg, hint="the file may have moved: see the owner's page")


def _not_connected(reason: object, address: str) -> Exception:
    if isinstance(reason, ssl.SSLCertVerificationError):
        msg = f"{urlsplit(address).hostname} has no valid certificate: {reason.verify_message}"
        return TraceError(msg, hint="a proxy may intercept the connection; nothing was fetched")
    return _Unreachable(_error_text(reason))


def _error_text(e: object) -> str:
    return str(getattr(e, "strerror", None) or e or type(e).__name__)


# -- receiving -----------------------------------------------------------------------------------------------------


def _agreed(response: HTTPResponse, partial: _PartialFile, part: Path) -> tuple[int, int | None]:
    """Where the answer begins in the file, and how long the file is, if the server says."""
    length = response.headers.get("Content-Length", "")
    if response.status != 206:
        return 0, int(length) if length.isdecimal() else None
    piece = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    total = int(piece[2]) if piece and piece[2] != "*" else None
    other = partial.mark is not None and _mark(response.headers) not in (partial.mark, None)
    if (
        not partial.bytes
        or not piece
        or int(piece[1]) != partial.bytes
        or other
        or (total != partial.size and partial.size)
    ):
        discard(part)
        what = "the server sent another byte range than requested"
        raise _Broken(what)
    return partial.bytes, total


def _mark(headers: Message) -> str | None:
    etag = headers.get("ETag")
    # A weak ETag is of a page that looks the same, not of the same bytes.
    return etag if etag and not etag.startswith("W/") else headers.get("Last-Modified")


def _acceptable(response: HTTPResponse, file: File, address: str, total: int | None) -> None:
    if file.size is not None and total is not None and total != file.size:
        msg = f"{address} is not the published file: {total:,} bytes, not {file.size:,}"
        raise TraceError(msg, hint="see the owner's page: a new version may have been published")
    if response.headers.get_content_type() == "text/html":
        msg = f"received a web page instead of the file: {address}"
        raise TraceError(msg, hint="does this network require a login?")


def _check_disk_space(part: Path, needed: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if needed > free:
        msg = f"not enough disk space for {part.name.removesuffix('.part')}: {needed:,} bytes needed, {free:,} free"
        raise TraceError(msg, hint=f"free space in {part.parent}, then run the same command again: it resumes")


def _copy(response: HTTPResponse, out: IO[bytes], at: int, total: int | None, file: File, progress: Progress) -> None:
    while chunk := _received(response):
        out.write(chunk)
        at += len(chunk)
        progress(file.name, at, at / total if total else 0.0)
    if total is not None and at < total:
        what = f"the connection was closed after {at:,} of {total:,} bytes"
        raise _Broken(what)


def _received(response: HTTPResponse) -> bytes:
    try:
        # What is there, and not a full chunk: a server that stalls must not take with it what it had sent.
        return response.read1(CHUNK)
    except (OSError, HTTPException) as e:
        raise _Broken(_error_text(e)) from None


# -- giving up -----------------------------------------------------------------------------------------------------


def _cannot_reach(address: str, part: Path, why: Any) -> TraceError:  # noqa: ANN401
    msg = f"cannot reach {urlsplit(address).hostname}: {why}"
    by_hand = f"download {address} elsewhere and save it as {part.with_name(part.name.removesuffix('.part'))}"
    return TraceError(msg, hint=f"is this machine offline? {by_hand}; fetch will then verify it")


def _given_up(address: str, part: Path, failed: int, why: Any) -> TraceError:  # noqa: ANN401
    name = part.name.removesuffix(".part")
    msg = f"{name}: gave up after {failed} tries in a row at {urlsplit(address).hostname}: {why}"
    return TraceError(msg, hint=f"run the same command again to resume: {_size(part):,} bytes are kept in {part}")
