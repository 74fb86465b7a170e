"""Bring a published trace here, and prove that it is the published one.

`published.json` says where public traces lie, and the checksums by which a copy is known to be the real one. Addresses
on GitHub name a commit, so that a file there never changes under its checksum. Checksums are those that the owner
prints (pai2020, philly) or those that copies of the owner's files at that commit agree on; a file without one, or with
several copies that differ, is said to be not verified.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import polars as pl

from fleetlab.core import Estimate, Provenance, Result, TraceError
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.traces.input.files import BROKEN, _unpacked
from fleetlab.traces.public.download import File, Patience, discard, download

CHUNK = 1 << 20
VERIFIED, UNVERIFIED = "as published", "not verified: no published checksum"


@dataclass(frozen=True)
class PublicTrace:
    """A trace that its owner published, file by file."""

    name: str
    files: tuple[File, ...]
    then: str = ""  # what is left to do by hand


def _published() -> dict[str, PublicTrace]:
    entries = json.loads(files(__package__).joinpath("published.json").read_text("utf-8"))
    return {
        name: PublicTrace(name, tuple(File(**file) for file in entry["files"]), entry.get("then", ""))
        for name, entry in entries.items()
    }


PUBLISHED = _published()


class Copy(NamedTuple):
    """One file of a published trace, as it lies here."""

    file: str
    bytes: int
    state: str  # fetched, already there, replaced
    check: str
    sha256: str


@dataclass(frozen=True, slots=True)
class FetchResult(Result):
    """The files of a published trace, in place; which of them are proved to be the published ones."""

    provenance: Provenance
    paths: list[Path]
    files: pl.DataFrame
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        doubt = self.files.filter(pl.col("check") != VERIFIED).height
        return f"<FetchResult {self.provenance.source}, {len(self.paths)} files, {doubt} not verified>"

    def summary(self) -> list[Estimate]:
        """How many files, how large, how many in doubt."""
        doubt = self.files.filter(pl.col("check") != VERIFIED).height
        return [
            Estimate.exact("files", len(self.paths)),
            Estimate.exact("bytes", int(self.files["bytes"].sum())),
            Estimate.exact("files not verified", doubt),
        ]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every file, whether it was there already, and its checksum."""
        return {"files": self.files}


def fetch(name: str, *, into: Path | str, progress: Progress = silent, base: str | None = None) -> FetchResult:
    """Download a published trace into a folder: resume where an earlier try broke off, verify, never leave half a file.

    Parameters
    ----------
    name
        A trace that `fleetlab traces` marks with fetch.
    into
        The folder for its files.
    progress
        Called as bytes arrive.
    base
        Another place where the same files are: a mirror, `https://mirror.example/pai`.

    Returns
    -------
    FetchResult
        The files with their sizes and checksums.

    Raises
    ------
    TraceError
        If there is no trace by that name, a file cannot be had, or its checksum is another.

    Examples
    --------
    >>> import fleetlab
    >>> fleetlab.fetch("philly", into="philly")  # doctest: +SKIP
    """
    return gather(
        PUBLISHED[lookup("published trace", name, PUBLISHED, error=TraceError)], into=into, progress=progress, base=base
    )


def gather(
    published: PublicTrace,
    *,
    into: Path | str,
    progress: Progress = silent,
    base: str | None = None,
    patience: Patience | None = None,
) -> FetchResult:
    """Bring all files of `published` into a folder; what `fetch` does with a name that it knows."""
    into = Path(into)
    addresses = [_address(file, base) for file in published.files]
    with _disk(into):
        into.mkdir(parents=True, exist_ok=True)
    rows = [
        _download(file, address, into / file.name, progress, patience or Patience())
        for file, address in zip(published.files, addresses, strict=True)
    ]
    return FetchResult(
        Provenance("fetch", published.name, {"into": str(into), "base": base}),
        [into / file.name for file in published.files],
        pl.DataFrame(rows, schema=list(Copy._fields), orient="row"),
        (published.then,) if published.then else (),
    )


def _address(file: File, base: str | None) -> str:
    address = f"{base.rstrip('/')}/{file.name}" if base is not None else file.address
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        good = False
    if not good:
        raise TraceError(f"not a web address: {address}", hint="it starts with https:// and a host name")
    return address


def _download(file: File, address: str, place: Path, progress: Progress, patience: Patience) -> Copy:
    with _disk(place):
        there = place.is_file()
        if there and (digest := _right(place, file)) is not None:
            return _copy(file, place, "already there", digest)
        if place.exists() and not there:
            raise TraceError(f"not a regular file: {place}", hint="choose another folder")
    part = place.with_name(f"{place.name}.part")
    download(file, address, part, progress=progress, patience=patience)
    with _disk(place):
        digest = _verified(part, file, address)
        _install(part, place)
    return _copy(file, place, "replaced" if there else "fetched", digest)


def _copy(file: File, place: Path, state: str, digest: str) -> Copy:
    return Copy(file.name, place.stat().st_size, state, VERIFIED if file.sha256 else UNVERIFIED, digest)


def _right(place: Path, file: File) -> str | None:
    """The checksum of a file that is here and, as far as can be known, the published one."""
    if file.size is not None and place.stat().st_size != file.size:
        return None
    digest = _digest(place)
    return digest if file.sha256 in (digest, None) else None


def _verified(part: Path, file: File, address: str) -> str:
    digest = _digest(part)
    if file.sha256 not in (digest, None):
        raise _another(part, address, "SHA-256", digest, str(file.sha256))
    if file.table is not None and (inside := _table_digest(part, file)) != file.table:
        raise _another(part, address, "SHA-256 of the table in it", inside, file.table)
    return digest


def _another(part: Path, address: str, what: str, actual: str, published: str) -> TraceError:
    # Kept, it would be gone on with next time, and be as wrong.
    discard(part)
    msg = f"{address} is not the published file: {what} is {actual}, not {published}"
    return TraceError(msg, hint="the download was removed: try again; if it fails again, see the owner's page")


def _digest(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _table_digest(part: Path, file: File) -> str:
    """Of the table in an archive, unpacked as a stream: nothing is written."""
    digest = hashlib.sha256()
    try:
        with part.open("rb") as raw:
            stream = _unpacked(raw, file.name)
            while block := stream.read(CHUNK):
                digest.update(block)
    except BROKEN as e:
        return f"unknown, since the archive is damaged ({e})"
    return digest.hexdigest()


def _install(part: Path, place: Path) -> None:
    with part.open("rb+") as f:
        os.fsync(f.fileno())
    part.replace(place)
    discard(part)
    if os.name == "posix":
        folder = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as e:  # a NUL in a path is a ValueError
        msg = f"cannot write {str(path)!r}: {getattr(e, 'strerror', None) or e}"
        raise TraceError(msg, hint="check the path, its permissions and the free space") from None
