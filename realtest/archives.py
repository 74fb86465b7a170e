"""Recorded runs as archives: a folder becomes one .tar.gz of the same bytes wherever and whenever it is packed.

`python -m realtest.archives FOLDER… --into measurements/slurm` packs folders, each as NAME.tar.gz.
"""

from __future__ import annotations

import argparse
import atexit
import gzip
import io
import tarfile
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp

from fleetlab.core.files import folder_at, unpack

ROOT = Path(__file__).parents[1]
MEASUREMENTS = ROOT / "measurements"
GPU_SHARING = MEASUREMENTS / "gpu-sharing.tar.gz"


def pack(folder: Path, archive: Path) -> Path:
    """Pack a folder: files by name, without times, owners and permissions."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(str(Path(folder.name, path.relative_to(folder))))
            member.size = path.stat().st_size
            with path.open("rb") as content:
                tar.addfile(member, content)
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(gzip.compress(packed.getvalue(), 9, mtime=0))
    return archive


def gpu_sharing() -> Path:
    """Return a temporary folder with the cells of the study of GPU sharing on an H200."""
    return folder_at(GPU_SHARING)


def recorded_runs(name: str) -> Path:
    """Return a temporary folder with all recorded runs of measurements/NAME, unpacked side by side."""
    return _unpacked(MEASUREMENTS / name)


def run_folder(name: str) -> Path:
    """Return the folder of a run: a folder, an archive, or a recorded run of Slurm by its name."""
    path = folder_at(Path(name))
    return path if path.is_dir() else recorded_runs("slurm") / name


@cache
def _unpacked(folder: Path) -> Path:
    runs = Path(mkdtemp(prefix="fleetlab-runs-"))
    atexit.register(rmtree, runs, ignore_errors=True)
    for archive in sorted(folder.glob("*.tar.gz")):
        with TemporaryDirectory(dir=runs) as scratch:
            run = unpack(archive, Path(scratch))
            run.rename(runs / run.name)
    return runs


def main() -> None:
    """Pack folders of recorded runs."""
    parser = argparse.ArgumentParser(prog="realtest.archives", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, default=MEASUREMENTS)
    given = parser.parse_args()
    for folder in sorted(given.folders):
        print(pack(folder, given.into / f"{folder.name}.tar.gz"))


if __name__ == "__main__":
    main()
