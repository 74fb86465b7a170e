"""Keep what a real run showed, small enough for the repository: `python -m realtest.keep RUN… --into FOLDER`."""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

from realtest.archives import MEASUREMENTS, pack

SMALL = (
    *("slurm.conf", "site.conf", "partitions.txt", "reservations.txt", "reservation-log.txt"),
    *("assoc.txt", "qos.txt", "sshare.txt", "events.txt", "collected.txt"),
)
PACKED = ("sacct.txt", "nodes.txt")
ONCE = ("config.txt", "sdiag.txt", "accounts.cfg")  # the same for every repetition: of the first only
FOLDERS, LAB = ("ctld", "spool", "log", "pid", "run", "etc", "dev"), "/var/lab"  # of the daemons
SNAPSHOTS = 4  # of one every ten seconds


def keep(run: Path, out: Path, *, first: bool) -> Path:
    """Copy a run: the log and the nodes compressed, a few snapshots, and of the submissions what sacct does not say."""
    out.mkdir(parents=True, exist_ok=True)
    for name in (*SMALL, *(ONCE if first else ())):
        if (run / name).exists():
            (out / name).write_text(without_host((run / name).read_text("utf-8", errors="replace")), "utf-8")
    for name in PACKED:
        _pack(out / f"{name}.gz", (run / name).read_bytes())
    begin = (run / "sshare-begin.txt").read_text()
    (out / "sshare-begin.txt").write_text(re.sub(r"^[\d.]+\n", "", begin))
    _pack(out / "snapshots.txt.gz", thin((run / "snapshots.txt").read_text(errors="replace")).encode())
    rows = [json.loads(line) for line in (run / "submitted.jsonl").read_text().splitlines()]
    about = json.loads((run / "run.json").read_text())
    about["late"] = lateness(rows)
    ids = [row["id"] for row in rows if "id" in row]
    if ids != list(range(1, len(ids) + 1)):
        about["ids"] = ids  # tasks of arrays took some in between
    shown = ("at", "kind", "words", "error")
    about["acts"] = [{k: row[k] for k in shown if k in row} for row in rows if "key" not in row]
    (out / "run.json").write_text(json.dumps(about) + "\n")
    return out


def without_host(text: str) -> str:
    """Put the daemons' folder, which is one of this host, under a name that says nothing of it.

    >>> without_host("SlurmdSpoolDir=/home/ann/build/lab7/spool/%n")
    'SlurmdSpoolDir=/var/lab/spool/%n'
    """
    return re.sub(rf"(/[\w.-]+){{2,}}(?=/({'|'.join(FOLDERS)})\b)", LAB, text)


def lateness(rows: list[dict[str, float]]) -> dict[str, float]:
    """Say how far submissions were behind their times."""
    late = sorted(row["late"] for row in rows)
    return {"longest": late[-1], "p99": late[len(late) * 99 // 100], "mean": round(sum(late) / len(late), 4)}


def thin(snapshots: str, count: int = SNAPSHOTS) -> str:
    """Return so many of the snapshots, evenly spread."""
    taken = re.split(r"^(?=== )", snapshots, flags=re.MULTILINE)[1:]
    chosen = [taken[k * (len(taken) - 1) // max(1, count - 1)] for k in range(min(count, len(taken)))]
    return "".join(chosen)


def _pack(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def main() -> None:
    """Keep runs under their own names; the first of a setting has what is the same in all."""
    parser = argparse.ArgumentParser(prog="realtest.keep", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, default=MEASUREMENTS / "slurm")
    given = parser.parse_args()
    for run in sorted(given.runs):
        with TemporaryDirectory() as scratch:
            kept = keep(run, Path(scratch, run.name), first=run.name.endswith("-1"))
            print(pack(kept, given.into / f"{run.name}.tar.gz"))


if __name__ == "__main__":
    main()
