"""How often the intervals of `fleetlab eta` hold, walking forward over a log, and where coverage is lost.

    python -m benchmarks.eta builtin:20000 --words "load=0.4 nodes=-80%" --asks 500
    python -m benchmarks.eta plain-1 plain-2 --asks 200              # folders of traces: each, and all together
    python -m benchmarks.eta builtin:20000 --words "load=0.4 nodes=-80%" --asks 150 --oracle
    python -m benchmarks.eta builtin:20000 --words "load=2.2" --asks 12 --speed
    python -m benchmarks.eta --philly ../shared/data/philly/philly_sia_82k.csv --asks 200

`--oracle` tells replays the truth of run times, of arrivals, or of both: what is lost then is not lost by the other.
`--speed` tells how long a question takes beside a queue of about 1,000. `--independent 3000` is a simulated log with a
known law: Poisson arrivals, exponential run times by user. `--philly` takes each virtual cluster of Philly with at
least 1,900 jobs, on the fewest nodes of 8 GPUs with a load of at most 0.4: arrivals come in bursts of days, and at 0.8
jobs would wait for days on end.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import polars as pl

from fleetlab import Cluster, Scenario, Workload
from fleetlab.core.censoring import Floats
from fleetlab.core.resample import Ints, ahead
from fleetlab.studies.eta.calibration import covered
from fleetlab.studies.eta.eta import replay_question
from fleetlab.studies.eta.judge import (
    CALIBRATED,
    CLASS,
    LIMITS,
    REPLAY,
    WARM_UP,
    compared_answers,
    judged_rows,
    pinball,
)
from fleetlab.studies.eta.question import Question, history_of
from fleetlab.studies.eta.replay import quantiles, replay
from fleetlab.studies.eta.run_times import RunTimes
from fleetlab.studies.eta.snapshot import Arrivals, History, ReplaySetup, RunTimeModel

LEVELS = {1: 0.1, 2: 0.5, 3: 0.9}


@dataclass(frozen=True, eq=False)
class TrueRunTimes:
    """Run times as they were."""

    history: History

    def draw(self, rows: Ints, elapsed: Floats, draws: int, rng: np.random.Generator) -> Floats:
        """Return how long each job ran, as often as wanted."""
        ran = (self.history.end - self.history.start)[rows]
        return np.repeat(np.maximum(ran, elapsed)[:, None], draws, axis=1)


def true_arrivals(history: History, row: int) -> Arrivals:
    """Return what did come after a job."""

    def come(came: Floats, at: float, length: float, rng: np.random.Generator) -> tuple[Ints, Floats]:
        later = np.flatnonzero((history.submit >= at) & (history.submit < at + length))
        later = later[later > row]
        return later, np.maximum(history.submit[later] - at, 0.0)

    return come


def random_jobs(count: int, load: float = 0.95, seed: int = 1) -> Workload:
    """Return Poisson arrivals of 1 to 8 GPUs, for 12 nodes of 8, with exponential run times by user."""
    rng = np.random.default_rng(seed)
    gpus, user = rng.choice([1, 2, 4, 8], count, p=[0.5, 0.2, 0.15, 0.15]), rng.integers(0, 10, count)
    runtime = (1800 * np.exp(rng.normal(0, 1, 10)))[user] * rng.exponential(1, count)
    submit = np.cumsum(rng.exponential(np.mean(gpus * runtime) / (load * 96), count))
    frame = {"submit": submit - submit[0], "runtime": runtime, "gpu_milli": gpus * 1000, "user": user.astype(str)}
    return Workload.of(pl.DataFrame(frame), source="independent jobs")


def small_cluster(count: int, gpus: int = 8) -> Cluster:
    """Return so many nodes of A100s."""
    names = {"node": [f"n{k}" for k in range(count)], "gpus": [gpus] * count, "gpu_type": ["A100"] * count}
    return Cluster.of(pl.DataFrame(names), source="by hand")


def virtual_clusters(file: Path, least: int = 1900, load: float = 0.4) -> dict[str, Scenario]:
    """Return the submissions of Philly's larger virtual clusters, each on a cluster that they keep busy."""
    jobs = pl.read_csv(file, try_parse_dates=True).drop_nulls().sort("timestamp")
    found = {}
    for (name,), part in jobs.group_by("cluster", maintain_order=True):
        if len(part) < least:
            continue
        submit = (part["timestamp"] - part["timestamp"].min()).dt.total_seconds().cast(pl.Float64)
        busy = cast(float, (part["duration"] * part["num_gpus"]).sum()) / cast(float, submit.max())
        gpus = part["num_gpus"]
        count = max(math.ceil(busy / load / 8), math.ceil(cast(int, gpus.max()) / 8))
        instances = -(-gpus // 8)
        columns = {"submit": submit, "runtime": part["duration"], "gpu_milli": gpus * 1000 // instances}
        frame = pl.DataFrame(columns | {"instances": instances, "user": [str(name)] * len(part)})
        found[f"Philly {name} on {count} nodes"] = Scenario.of(
            Workload.of(frame, source=f"Philly {name}"), small_cluster(count)
        )
    return found


def row_of(name: str, answer: Floats, truth: Floats) -> str:
    """Return coverage and loss as a row of a table."""
    shares = [covered(answer, truth, low, high) for low, high in ((1, 3), (0, 4))]
    loss = np.mean([pinball(answer[:, k], truth, level).mean() for k, level in LEVELS.items()])
    said = " | ".join(f"{100 * s.value:.1f} % ({100 * s.low:.0f} to {100 * s.high:.0f})" for s in shares)
    sides = f"{100 * (truth < answer[:, 1] - 1e-6).mean():.0f} / {100 * (truth > answer[:, 3] + 1e-6).mean():.0f} %"
    width = float(np.median(answer[:, 3] - answer[:, 1]))
    return f"| {name} | {len(truth)} | {said} | {sides} | {width:.0f} | {loss:.1f} |"


def decompose(scenario: Scenario, history: History, rows: Ints, replays: int) -> Iterator[str]:
    """Yield a row for each of what may be known: run times, arrivals, both, none."""
    classes = RunTimes(history)
    for true_times in (True, False):
        for true_coming in (True, False):
            answer = np.zeros((len(rows), 5))
            for k, row in enumerate(rows.tolist()):
                snapshot = history.at(float(history.submit[row]), row)
                known: RunTimeModel = TrueRunTimes(history) if true_times else classes.at(snapshot)
                coming = true_arrivals(history, row) if true_coming else ahead
                count = 1 if true_times and true_coming else replays
                found = replay(
                    ReplaySetup(scenario, snapshot, known, count, scenario.seed + row, coming), np.array([row])
                )
                answer[k] = quantiles(np.minimum(found.of(row), found.horizon))
            truth = history.wait[rows]
            off = np.abs(answer[:, 2] - truth)
            name = f"run times {'true' if true_times else 'drawn'}, arrivals {'true' if true_coming else 'drawn'}"
            within = f"median within 10 %: {100 * (off <= 0.1 * truth + 1).mean():.0f} %"
            yield f"{row_of(name, answer, truth)} {within}"


def timed(scenario: Scenario, history: History, asks: int, replays: int = 200) -> Iterator[str]:
    """Yield how long a question takes, about jobs that meet a queue of about 1,000; the first compiles."""
    yield "| running | waiting | median start in, min | replays | wall s | CPU s |"
    minutes = np.unique(np.floor(history.submit / 60) * 60)
    queue = np.array([len(history.at(at).waiting) for at in minutes])
    instants = minutes[np.argsort(np.abs(queue - 1000), kind="stable")[:asks]]
    for k, at in enumerate(np.concatenate([instants[:1], instants]).tolist()):
        row = int(np.searchsorted(history.submit, at))
        snapshot = history.at(float(history.submit[row]), row)
        question = Question(scenario, history, snapshot, np.array([row]), f"Job {row}")
        began, spent = time.perf_counter(), time.process_time()
        found = replay_question(scenario, question, replays, scenario.seed)
        took, used = time.perf_counter() - began, time.process_time() - spent
        if k:
            median = np.median(np.minimum(found.of(row), found.horizon)) / 60
            sizes = f"{len(snapshot.running):,} | {len(snapshot.waiting):,}"
            yield f"| {sizes} | {median:.1f} | {len(found.of(row))} | {took:.2f} | {used:.2f} |"


def main() -> None:
    """Print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("traces", nargs="*")
    options.add_argument("--words", default="", help="of the scenario, such as: load=0.4 backfill=easy")
    options.add_argument("--asks", type=int, default=200)
    options.add_argument("--replays", type=int, default=19)
    options.add_argument("--oracle", action="store_true")
    options.add_argument("--speed", action="store_true")
    options.add_argument("--independent", type=int, default=0, metavar="JOBS")
    options.add_argument("--philly", type=Path, metavar="FILE")
    options.add_argument("--save", metavar="FOLDER", help="keep answers and truth of each trace as an .npz file")
    given = options.parse_args()
    words = dict(word.split("=", 1) for word in given.words.split())
    scenarios = {name: Scenario.of(name, **words) for name in given.traces}
    if given.independent:
        scenarios["independent jobs"] = Scenario.of(random_jobs(given.independent), small_cluster(12))
    if given.philly:
        scenarios |= virtual_clusters(given.philly)
    every: dict[str, list[Floats]] = {}
    print("| by | asks | 80 % covers | 95 % covers | below P10 / above P90 | width of 80 %, s | pinball loss, s |")
    for name, scenario in scenarios.items():
        begin, history = time.process_time(), history_of(scenario, "auto")
        if given.speed:
            print("\n".join(timed(scenario, history, given.asks)))
            continue
        rows = judged_rows(history, given.asks, scenario.seed)
        rows = rows[~(history.start[rows] <= history.submit[rows])]
        usual = f"median wait {np.median(history.wait[rows]):.0f} s"
        print(f"-- {name} {given.words}: {len(rows)} asks, {usual}", flush=True)
        if given.oracle:
            for line in decompose(scenario, history, rows, given.replays):
                print(line, flush=True)
            continue
        answers, truth = compared_answers(scenario, history, rows, given.replays), history.wait[rows]
        if given.save:
            file = Path(given.save) / f"{name} {given.words}.npz".replace("/", "-")
            np.savez(file, allow_pickle=False, rows=rows, at=history.submit[rows], truth=truth, **answers)
        for kind in (REPLAY, CALIBRATED, CLASS, LIMITS):
            every.setdefault(kind, []).append(answers[kind][WARM_UP:])
            print(row_of(kind, answers[kind][WARM_UP:], truth[WARM_UP:]), flush=True)
        every.setdefault("truth", []).append(truth[WARM_UP:])
        print(f"   {(time.process_time() - begin) / len(rows):.2f} CPU s an ask", flush=True)
    if len(scenarios) > 1 and every:
        print("-- all together")
        for kind in (REPLAY, CALIBRATED, CLASS, LIMITS):
            print(row_of(kind, np.concatenate(every[kind]), np.concatenate(every["truth"])))


if __name__ == "__main__":
    main()
