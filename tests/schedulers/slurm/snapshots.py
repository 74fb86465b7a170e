"""What sprio and sshare said while a real Slurm ran, and the same rows computed from its log.

Usage is counted in whole seconds, but in which order things happen within a second matters: times here are those of
slurmctld.log, in ms. When in a minute the controller's passes are is in no log: `first_pass` was found by trial.
"""

from __future__ import annotations

import json
import lzma
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fleetlab.schedulers.slurm.config import Slurm
from fleetlab.schedulers.slurm.fair_share import begin_fair_share, end_fair_share, fair_share, refresh_effective
from fleetlab.schedulers.slurm.priority import Factors, Request, priority_rules, total_priority, weighted_factors
from fleetlab.schedulers.slurm.usage import (
    Charge,
    billing_of,
    billing_rules,
    charge,
    charge_start,
    decay_usage,
    new_usage,
    usage_rules,
)
from fleetlab.sim.associations import OF_PARENT, associations_of, places, usage_of

SUBMITTED, STARTED, ENDED = range(3)
NO_VALUE = 4294967294.0


class Job(NamedTuple):
    """One attempt of a job; times are seconds since a whole second before the run."""

    id: str
    queue: str  # account/user
    partitions: list[str]  # that it names
    partition: str  # that it ran in
    qos: str
    submit: float | None  # None: a task of an array, which has no priority of its own while the array waits
    eligible: float
    start: float | None
    end: float | None
    limit: float
    request: dict[str, float]
    held: dict[str, float]  # what it was given
    nice: float
    cpus: float  # that its size counts once it was tried: those of whole nodes if it takes nodes alone

    def times(self) -> tuple[float | None, ...]:
        return self.submit, self.start, self.end


class Snapshot(NamedTuple):
    sprio_times: tuple[float, float]  # when the command began and ended: the controller answered between them
    sshare_times: tuple[float, float]
    sshare: list[
        list[str]
    ]  # queue, then NormShares, RawUsage, NormUsage, EffectvUsage, FairShare, LevelFS, TRESRunMins
    sprio: list[list[str]]  # job, partition, then %Y %A %F %J %P %Q %T %N %a %f %j %p %q


@dataclass
class Recording:
    """A run: its site, jobs and snapshots."""

    slurm: Slurm
    resources: list[str]  # columns
    tres: dict[str, str]  # Slurm's names of them
    cluster: dict[str, float]  # what all nodes have
    partitions: dict[str, dict[str, float]]
    first_pass: float
    jobs: list[Job]
    snapshots: list[Snapshot]

    @classmethod
    def load(cls, path: Path) -> Recording:
        values: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
        jobs = [Job(*row) for row in values.pop("jobs")]
        snapshots = [Snapshot(*row) for row in values.pop("snapshots")]
        return cls(Slurm.from_values(values.pop("slurm")), jobs=jobs, snapshots=snapshots, **values)

    def save(self, path: Path) -> None:
        values = self.__dict__ | {"slurm": self.slurm.to_values()}
        path.write_bytes(lzma.compress(json.dumps(values, separators=(",", ":")).encode(), preset=9))


class Replay:
    """Usage, fair share and priorities by our rules, from the starts and ends of a log."""

    def __init__(self, run: Recording) -> None:
        slurm = run.slurm
        self.run = run
        self.rules = usage_rules(slurm.priority, slurm.enforce)
        self.rows = places(slurm.queues)
        self.tree = associations_of(slurm.queues, fair_tree=bool(self.rules.fair_tree))
        self.qos = {qos.name: k for k, qos in enumerate(slurm.qos)}
        self.partitions = {partition.name: k for k, partition in enumerate(slurm.partitions)}
        self.usage = new_usage(self.tree, slurm.qos, len(run.resources), usage_of(slurm.queues))
        # Slurm has no NormUsage of a user before it was first asked for, but sums it up with DEPTH_OBLIVIOUS.
        self.usage.norm[1:] = NO_VALUE
        self.priorities = priority_rules(slurm, run.resources, run.cluster, run.partitions)
        self.billing = billing_rules(slurm, run.resources)
        self.rates: dict[str, float] = {}
        self.running: dict[int, Charge] = {}
        self.factors: dict[str, dict[str, Factors]] = {}  # of each job that was submitted, by partition
        self.pending: dict[str, int] = {}  # the attempt of each job that waits
        times = [(job.submit, job.start, job.end) for job in run.jobs]
        events = [
            (time, kind, k) for k, three in enumerate(times) for kind, time in enumerate(three) if time is not None
        ]
        self.events = deque(sorted(events))
        self.next_pass = run.first_pass
        self.usage.clock[0] = np.floor(run.first_pass - slurm.priority.calc_period)

    def columns(self, amounts: dict[str, float]) -> np.ndarray:
        return np.array([float(amounts.get(name, 0.0)) for name in self.run.resources])

    def forward(self, time: float) -> None:
        """Play until a time."""
        while self.next_pass <= time:
            self.play(self.next_pass)
            self.run_pass()
        self.play(time)

    def play(self, until: float) -> None:
        while self.events and self.events[0][0] <= until:
            time, kind, k = self.events.popleft()
            job = self.run.jobs[k]
            if kind == SUBMITTED and job.id not in self.factors:
                self.prioritize(job, time, np.inf)
            if kind == SUBMITTED:
                self.pending[job.id] = k
            elif kind == STARTED:
                self.pending.pop(job.id, None)
                self.start(k)
            else:
                self.end(k)

    def start(self, k: int) -> None:
        job, qos = self.run.jobs[k], self.run.slurm.qos[self.qos[self.run.jobs[k].qos]]
        amounts, partition = self.columns(job.held), self.partitions[job.partition]
        # A job that was requeued is charged as it was when it first ran.
        rate = self.rates.setdefault(job.id, billing_of(self.billing, partition, amounts, float(job.held["cpu"])))
        row = len(self.tree.parent) + self.qos[job.qos]
        self.running[k] = Charge(self.rows[job.queue], row, -1, rate, qos.usage_factor, job.start, job.limit)
        charge_start(self.tree, self.usage, self.rules, self.running[k], amounts)

    def end(self, k: int) -> None:
        job = self.run.jobs[k]
        self.pending.pop(job.id, None)
        if k in self.running:
            charge(self.tree, self.usage, self.rules, self.running.pop(k), self.columns(job.held), job.end, 1)
        if any(other.id == job.id for other in self.run.jobs[k + 1 :]):  # requeued: it waits with the priority it had
            self.pending[job.id] = k

    def prioritize(self, job: Job, now: float, accrue: float) -> None:
        row = self.rows[job.queue]
        share = fair_share(self.tree, self.usage, self.rules, self.priorities.dampening, row)
        cpus = float(job.cpus if accrue < now else job.request["cpu"])
        nodes, amounts = float(job.request["node"]), self.columns(job.request)
        request = Request(row, self.qos[job.qos], accrue, cpus, nodes, job.limit, job.nice, 0.0)
        self.factors[job.id] = {
            name: weighted_factors(self.priorities, request, amounts, self.partitions[name], share, now)
            for name in job.partitions
        }

    def run_pass(self) -> None:
        now = self.next_pass
        self.next_pass += self.run.slurm.priority.calc_period
        begin_fair_share(self.tree, self.usage, self.rules)
        decay_usage(self.usage, self.rules, now)
        pending = set(self.pending.values())
        for k, job in enumerate(self.run.jobs):
            if k in self.running:
                charge(self.tree, self.usage, self.rules, self.running[k], self.columns(job.held), now, 0)
            elif k in pending and not self.rules.fair_tree:  # with what those before it have used
                self.prioritize(job, now, job.eligible)
        end_fair_share(self.tree, self.usage, self.rules, now)
        for k in sorted(pending):
            if self.rules.fair_tree:
                self.prioritize(self.run.jobs[k], now, self.run.jobs[k].eligible)

    def sshare(self) -> list[list[str]]:
        usage, tree, found = self.usage, self.tree, []
        for name, row in self.rows.items():
            refresh_effective(tree, usage, self.rules, row)
            minutes = ",".join(
                f"{self.run.tres[resource]}={value:.0f}"
                for resource, value in zip(self.run.resources, usage.ahead[row] // 60, strict=True)
            )
            factor, level = f"{usage.factor[row]:f}" if tree.user[row] else "", f"{usage.level_fs[row]:f}"
            if not self.rules.fair_tree:
                factor, level = f"{self.classic_factor(row):f}", ""
            if tree.shares[row] == OF_PARENT or not row:
                level = ""
            norm = f"{usage.norm[row]:f}" if row else ""
            shares, raw = f"{tree.shares_norm[row]:f}", str(int(usage.billing[row]))
            found.append([name, shares, raw, norm, f"{usage.effective[row]:f}", factor, level, minutes])
        return found

    def classic_factor(self, row: int) -> float:
        return 2.0 ** -(self.usage.effective[row] / self.tree.shares_norm[row])

    def sprio(self) -> list[list[str]]:
        found = []
        for k in self.pending.values():
            job = self.run.jobs[k]
            for name, f in self.factors[job.id].items():
                total = total_priority(self.priorities, f, int(len(job.partitions) > 1), 0)
                weighted = (f.age, f.fair_share, f.job_size, f.partition, f.qos)
                rules = self.priorities
                weights = (rules.age, rules.fair_share, rules.job_size, rules.partition, rules.qos)
                parts = [
                    f"{value / weight if weight else 0.0:.7f}" for value, weight in zip(weighted, weights, strict=True)
                ]
                tres = self.tres_parts(k, name)
                row = [job.id, name, str(total), *(f"{value:.0f}" for value in weighted), tres, f"{f.nice:.0f}", *parts]
                found.append(row)
        return found

    def tres_parts(self, k: int, partition: str) -> str:
        rules, amounts = self.priorities, self.columns(self.run.jobs[k].request)
        of = rules.amounts[self.partitions[partition]]
        values = np.divide(amounts, of, out=np.zeros(len(of)), where=of > 0) * rules.tres
        names = [self.run.tres[name] for name in self.run.resources]
        return ",".join(f"{name}={value:.0f}" for name, value in zip(names, values, strict=True) if value)


class Comparison(NamedTuple):
    """Rows of sshare and sprio that were compared, and those that differ: (time, ours, Slurm's)."""

    sshare: int
    sprio: int
    differences: list[tuple[float, list[str], list[str]]]


def compare(run: Recording) -> Comparison:
    """Replay a run and compare every row of every snapshot."""
    replay, differences = Replay(run), []
    for snapshot in run.snapshots:
        for rows, ours, times in (
            (snapshot.sprio, replay.sprio, snapshot.sprio_times),
            (snapshot.sshare, replay.sshare, snapshot.sshare_times),
        ):
            for time in times:
                replay.forward(time)
                at_time = ours()
                rows = [row for row in rows if row not in at_time]
            closest = {tuple(row[:2]): row for row in at_time}
            differences += [(time, closest.get(tuple(row[:2]), []), row) for row in rows]
    counts = (sum(len(s.sshare) for s in run.snapshots), sum(len(s.sprio) for s in run.snapshots))
    return Comparison(*counts, differences)
