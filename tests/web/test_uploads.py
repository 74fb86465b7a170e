"""Logs that are sent: read where they can be, else refused in words, and nothing of them is left."""

import asyncio
import fcntl
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from functools import partial
from importlib.resources import as_file, files

import pytest

from fleetlab import read as read_log
from fleetlab import simulate
from fleetlab.core.files import unpack
from fleetlab.web.messages import TookTooLong, TooLarge
from fleetlab.web.pool import WorkerPool
from fleetlab.web.uploads import LINES, LOCK, check_size, sweep

from .conftest import CSV, started

MAP = {"submit": "submit", "gpu_milli": "gpus*1000", "runtime": "took"}


@pytest.fixture(scope="module")
def lone(root, tmp_path_factory):
    """A page whose temporary folder is its own."""
    folder = tmp_path_factory.mktemp("tmp")
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        with started("--traces", root, "--upload-mib", 1, "--workers", 1) as client:
            yield client, folder
    finally:
        os.environ.pop("TMPDIR") if before is None else os.environ.__setitem__("TMPDIR", before)
    assert list(folder.glob("fleetlab-web-*")) == []


def files_in(folder):
    return [p for p in folder.rglob("*") if p.is_file() and p.name != LOCK]


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


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """What `fleetlab collect slurm` gathered of the sample."""
    with as_file(files("fleetlab.traces") / "sample" / "sample.tar.gz") as archive:
        return unpack(archive, tmp_path_factory.mktemp("sample"))


def uploaded(page, paths):
    upload = {}
    for path in paths:
        upload = {"upload": page.send(path.read_bytes(), name=path.name, **upload).json["upload"]}
    return upload


@pytest.mark.parametrize("names", [None, ("sacct.txt.gz", "nodes.txt.gz", "slurm.conf", "site.conf")])
def test_a_log_with_its_nodes_and_its_slurm_conf_has_the_answer_of_the_command_line(page, collected, names, tmp_path):
    paths = sorted(path for path in collected.iterdir() if names is None or path.name in names)
    assert len(paths) == (18 if names is None else 4)
    for path in paths:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    read = page.operation(kind="read", format="slurm", **uploaded(page, paths))
    trace = read["result"]["trace"]
    opened = page.operation(kind="open", trace=trace)["result"]
    assert opened["scheduler"]["title"] == "Slurm"
    answer = page.operation(kind="run", link=f"trace={trace}")["result"]
    wait = next(row for row in answer["rows"] if row["metric"] == "mean wait")["now"]["value"]
    here = simulate(read_log(tmp_path, "slurm"))
    assert wait == pytest.approx(here.completed["wait"].mean(), rel=1e-9)
    assert answer["recorded"]["recorded"]["value"] == pytest.approx(83.6, abs=0.1)
    assert answer["recorded"]["simulated"]["value"] == pytest.approx(wait)


def test_a_configuration_that_is_sent_includes_no_file_of_this_machine(page, collected, tmp_path):
    secret = tmp_path / "secret.conf"
    secret.write_text("SchedulerType=sched/builtin\n")
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"include {secret}\ninclude ../../../..{secret}\n{(collected / 'slurm.conf').read_text()}")
    named = [collected / name for name in ("sacct.txt.gz", "nodes.txt.gz", "site.conf")]
    read = page.operation(kind="read", format="slurm", **uploaded(page, [conf, *named]))
    lines = page.operation(kind="open", trace=read["result"]["trace"])["result"]["scheduler"]["lines"]
    assert "SchedulerType=sched/backfill" in lines


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
        (gzip.compress(bytes(9 << 20)), 413, "decompresses to more than 8 MiB"),
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
        (inside,) = files_in(folder)
        assert inside.parent.name == "log"
        assert inside.name in ("file-0", "passwd", "con")
        page.ask(f"/api/uploads/{upload}", method="DELETE")
    assert files_in(folder) == []


def test_of_many_uploads_the_oldest_goes(lone):
    page, folder = lone
    names = [page.send(CSV).json["upload"] for _ in range(9)]
    assert len(files_in(folder)) == 8
    assert page.ask(f"/api/uploads/{names[0]}", method="DELETE").status == 404
    for name in names[1:]:
        assert page.ask(f"/api/uploads/{name}", method="DELETE").status == 200


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_of_too_many_lines_is_refused_packed_or_not(packed):
    lines = b"\n" * (LINES + 1)
    content = gzip.compress(lines, 1) if packed else lines
    with pytest.raises(TooLarge, match="at most 6,000,000 lines"):
        check_size(io.BytesIO(content), 1 << 30, packed=packed)
    check_size(io.BytesIO(lines[1:]), 1 << 30, packed=False)


def test_a_file_that_takes_forever_holds_up_no_simulation_and_is_stopped(tmp_path):
    (tmp_path / "endless.csv").write_bytes(CSV)
    endless = {
        "verb": "read", "path": str(tmp_path / "endless.csv"), "out": str(tmp_path / "trace"),
        "scratch": str(tmp_path), "format": "csv", "zone": None, "map": None,
    }  # fmt: skip
    trace = {"verb": "open", "trace": "t", "name": "builtin:2000:0", "where": "builtin:2000:0"}

    async def story():
        pool = WorkerPool(1)
        pool.start()
        ask = partial(pool.request, visitor="ann", listener=lambda _: None)
        try:
            begun = asyncio.ensure_future(ask("read", endless, limit=3600.0, kind="read", keep=False))
            while pool._pending.get("read") is None or pool._pending["read"].worker is None:
                await asyncio.sleep(0.01)
            os.kill(pool._pending["read"].worker._process.pid, signal.SIGSTOP)  # it does not go on
            opened = await ask("open", trace, limit=200.0)
            waits = not begun.done()
            begun.cancel()
            with pytest.raises(TookTooLong) as told:
                await ask("again", endless, limit=0.2, kind="read", keep=False)
            return opened["summary"][0]["value"], waits, told.value.hint
        finally:
            await pool.close()

    jobs, waits, hint = asyncio.run(story())
    assert (jobs, waits) == (2000, True)
    assert "fleetlab read" in hint


def test_a_page_that_is_killed_leaves_no_upload_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with started("--workers", 1) as client:
        assert client.send(CSV).status == 201
        assert files_in(tmp_path) != []
        client.operation(kind="open", trace="builtin:2000:0")  # its process is there
        os.kill(client.pid, signal.SIGKILL)
        client.process.wait()
        until = time.monotonic() + 60
        while list(tmp_path.glob("fleetlab-web-*")) and time.monotonic() < until:
            time.sleep(0.05)
    assert list(tmp_path.glob("fleetlab-web-*")) == []


def test_what_dead_pages_have_left_is_swept_and_what_others_use_is_not(tmp_path):
    for name in ("dead", "alive", "new", "link-target"):
        (tmp_path / f"fleetlab-web-{name}").mkdir()
        (tmp_path / f"fleetlab-web-{name}" / "log.csv").write_bytes(CSV)
    (tmp_path / "fleetlab-web-link-target").rename(tmp_path / "target")
    (tmp_path / "target" / LOCK).touch()
    (tmp_path / "fleetlab-web-link").symlink_to(tmp_path / "target")
    (tmp_path / "fleetlab-web-dead" / LOCK).touch()
    with (tmp_path / "fleetlab-web-alive" / LOCK).open("x") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sweep(tmp_path)
    left = sorted(p.name for p in tmp_path.iterdir())
    assert left == ["fleetlab-web-alive", "fleetlab-web-link", "fleetlab-web-new", "target"]
    assert (tmp_path / "target" / "log.csv").exists()


def test_a_reader_gets_only_so_much_memory():
    code = "from fleetlab.web.worker import limit_resources; limit_resources('read'); bytearray(5 << 30)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip().endswith("MemoryError")
