"""How far two real runs of the same submissions are apart: what a simulation cannot be asked to come closer than.

`python -m realtest.spread FOLDER` prints a table of the runs in it, and of each setting's pairs of runs.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True)
class Run:
    """When each job that started was eligible and first started, in seconds; by the order of submission."""

    name: str
    eligible: dict[str, float]
    start: dict[str, float]
    attempts: int  # starts, also those after a job was put back into the queue
    late: float  # the longest that a submission was behind its time
    kinds: dict[str, dict[str, str]] = field(default_factory=dict)  # partition, account: of each job, where known

    @property
    def waits(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Seconds from eligible to start."""
        return np.array([self.start[job] - self.eligible[job] for job in self.start])


def text_of(folder: Path, name: str) -> str | None:
    """Return a file of a run, compressed or not; None where it has none."""
    if (plain := folder / name).exists():
        return plain.read_text("utf-8", errors="replace")
    packed = folder / f"{name}.gz"
    return gzip.decompress(packed.read_bytes()).decode("utf-8", errors="replace") if packed.exists() else None


@dataclass(frozen=True, slots=True)
class Order:
    """The place of each id among the submissions: tasks of an array take ids when they start, so ids differ."""

    places: dict[int, int]

    def key(self, job: str) -> str:
        """Return a job's name with the place of its submission: the same in every run of the same submissions."""
        number = _submission(job)
        return job.replace(str(number), str(self.places.get(number, number)), 1)


def submission_order(folder: Path) -> Order:
    """Return the order in which a run's jobs were submitted; of a log that does not tell, the order of their ids."""
    submitted = [json.loads(line) for line in (text_of(folder, "submitted.jsonl") or "").splitlines()]
    about = json.loads(text_of(folder, "run.json") or "{}")
    ids = [row["id"] for row in submitted if "id" in row] or about.get("ids", ())
    return Order({number: rank for rank, number in enumerate(ids, start=1)})


def load(folder: Path) -> Run:
    """Read a run from what `collect` gathered, without fleetlab's reader."""
    about = json.loads(text_of(folder, "run.json") or "{}")
    begin = about["begin"]
    header, *lines = (text_of(folder, "sacct.txt") or "").splitlines()
    names = header.split("|")
    rows = [dict(zip(names, line.split("|"), strict=False)) for line in lines]
    rows = [row for row in rows if row["JobID"][:1].isdigit() and "." not in row["JobID"]]
    submitted = [json.loads(line) for line in (text_of(folder, "submitted.jsonl") or "").splitlines()]
    order = submission_order(folder)
    eligible: dict[str, float] = {}
    start: dict[str, float] = {}
    rows = [row for row in rows if row.get("Start", "Unknown") not in ("Unknown", "None", "")]
    for row in rows:
        job = order.key(row["JobID"])
        at = _seconds(row["Start"]) - begin
        if at < start.get(job, np.inf):
            start[job], eligible[job] = at, _seconds(row["Eligible"]) - begin
    late = max((row["late"] for row in submitted), default=about.get("late", {}).get("longest", 0.0))
    return Run(folder.name, eligible, start, len(rows), late)


def _submission(job: str) -> int:
    """Return the id that sbatch gave: 12 of 12_3 and of 12+1."""
    return int(re.split(r"[_+]", job)[0])


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()


def compare(one: Run, other: Run, jobs: Iterable[str] | None = None) -> dict[str, float]:
    """Compare the starts of jobs that both runs started, or of some of them; ratios are of the other to the one."""
    some = set(one.start if jobs is None else jobs)
    both = [job for job in one.start if job in other.start and job in some]
    apart = np.array([abs(one.start[job] - other.start[job]) for job in both])
    waits = np.array([[run.start[job] - run.eligible[job] for job in both] for run in (one, other)])
    return {
        "jobs": len(both),
        "within_2s": float(np.mean(apart <= 2)),
        "within_10s": float(np.mean(apart <= 10)),
        "mean_apart": float(np.mean(apart)),
        "correlation": float(np.corrcoef(waits)[0, 1]) if waits.std(axis=1).all() else float(waits.std() == 0),
        "mean_wait": float(waits[0].mean()),
        "mean_ratio": ratio(waits[1].mean(), waits[0].mean()),
        "tail_ratio": ratio(*np.quantile(waits[::-1], 0.9, axis=1)),
    }


def ratio(a: float, b: float) -> float:
    """Return one wait over another, both of at least a second, which is as exactly as Slurm logs them."""
    return float(max(a, 1.0) / max(b, 1.0))


def runs_by_setting(folder: Path) -> dict[str, list[Run]]:
    """Return the complete runs in a folder, by what they are repetitions of."""
    found: dict[str, list[Run]] = {}
    for about in sorted(folder.glob("*/run.json")):
        run = load(about.parent)
        found.setdefault(run.name.rpartition("-")[0], []).append(run)
    return found


def tables(folder: Path) -> str:
    """Return two tables: each run, and each setting's pairs."""
    lines = [
        "| run | jobs started | mean wait s | P50 | P90 | longest | most late s |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    pairs = ["| setting | runs | mean wait s | spread of the mean | spread of P90 | starts within 2 s | within 10 s |"]
    pairs[0] += " mean difference s | correlation |"
    pairs.append("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for setting, runs in runs_by_setting(folder).items():
        for run in runs:
            waits = run.waits
            cells = [waits.mean(), *np.quantile(waits, [0.5, 0.9]), waits.max()]
            lines.append(f"| {run.name} | {len(waits)} | {' | '.join(f'{c:.1f}' for c in cells)} | {run.late:.2f} |")
        pairs.append(_pairs(setting, runs))
    return "\n".join([*lines, "", *pairs])


def _pairs(setting: str, runs: list[Run]) -> str:
    means = np.array([run.waits.mean() for run in runs])
    tails = np.array([np.quantile(run.waits, 0.9) for run in runs])
    compared = [compare(one, other) for one, other in combinations(runs, 2)]
    if not compared:
        return f"| {setting} | 1 | {means[0]:.1f} | | | | | | |"
    average = {name: np.mean([c[name] for c in compared]) for name in compared[0]}
    spread = [f"{np.ptp(values) / values.mean():.1%}" for values in (means, tails)]
    shares = [f"{average[name]:.0%}" for name in ("within_2s", "within_10s")]
    cells = [f"{means.mean():.1f}", *spread, *shares, f"{average['mean_apart']:.1f}", f"{average['correlation']:.3f}"]
    return f"| {setting} | {len(runs)} | {' | '.join(cells)} |"


if __name__ == "__main__":
    print(tables(Path(sys.argv[1])))
