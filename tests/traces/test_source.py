"""Files from strangers: packed, cut off, or made to hurt."""

import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from fleetlab.core import TraceError
from fleetlab.traces.input import files
from fleetlab.traces.input.files import SourceFile, sources
from fleetlab.traces.input.format import Peek

TEXT = b"a,b\n1,2\n"


def member(
    name: str, kind: bytes = tarfile.REGTYPE, data: bytes = TEXT, **more: object
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(data) if kind == tarfile.REGTYPE else 0
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return path


def content(path: Path) -> bytes:
    with SourceFile(path).open() as stream:
        return b"".join(iter(lambda: stream.read(7), b""))


# -- gzip --------------------------------------------------------------------------------------------------------


def test_a_gzip_of_several_members_is_one_file(tmp_path):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n") + gzip.compress(b"1,2\n"))
    assert content(path) == TEXT


def test_zeros_behind_a_gzip_are_padding(tmp_path):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(TEXT) + bytes(512))
    assert content(path) == TEXT


@pytest.mark.parametrize("cut", [1, 5, 9, 12, 20])
def test_a_gzip_that_is_cut_off_anywhere_is_refused(cut, tmp_path):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(bytes(range(256)) * 9)[:-cut])
    with pytest.raises(TraceError, match="truncated or damaged"):
        content(path)


def test_a_gzip_with_something_else_behind_it_is_refused(tmp_path):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(TEXT) + b"and more")
    with pytest.raises(TraceError, match="truncated or damaged"):
        content(path)


@pytest.mark.parametrize("ending", [".csv.gz", ".tar.gz"])
def test_one_wrong_byte_is_found_by_the_checksum(ending, tmp_path):
    path = tmp_path / f"x{ending}"
    if ending == ".tar.gz":
        # Padding makes sure that the checksum stands far behind the end of the archive.
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w") as tar:
            tar.addfile(*[f(x) for f, x in zip((lambda i: i, io.BytesIO), member("x.csv"), strict=True)])
        packed = gzip.compress(whole.getvalue() + bytes(8 << 20))
    else:
        packed = gzip.compress(TEXT)
    path.write_bytes(packed[:-8] + bytes([packed[-8] ^ 1]) + packed[-7:])
    with pytest.raises(TraceError, match="truncated or damaged"):
        content(path)


def test_packing_is_told_by_content_and_not_by_name(tmp_path):
    (tmp_path / "plain.tar.gz").write_bytes(TEXT)
    (tmp_path / "packed.csv").write_bytes(gzip.compress(TEXT))
    assert [content(s.path) for s in sources(tmp_path)] == [TEXT, TEXT]


# -- tar ---------------------------------------------------------------------------------------------------------

FOLDER = member("folder", tarfile.DIRTYPE)
TABLE = member("folder/deeper/x.csv")


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_table_is_found_whatever_folders_and_attributes_lie_around_it(format, tmp_path):
    long = member("folder/" + "long/" * 18 + "x.csv")
    with tarfile.open(tmp_path / "x.tar", "w", format=format) as tar:
        for info, data in (FOLDER, member("folder/._x.csv"), member("folder/.DS_Store"), long):
            tar.addfile(info, io.BytesIO(data))
    assert content(tmp_path / "x.tar") == TEXT


@pytest.mark.parametrize(
    ("hostile", "what"),
    [
        (member("../x.csv"), "points outside the archive"),
        (member("a/../../x.csv"), "points outside the archive"),
        (member("/etc/x.csv"), "points outside the archive"),
        (member("x.csv", tarfile.SYMTYPE, linkname="/etc/passwd"), "a link or a device"),
        (member("x.csv", tarfile.LNKTYPE, linkname="y"), "a link or a device"),
        (member("x.csv", tarfile.CHRTYPE, devmajor=1, devminor=5), "a link or a device"),
        (member("x.csv", tarfile.BLKTYPE), "a link or a device"),
        (member("x.csv", tarfile.FIFOTYPE), "a link or a device"),
        (member("x.csv", pax_headers={"GNU.sparse.map": "0,8", "GNU.sparse.size": "9" * 15}), "a sparse file"),
    ],
)
@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_a_hostile_member_is_refused_wherever_it_lies(hostile, what, first, tmp_path):
    path = archive(tmp_path / "x.tar.gz", *((hostile, TABLE) if first else (TABLE, hostile)))
    with pytest.raises(TraceError, match=what) as refused:
        content(path)
    assert "do not use" in refused.value.hint


@pytest.mark.parametrize("members", [(), (FOLDER,), (member("._x.csv"),)], ids=["empty", "folder", "attributes"])
def test_an_archive_without_a_table_is_refused(members, tmp_path):
    path = archive(tmp_path / "x.tar.gz", *members)
    with pytest.raises(TraceError):
        content(path)


def test_an_archive_of_two_tables_is_refused(tmp_path):
    with pytest.raises(TraceError, match="more than one table"):
        content(archive(tmp_path / "x.tar.gz", TABLE, member("y.csv")))


@pytest.mark.parametrize("sizes", ["x", "0,", "-5", "9" * 400])
def test_nonsense_in_an_extended_header_is_damage(sizes, tmp_path):
    path = archive(tmp_path / "x.tar", member("x.csv", pax_headers={"GNU.sparse.map": sizes}), mode="w")
    with pytest.raises(TraceError):
        content(path)


def test_a_tar_that_is_cut_off_is_refused(tmp_path):
    path = archive(tmp_path / "x.tar", member("x.csv", data=TEXT * 1000), mode="w")
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(TraceError, match="truncated or damaged"):
        content(path)


# -- things that are no files ------------------------------------------------------------------------------------


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


@pytest.mark.parametrize("make", [pipe, lambda _: Path("/dev/zero")], ids=["pipe", "device"])
def test_what_may_never_end_is_refused_and_not_waited_for(make, tmp_path):
    path = make(tmp_path)
    for look in (sources, content):
        with pytest.raises(TraceError, match="not a regular file or folder"):
            look(path)


def test_a_pipe_among_files_is_passed_over(tmp_path):
    pipe(tmp_path)
    (tmp_path / "x.csv").write_bytes(TEXT)
    assert [s.name for s in sources(tmp_path)] == ["x.csv"]


def test_a_folder_called_like_a_table_is_refused_as_one(tmp_path):
    (tmp_path / "x.csv").mkdir()
    with pytest.raises(TraceError, match="a folder, but a file was expected"):
        content(tmp_path / "x.csv")


@pytest.mark.parametrize("name", ["nowhere.csv", "nowhere/x.csv", "a\0b", "x" * 5000, "file/x"])
def test_a_path_that_cannot_be_is_refused_with_a_hint(name, tmp_path):
    (tmp_path / "file").write_bytes(TEXT)
    with pytest.raises(TraceError) as refused:
        sources(tmp_path / name)
    assert refused.value.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused_with_a_hint(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(TEXT)
    path.chmod(0)
    with pytest.raises(TraceError, match="cannot read"):
        content(path)


def test_a_first_look_at_a_broken_archive_sees_nothing(tmp_path):
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(TEXT * 99)[:-30])
    assert Peek(tmp_path).first_lines in ([""], ["a,b"])


@pytest.mark.parametrize(
    ("name", "stem"),
    [("a.csv", "a"), ("A.TAR.GZ", "a"), ("a.csv.gz", "a"), ("a.tgz", "a"), ("a.b.csv", "a.b"), ("a", "a")],
)
def test_a_stem_is_the_name_without_its_packing(name, stem):
    assert SourceFile(Path(name)).stem == stem


# -- a bomb ------------------------------------------------------------------------------------------------------

LIMIT = 450 << 20  # bytes that Python and polars take by themselves, and then some
READ = """
import sys, pathlib
from fleetlab.traces.input.intake import Intake, TableSchema
from fleetlab.traces.input.files import SourceFile
import polars as pl
intake = Intake()
schema = TableSchema("t", {"a": pl.String, "b": pl.Int64}, header=False)
frame = intake.table(SourceFile(pathlib.Path(sys.argv[1])), schema)
print(frame.rows(), intake.rejects()["line"].to_list())
# Not `ru_maxrss`: a child begins with the peak of whoever started it, and a test run can be large by then.
status = pathlib.Path("/proc/self/status").read_text()
print(status.split("VmHWM:")[1].split()[0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_a_line_of_half_a_gigabyte_costs_a_few_blocks_of_memory(tmp_path):
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as f:
        f.write(b"x,1\n")
        for _ in range(500):
            f.write(bytes(1 << 20))
        f.write(b"\ny,2\n")
    said = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, check=True).stdout
    rows, peak = said.splitlines()
    assert rows == "[('x', 1, 1), ('y', 2, 3)] [2]"
    assert int(peak) << 10 < LIMIT + 4 * files.BLOCK
