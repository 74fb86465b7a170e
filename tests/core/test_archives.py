"""An archive in the place of a folder."""

import tarfile

import pytest
from realtest.archives import MEASUREMENTS, pack

import fleetlab
from fleetlab.core.files import folder_at


@pytest.fixture
def folder(tmp_path):
    """Two files, one of them in a folder."""
    runs = tmp_path / "runs"
    (runs / "first").mkdir(parents=True)
    (runs / "first" / "log.txt").write_text("one\n")
    (runs / "about.json").write_text("{}")
    return runs


def test_a_folder_in_an_archive_has_the_files_that_were_packed(folder, tmp_path):
    archive = pack(folder, tmp_path / "kept" / "runs.tar.gz")
    assert (folder_at(archive / "first") / "log.txt").read_text() == "one\n"
    assert folder_at(archive).name == "runs"
    assert folder_at(archive / "about.json").read_text() == "{}"


def test_the_same_files_give_the_same_bytes(folder, tmp_path):
    first = pack(folder, tmp_path / "a.tar.gz").read_bytes()
    (folder / "about.json").write_text("{}")
    (folder / "about.json").chmod(0o600)
    assert pack(folder, tmp_path / "b.tar.gz").read_bytes() == first


def test_an_archive_that_changes_is_unpacked_again(folder, tmp_path):
    archive = pack(folder, tmp_path / "runs.tar.gz")
    folder_at(archive)
    (folder / "about.json").write_text('{"more": 1}')
    assert folder_at(pack(folder, archive) / "about.json").read_text() == '{"more": 1}'


@pytest.mark.parametrize("name", ["../evil.txt", "/evil.txt"])
def test_nothing_is_written_outside_of_the_folder(name, tmp_path):
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(fleetlab.TraceError, match="points outside the archive"):
        folder_at(archive)


def test_a_truncated_archive_says_so(folder, tmp_path):
    archive = pack(folder, tmp_path / "runs.tar.gz")
    archive.write_bytes(archive.read_bytes()[:-20])
    with pytest.raises(fleetlab.TraceError, match=r"runs.tar.gz: the archive is truncated or damaged"):
        folder_at(archive)


def test_a_site_reads_from_an_archive_as_from_its_folder(tmp_path):
    archive = MEASUREMENTS / "slurm" / "plain-1.tar.gz"
    packed, unpacked = fleetlab.read(archive, "slurm"), fleetlab.read(folder_at(archive), "slurm")
    assert packed.workload.frame.equals(unpacked.workload.frame)
    assert packed.provenance.source == unpacked.provenance.source
    assert packed.scheduler == unpacked.scheduler
