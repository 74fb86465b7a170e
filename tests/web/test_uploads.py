"""Logs that are sent: read where they can be, else refused in words, and nothing of them is left."""

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile

import pytest

from .conftest import CSV, started

MAP = {"submit": "submit", "gpu_milli": "gpus*1000", "runtime": "took"}


@pytest.fixture(scope="module")
def lone(root, tmp_path_factory):
    """A page whose temporary folder is its own."""
    folder = tmp_path_factory.mktemp("tmp")
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        with started("--upload-mib", 1, "--workers", 1) as client:
            yield client, folder
    finally:
        os.environ.pop("TMPDIR") if before is None else os.environ.__setitem__("TMPDIR", before)
    assert list(folder.glob("fleetlab-web-*")) == []


def files_in(folder):
    return [p for p in folder.rglob("*") if p.is_file()]


def test_a_log_that_is_sent_becomes_a_trace_that_can_be_played(page):
    sent = page.send(CSV, name="my%20jobs.csv").json
    read = page.operation(kind="read", upload=sent["upload"], format="csv", map=MAP)
    assert (read["status"], read["result"]["jobs"], read["result"]["rejects"]) == ("done", 400, 0)
    assert read["result"]["notes"][0] == "columns read: submit=submit, runtime=took, gpu_milli=gpus*1000"
    opened = page.operation(kind="open", trace=read["result"]["trace"])["result"]
    assert "allocation of 70 %" in opened["notes"][0]
    said = page.ask(f"/api/run?trace={read['result']['trace']}&order=sjf")
    assert (said.status, len(said.json["rows"]) > 5) == (200, True)


def test_the_gpus_of_a_log_without_a_map_are_found_and_told(page):
    sent = page.send(CSV, name="jobs.csv").json
    result = page.operation(kind="read", upload=sent["upload"], format="csv")["result"]
    assert result["notes"][0] == "columns read: submit, gpu_milli=gpus*1000"
    assert "--map gpu_milli=gpus*1000" in result["notes"][1]
    assert any("took" in note for note in result["notes"] if note.startswith("columns not used"))


def test_a_log_of_several_files_is_sent_file_by_file(page, fixtures):
    upload = {}
    for path in sorted((fixtures / "openb2023" / "good").iterdir()):
        upload = {"upload": page.send(path.read_bytes(), name=path.name, **upload).json["upload"]}
    read = page.operation(kind="read", format="openb2023", **upload)
    assert read["status"] == "done"
    assert page.operation(kind="open", trace=read["result"]["trace"])["result"]["nodes"]


def zipped():
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as z:
        z.writestr("../../jobs.csv", CSV)
    return made.getvalue()


def tarred(name="jobs.csv", kind=tarfile.REGTYPE, size=None):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        about = tarfile.TarInfo(name)
        about.type, about.size, about.linkname = kind, len(CSV) if size is None else size, "/etc/passwd"
        tar.addfile(about, io.BytesIO(CSV))
    return made.getvalue()


@pytest.mark.parametrize(
    ("content", "status", "error"),
    [
        (b"", 400, "empty"),
        (zipped(), 400, "no reader takes a file of this kind: zip"),
        (b"\x7fELF" + bytes(100), 400, "a program"),
        (b"x" * (1 << 20) + b"y", 413, "at most 1 MiB"),
        (gzip.compress(bytes(17 << 20)), 413, "decompresses to more than 16 MiB"),
        (gzip.compress(CSV)[:-9], 400, "cut off or damaged"),
    ],
    ids=["nothing", "zip", "program", "large", "bomb", "cut"],
)  # fmt: skip
def test_a_bad_file_is_refused_in_words_and_nothing_of_it_is_left(lone, content, status, error):
    page, folder = lone
    said = page.send(content)
    assert said.status == status
    assert error in said.json["error"]
    assert files_in(folder) == []


@pytest.mark.parametrize(
    ("content", "name", "format", "error"),
    [
        (b"\x00\xff" * 1000, "jobs.csv", "csv", ""),
        (b"nothing,known\n1,2\n", "jobs.csv", "csv", ""),
        (b'{"items": ' + b"[" * 5000, "pods.json", "kubernetes", ""),
        (CSV, "jobs.csv", "slurm", ""),
        (tarred("../../evil.csv"), "jobs.tar.gz", "csv", "points outside the archive"),
        (tarred(kind=tarfile.SYMTYPE), "jobs.tar.gz", "csv", "link or a device"),
    ],
    ids=["bytes", "columns", "deep", "format", "climbing", "link"],
)  # fmt: skip
def test_a_log_that_no_reader_can_read_is_refused_in_words_and_nothing_is_left(lone, content, name, format, error):
    page, folder = lone
    upload = page.send(content, name=name).json["upload"]
    told = page.operation(kind="read", upload=upload, format=format)
    assert told["status"] == "failed"
    assert error in told["error"]["error"]
    assert str(folder) not in json.dumps(told)
    assert files_in(folder) == []


def test_a_name_is_never_a_path(lone):
    page, folder = lone
    for name in ("..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd", "a%00b", "con", "." * 300, "%F0%9F%92%A9"):
        upload = page.send(CSV, name=name).json["upload"]
        inside = [p.name for p in files_in(folder)]
        assert inside == ["file-0"]
        page.ask(f"/api/uploads/{upload}", method="DELETE")
    assert files_in(folder) == []


def test_of_many_uploads_the_oldest_goes(lone):
    page, folder = lone
    names = [page.send(CSV).json["upload"] for _ in range(9)]
    assert len(files_in(folder)) == 8
    assert page.ask(f"/api/uploads/{names[0]}", method="DELETE").status == 404
    for name in names[1:]:
        assert page.ask(f"/api/uploads/{name}", method="DELETE").status == 200


def test_a_reader_gets_only_so_much_memory():
    code = "from fleetlab.web.worker import limit_resources; limit_resources('read'); bytearray(5 << 30)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip().endswith("MemoryError")
