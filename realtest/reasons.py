"""Why jobs wait, by the wait ledger on a recorded schedule, beside what squeue said: `python -m realtest.reasons RUN…`.

The schedule is the real one, so that both speak of the same instants. squeue has the reason that a loop left at its
last look; of jobs behind others it says Priority, whether they would fit or not. The ledger says what is missing.
"""

from __future__ import annotations

import argparse
import gzip
import re
from collections import Counter
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from pathlib import Path

import numpy as np
import polars as pl

import fleetlab
from fleetlab.core import Scenario, Trace
from fleetlab.core.catalog import REASONS
from fleetlab.schedulers.slurm.play import partitions_of, tables, up_of
from fleetlab.schedulers.slurm.reader.events import node_events
from fleetlab.schedulers.slurm.rule_tables import accounting_of, rules_of
from fleetlab.sim.events import draining_of, outages_of
from fleetlab.sim.layout import Floats, Ints
from fleetlab.sim.ledger.ledger import ledger
from fleetlab.sim.ledger.rules import Looks
from fleetlab.sim.schedule import Schedule
from fleetlab.sim.simulate import world_of
from fleetlab.sim.world import World
from realtest.archives import run_folder


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What squeue said of pending jobs at one time."""

    time: float  # Unix
    reasons: dict[str, str]  # by the number of a job


def snapshots(run: Path) -> list[Snapshot]:
    """Read the snapshots of a run."""
    text = gzip.decompress((run / "snapshots.txt.gz").read_bytes()).decode()
    found = []
    for part in re.split(r"^(?=-- )", text, flags=re.MULTILINE):
        if part.startswith("-- squeue"):
            head, *lines = part.splitlines()
            rows = [line.split("|") for line in lines if line.count("|") >= 8]
            found.append(Snapshot(float(head.split()[2]), {row[0]: row[2] for row in rows if row[1] == "PENDING"}))
    return found


def recorded(trace: Trace) -> tuple[World, Schedule]:
    """Return the schedule that a log recorded, as the wait ledger takes it; each run is a job of its own.

    When loops looked it does not tell: they are taken to have looked a second before the start.
    """
    site = trace.scheduler
    assert site is not None
    s = Scenario.of(replace(trace, scheduler=None), scheduler=site, warm_up="none")
    world, parts = world_of(s), partitions_of(site, s.cluster)
    start, end, where, got = _placed(world, trace, s.cluster.frame)
    t = tables(world, site, s.cluster, parts)
    accounts = accounting_of(world, replace(site, partitions=tuple(parts)), t, s.cluster)
    ran, eligible = ~np.isnan(start), _eligible(world, start, end)
    world = replace(world, eligible=np.minimum(eligible, float(np.nanmax(end))))
    outages = outages_of(node_events(trace), s.cluster, horizon=1e9)
    none, never = np.zeros(len(start), dtype=np.int64), np.full(len(start), np.inf)
    played = Schedule(
        start, end, np.where(ran, 2, 0), where, got, none, none, np.zeros(len(start)), backfill="conservative",
        rules=rules_of(t, accounts, site.epilog), until=float(np.nanmax(end)), up=up_of(len(s.cluster), outages),
        looks=Looks(eligible[ran], start[ran] - 1.0, eligible, never, never, -never),
        draining=draining_of(outages),
    )  # fmt: skip
    return world, played


def _eligible(world: World, start: Floats, end: Floats) -> Floats:
    """Return when jobs could start, by what their parents did in the log."""
    eligible, row = np.floor(world.eligible), {job: k for k, job in enumerate(world.frame["job"].to_list())}
    for t, (parents, rules) in enumerate(world.frame.select("depends_on", "dependency").iter_rows()):
        for parent, rule in zip(parents, rules, strict=True):
            if parent in row:
                done = (start if rule == "after" else end)[row[parent]]
                eligible[t] = max(eligible[t], np.inf if np.isnan(done) else done)
    return np.minimum(eligible, np.where(np.isnan(start), np.inf, start))


def _placed(world: World, trace: Trace, nodes: pl.DataFrame) -> tuple[Floats, Floats, Ints, Ints]:
    """Return when jobs ran, the node of each instance, and GPUs there that no other job has at the time."""
    start, end = (world.frame[name].to_numpy().astype(np.float64).copy() for name in ("start", "end"))
    place = {name: k for k, name in enumerate(nodes["node"])}
    assert trace.placements is not None
    lists = dict(trace.placements.collect().group_by("job", maintain_order=True).agg("node").iter_rows())
    where = np.full(int(world.first[-1]), -1, dtype=np.int64)
    got, free = np.zeros(len(where), dtype=np.int64), [(1 << gpus) - 1 for gpus in nodes["gpus"]]
    ends: list[tuple[float, int, int]] = []  # of GPUs that are given: until, node, bits
    for t in np.lexsort((world.submit, start)):
        names = [place[name] for name in lists.get(world.frame["job"][int(t)], []) if name in place]
        if np.isnan(start[t]) or np.isnan(end[t]) or end[t] <= start[t] or not names:
            start[t] = end[t] = np.nan
            continue
        while ends and ends[0][0] <= start[t]:
            _, n, bits = heappop(ends)
            free[n] |= bits
        gpus = int(world.shapes.gpus[world.shape[t]])
        for k in range(int(world.instances[t])):
            # Where the log does not tell how many were on a node, those that are left go where most is free.
            n = names[k] if k < len(names) else max(names, key=lambda m: free[m].bit_count())
            bits = sum(1 << b for b in [b for b in range(62) if free[n] >> b & 1][:gpus])
            where[world.first[t] + k], got[world.first[t] + k] = n, bits
            free[n] &= ~bits
            heappush(ends, (float(end[t]), n, bits))
    return start, end, where, got


def compare(run: Path) -> Counter[tuple[str, str]]:
    """Count pending jobs by what squeue said of them and by the ledger's reason at that second."""
    trace = fleetlab.read(run, "slurm")
    assert trace.scheduler is not None
    assert trace.names is not None
    world, played = recorded(trace)
    names = dict(trace.names.collect().select("job", "name").iter_rows())
    numbers = [names[job].split("/")[-1] for job in world.frame["job"].to_list()]
    found: Counter[tuple[str, str]] = Counter()
    for shot in snapshots(run):
        now = float(np.floor(shot.time - (trace.workload.epoch or 0.0)))
        seconds = ledger(world, played, within=(now, now + 1.0))
        waiting = (world.submitted <= now) & ~(played.start <= now)
        for row in np.flatnonzero(waiting):
            said = _said(shot, numbers[row])
            if said is not None and seconds[row].any():
                found[said, REASONS.names[int(seconds[row].argmax())]] += 1
            elif said is not None and world.eligible[row] > now:
                found[said, "not_eligible"] += 1
    return found


def _said(shot: Snapshot, name: str) -> str | None:
    """Return squeue's reason of a job; tasks of an array that have not been split off have one line, `12_[3-9%2]`."""
    array = name.split("_")[0]
    return shot.reasons.get(name) or next((r for k, r in shot.reasons.items() if k.startswith(f"{array}_[")), None)


def table(counts: Counter[tuple[str, str]]) -> str:
    """Return the counts with a row for each of squeue's reasons."""
    ours = [name for name in REASONS.names if any(reason == name for _, reason in counts)]
    lines = [f"| squeue | {' | '.join(ours)} |", "|---|" + "--:|" * len(ours)]
    said = sorted({reason for reason, _ in counts})
    lines += [f"| {reason} | {' | '.join(str(counts[reason, name] or '') for name in ours)} |" for reason in said]
    return "\n".join(lines)


def main() -> None:
    """Count over runs."""
    parser = argparse.ArgumentParser(prog="realtest.reasons", description=__doc__)
    parser.add_argument("runs", nargs="+")
    counts: Counter[tuple[str, str]] = Counter()
    for run in parser.parse_args().runs:
        counts += compare(run_folder(run))
    print(table(counts))


if __name__ == "__main__":
    main()
