"""Logs that visitors send, treated as hostile: counted while they come in, kept apart, never called by their own names.

A file is stored under a name of ours: that of a table that some reader knows, if the visitor's name says so, else a
number. It is unpacked once for its size before any reader sees it.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from fleetlab.core import TraceError
from fleetlab.web.errors import Missing, TooLarge
from fleetlab.web.scenario import clipped

# Files that readers know by name; what is sent under another name is a table by number.
TABLES = (
    "pai_job_table", "pai_task_table", "pai_instance_table", "pai_sensor_table", "pai_group_tag_table",
    "pai_machine_spec", "pai_machine_metric", "openb_pod_list_default", "openb_node_list_all_node",
    "disaggregated_dlrm_trace", "job_info_df", "node_info_df", "lora_request_trace", "cluster_job_log",
    "cluster_machine_list", "cluster_log", "cluster_gpu_number", "trace_seren", "trace_kalos",
)  # fmt: skip
ENDINGS = (".csv", ".json", ".swf", ".txt", ".log", ".tsv")
PACKED = (".tar.gz", ".tgz", ".tar", ".gz")
REFUSED = {
    b"PK\x03\x04": "zip", b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"7z\xbc\xaf": "7z",
    b"Rar!": "rar", b"\x7fELF": "a program",
}  # fmt: skip
UNPACKED = 16  # times the size that may be sent: what is larger when unpacked is refused
BLOCK = 1 << 20
FILES = 12  # of one log
KEPT = 8  # logs at once; the oldest goes


@dataclass
class Upload:
    """What one visitor sent of one log."""

    folder: Path
    name: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    files: list[Path] = field(default_factory=list)
    told: list[str] = field(default_factory=list)  # what its visitor calls them
    bytes: int = 0
    used: float = field(default_factory=time.monotonic)

    @property
    def log(self) -> Path:
        """What a reader is given: the one file, or the folder of several."""
        return self.files[0] if len(self.files) == 1 else self.folder / "log"

    def said(self, message: str) -> str:
        """A reader's message with the visitor's own names in it, and none of ours."""
        for path, told in zip(self.files, self.told, strict=True):
            message = message.replace(path.name, clipped(told) or "the file")
        return message.replace(f"{self.folder}/log/", "").replace(str(self.folder), "the upload")

    def tidy(self) -> None:
        """Keep the trace alone."""
        for folder in (self.folder / "log", self.scratch):
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def trace(self) -> Path:
        """Where its trace is saved once it was read."""
        return self.folder / "trace"

    @property
    def scratch(self) -> Path:
        """Where a reader may put what is too large for memory."""
        return self.folder / "scratch"


class Uploads:
    """Everything that was sent, in a folder that nobody else may look into."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._root = Path(tempfile.mkdtemp(prefix="fleetlab-web-"))  # made for its owner alone
        self._all: dict[str, Upload] = {}

    def close(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self._root, ignore_errors=True)

    def get(self, name: str) -> Upload:
        """One of them."""
        if name not in self._all:
            msg = "no such upload"
            raise Missing(msg, hint="uploads are kept until the page is closed, and only the last few")
        self._all[name].used = time.monotonic()
        return self._all[name]

    def remove(self, name: str) -> None:
        """With all that was made of it."""
        shutil.rmtree(self.get(name).folder, ignore_errors=True)
        del self._all[name]

    def new(self) -> Upload:
        """An empty one; of many, the one that was not used for longest goes."""
        while len(self._all) >= KEPT:
            self.remove(min(self._all.values(), key=lambda upload: upload.used).name)
        upload = Upload(Path(tempfile.mkdtemp(dir=self._root)))
        (upload.folder / "log").mkdir()
        upload.scratch.mkdir()
        self._all[upload.name] = upload
        return upload

    async def take(self, body: AsyncIterator[bytes], told: str, upload: Upload) -> None:
        """Store a file as it comes in; nothing of it stays if it is too large, or not what a reader could know."""
        if len(upload.files) >= FILES:
            msg = f"a log has at most {FILES} files"
            raise TooLarge(msg, hint="read it with `fleetlab read` and give its folder by --traces")
        path = upload.folder / "log" / stored(told, len(upload.files), [p.name for p in upload.files])
        size = 0
        try:
            with path.open("xb") as f:
                async for part in body:
                    size += len(part)
                    self.refuse_large(upload.bytes + size)
                    f.write(part)
            await asyncio.to_thread(self._refuse_strange, path, size)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        upload.files.append(path)
        upload.told.append(told)
        upload.bytes += size

    def refuse_large(self, size: int) -> None:
        """More than the page was started for?"""
        if size > self.most:
            msg = f"a log on this page has at most {self.most >> 20:,} MiB"
            raise TooLarge(msg, hint="--upload-mib when the page is started; or `fleetlab read`, and --traces")

    def _refuse_strange(self, path: Path, size: int) -> None:
        if not size:
            msg = "the file is empty"
            raise TraceError(msg, hint="`fleetlab traces` says what each format expects")
        with path.open("rb") as f:
            start = f.read(8)
            for mark, what in REFUSED.items():
                if start.startswith(mark):
                    msg = f"no reader takes such a file: {what}"
                    raise TraceError(msg, hint="send it plain, as .gz, or as a .tar.gz with one table")
            f.seek(0)
            if start.startswith(b"\x1f\x8b"):
                refuse_bomb(f, UNPACKED * self.most)


def stored(told: str, number: int, there: list[str]) -> str:
    r"""The name of ours under which a file is stored.

    >>> stored("../../etc/PAI_task_table.csv.gz", 0, []), stored("..\x00", 3, []), stored("my jobs.swf", 1, [])
    ('pai_task_table.csv.gz', 'file-3', 'file-1.swf')
    """
    said = told.lower().replace("\\", "/").rpartition("/")[2]
    packed = next((e for e in PACKED if said.endswith(e)), "")
    plain = said.removesuffix(packed)
    ending = next((e for e in ENDINGS if plain.endswith(e)), "")
    stem = plain.removesuffix(ending)
    known = next((t for t in TABLES if stem == t), None)
    if known is None and stem.startswith("openb_pod_list"):
        known = "openb_pod_list_default"
    name = f"{known or f'file-{number}'}{ending}{packed}"
    return name if name not in there else f"file-{number}{ending}{packed}"


def refuse_bomb(packed: BinaryIO, most: int) -> None:
    """Unpack a gzip for its size alone, block by block, and no further than allowed."""
    from isal import igzip

    size = 0
    try:
        with igzip.open(packed, "rb") as f:
            while part := f.read(BLOCK):
                size += len(part)
                if size > most:
                    msg = f"the file unpacks to more than {most >> 20:,} MiB"
                    raise TooLarge(msg, hint="read it with `fleetlab read` and give its folder by --traces")
    except (EOFError, OSError, ValueError) as e:
        msg = f"the archive is cut off or damaged: {e}"
        raise TraceError(msg, hint="send it again") from None
