"""The wait ledger under a site's Slurm: against a plain re-reading of the schedule, and in planted worlds."""

from itertools import pairwise

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab.core import Cluster, Workload
from fleetlab.core.catalog import REASONS
from fleetlab.core.events import Drain, Outage
from fleetlab.core.queues import Limits, Qos, Queue, QueueTree
from fleetlab.schedulers.slurm.config import BackfillLoop, MainLoop, Partition, Reservation, Slurm

NAMES = pl.List(pl.String)
NODES = Cluster.of(
    pl.DataFrame(
        {
            "node": ["n0", "n1", "n2", "n3"], "gpu_type": ["A", "A", "B", "B"], "gpus": [4, 4, 4, 8],
            "cpu_milli": [8000, 8000, 8000, 16_000], "memory_mib": [800, 800, 800, 1600],
            "partitions": pl.Series([["x"], ["x", "y"], ["y"], ["y"]], dtype=NAMES),
        }
    ),
    source="four nodes in two partitions",
)  # fmt: skip
ACCOUNTS = QueueTree(
    [Queue("root"), Queue("vision", "root", limits=Limits(jobs=3)), Queue("lang", "root"),
     Queue("lang/bob", "lang", user="bob", limits=Limits(resources={"gpu": 6}))]
)  # fmt: skip
CLASSES = (
    Qos("low", per_user=Limits(resources={"gpu": 5})), Qos("high", limits=Limits(jobs=2), preempts=("low",)),
    Qos("normal", per_account=Limits(resources={"cpu": 12})),
)  # fmt: skip
SITES = st.fixed_dictionaries(
    {
        "interval": st.sampled_from([1.0, 7.0, 30.0]),
        "on": st.sampled_from([True, True, False]),
        "delay": st.sampled_from([0.0, 3.0]),
        "epilog": st.sampled_from([0.0, 0.0, 4.0]),
        "preempt": st.booleans(),
        "down": st.sampled_from([False, False, True]),
        "kept": st.sampled_from([(), (("n1", 20.0, 60.0),), (("n3", 10.0, 35.0), ("n0", 50.0, 90.0))]),
        "events": st.sampled_from([(), (), ("n1", 15.0, 40.0, "down"), ("n3", 25.0, 70.0, "drain")]),
    }
)
JOB = st.fixed_dictionaries(
    {
        "submit": st.integers(0, 60).map(float),
        "runtime": st.integers(1, 40).map(float),
        "instances": st.sampled_from([1, 1, 1, 2, 3]),
        "gpu_milli": st.sampled_from([0, 1000, 2000, 4000]),
        "cpu_milli": st.sampled_from([1000, 4000]),
        "memory_mib": st.sampled_from([0, 300]),
        "limit": st.sampled_from([60.0, 120.0]),
        "user": st.sampled_from(["ann", "bob"]),
        "queue": st.sampled_from(["vision", "lang"]),
        "qos": st.sampled_from(["low", "high", "normal"]),
        "partitions": st.sampled_from([["x"], ["y"], ["x", "y"]]),
        "distinct_nodes": st.booleans(),
        "array": st.sampled_from([None, None, 3]),
        "held": st.sampled_from([0.0, 0.0, 9.0]),
        "after": st.sampled_from([0, 0, 1, 2]),
        "kept": st.sampled_from([False, False, False, True]),
    }
)


def site_of(of):
    down = {"state": "down"} if of["down"] else {}
    return Slurm(
        partitions=(Partition("x", **down), Partition("y", max_time=90.0)), qos=CLASSES, queues=ACCOUNTS,
        main=MainLoop(delay=of["delay"]), epilog=of["epilog"], enforce=("limits",),
        backfill=BackfillLoop(on=of["on"], interval=of["interval"], resolution=1.0),
        preempt="qos" if of["preempt"] else "none", preempt_mode="requeue" if of["preempt"] else "off",
        reservations=tuple(Reservation(f"r{k}", a, b, (n,)) for k, (n, a, b) in enumerate(of["kept"])),
    )  # fmt: skip


def events_of(of):
    if not of["events"]:
        return ()
    node, begin, end, what = of["events"]
    return (Drain(begin, end, nodes=[node]) if what == "drain" else Outage(begin, end, nodes=[node]),)


def workload_of(rows, of):
    """Jobs of an array share a throttle of one; a job depends on the one so many before it."""
    rows = sorted(rows, key=lambda row: row["submit"])
    zero, table = rows[0]["submit"], []
    for k, row in enumerate(rows):
        begin, back = row["submit"] - zero, row["after"]
        table.append({name: v for name, v in row.items() if name not in ("held", "after", "kept")} | {
            "submit": begin, "eligible": begin + row["held"],
            "depends_on": [k - back] if 0 < back <= k else [], "dependency": ["afterany"] if 0 < back <= k else [],
            "array_limit": 1 if row["array"] else 0,
            "reservation": "r0" if row["kept"] and of["kept"] else None,
        })  # fmt: skip
    overrides = {"partitions": NAMES, "depends_on": pl.List(pl.Int64), "dependency": NAMES, "array": pl.Int64,
                 "reservation": pl.String}  # fmt: skip
    return Workload.of(pl.DataFrame(table, schema_overrides=overrides), source="small")


class Moment:
    """A schedule at one instant, after all that happens in it, read from its runs."""

    def __init__(self, result, site, closed, time):
        self.site, self.time = site, time
        self.jobs, runs = result.world.frame, result.played.runs(result.world.first)
        self.nodes = result.cluster.frame.to_dicts()
        for node in self.nodes:
            node |= {"gpus": node["gpus"], "busy": False}
            node["up"] = not any(node["node"] == n and a <= time < b for n, a, b in closed)
        self.empty, self.running = [dict(node) for node in self.nodes], []
        for k, j in enumerate(runs.job):
            job = self.jobs.row(int(j), named=True)
            where = runs.where[runs.first[k] : runs.first[k] + job["instances"]]
            if runs.end[k] > runs.begin[k] and runs.end[k] <= time < runs.end[k] + site.epilog:
                for n in where:
                    self.nodes[n]["busy"] = True
            if runs.begin[k] <= time < runs.end[k]:
                self.running.append(job)
                for n in where:
                    self.nodes[n]["gpus"] -= job["gpu_milli"] // 1000
                    self.nodes[n]["cpu_milli"] -= job["cpu_milli"]
                    self.nodes[n]["memory_mib"] -= job["memory_mib"]

    def at_limit(self, job):
        """Return whether a limit of its class, its account or itself, or its array's, is reached."""
        same = lambda *names: [o for o in self.running if all(o[n] == job[n] for n in names)]  # noqa: E731
        count = lambda of, column: sum(o["instances"] * o[column] for o in of) + job["instances"] * job[column]  # noqa: E731
        gpus = job["gpu_milli"] > 0
        found = [
            job["array"] is not None and len(same("array")) >= 1,
            job["qos"] == "low" and gpus and count(same("qos", "user"), "gpu_milli") > 5000,
            job["qos"] == "high" and len(same("qos")) >= 2,
            job["qos"] == "normal" and count(same("qos", "queue"), "cpu_milli") > 12_000,
            job["queue"] == "vision" and job["qos"] != "high" and len(same("queue")) >= 3,  # a QOS goes before accounts
            job["queue"] == "lang" and job["user"] == "bob" and gpus
            and count(same("queue", "user"), "gpu_milli") > 6000,
        ]  # fmt: skip
        return any(found)

    def open_partitions(self, job):
        named = [self.site.partition(name) for name in job["partitions"]]
        return [p.name for p in named if p.state == "up" and job["limit"] <= p.max_time]

    def room(self, job, node):
        if not node["up"]:
            return 0
        most = node["cpu_milli"] // job["cpu_milli"] if job["cpu_milli"] else 10**6
        most = min(most, node["memory_mib"] // job["memory_mib"]) if job["memory_mib"] else most
        most = min(most, node["gpus"] // (job["gpu_milli"] // 1000)) if job["gpu_milli"] else most
        return min(most, 1) if job["distinct_nodes"] and job["instances"] > 1 else most

    def kept(self, job, node):
        return any(
            node["node"] in r.nodes and r.name != job["reservation"]
            and r.begin <= self.time + job["limit"] and r.end > self.time
            for r in self.site.reservations
        )  # fmt: skip

    def fits(self, job, nodes):
        return sum(self.room(job, node) for node in nodes) >= job["instances"]

    def reason(self, job, blocked):
        if not self.open_partitions(job):
            return "partition_down"
        if self.at_limit(job):
            return "limit"
        own = next((r for r in self.site.reservations if r.name == job["reservation"]), None)
        if own and not own.begin <= self.time < own.end:
            return "advance_reservation"
        mine = [set(job["partitions"]) & set(node["partitions"]) for node in self.nodes]
        if not self.fits(job, [node for node, named in zip(self.empty, mine, strict=True) if named]):
            return "node_down"
        return self.missing(job, [n for n, named in zip(self.nodes, mine, strict=True) if named]) or self.keeper(
            job, own, blocked
        )

    def missing(self, job, mine):
        """Return the resource that is short on the nodes of its partitions."""
        free, need = [n for n in self.nodes if n["up"]], job["gpu_milli"] // 1000 * job["instances"]
        mine = [n for n in mine if n["up"]]
        if sum(n["gpus"] for n in free) < need:
            return "gpu"
        if sum(n["gpus"] for n in mine) < need:
            return "partition"
        for name in ("gpus", "cpu_milli", "memory_mib"):
            asked = job | {c: 0 for c in ("memory_mib",) if name != "memory_mib"}
            asked |= {"cpu_milli": 0} if name == "gpus" else {}
            asked |= {"distinct_nodes": False}
            if self.fits(asked, mine):
                continue
            if job["gpu_milli"] or name == "gpus":
                return "fragmentation" if name == "gpus" else name.partition("_")[0]
            if sum(n[name] for n in mine) >= job[name] * job["instances"]:
                return "fragmentation"
            enough = sum(n[name] for n in free) >= job[name] * job["instances"]
            return "partition" if enough else name.partition("_")[0]
        return None if self.fits(job, mine) else "fragmentation"

    def keeper(self, job, own, blocked):
        found = []
        for part in self.open_partitions(job):
            nodes = [n for n in self.nodes if part in n["partitions"] and (not own or n["node"] in own.nodes)]
            there = [n for n in nodes if not self.kept(job, n)]
            if self.fits(job, [n for n in there if not n["busy"]]):
                return blocked
            found.append(1 if self.fits(job, there) else 2 if self.fits(job, nodes) else 3)
        return {1: "completing", 2: "advance_reservation", 3: "partition"}[min(found)]


def read_again(result, site, closed, blocked):
    """Return the ledger by re-reading the schedule; when loops looked is taken from them."""
    played, world = result.played, result.world
    runs, looks = played.runs(world.first), played.looks
    waits = []  # of a job: begin, eligible, from when on the scheduler has not looked, end
    freed = sorted({*(runs.end + site.epilog), *(b for _, _, b in closed)})
    for j in range(len(world.submit)):
        begin = world.submitted[j]
        mine = sorted(np.flatnonzero(runs.job == j), key=lambda k: runs.begin[k])
        for count, k in enumerate(mine):
            looked = looks.looked[k]
            since = next((t for t in freed if t > looked), np.inf) if looked > -np.inf else looked
            assert not count or looks.eligible[k] == begin + 121  # two minutes after it was requeued
            waits.append((j, begin, world.eligible[j] if not count else looks.eligible[k], since, runs.begin[k]))
            begin = runs.end[k]
        if played.status[j] == 0:
            looked, eligible = looks.last_looked[j], looks.last_eligible[j] if mine else world.eligible[j]
            since = next((t for t in freed if t > looked), np.inf) if looked > -np.inf else looked
            waits.append((j, begin, eligible, since, played.stopped))
    marks = {*runs.begin, *runs.end, *freed, *(t for w in waits for t in w[1:]), played.stopped}
    marks |= {t for _, a, b in closed for t in (a, b)}
    limits = set(world.frame["limit"])
    marks |= {t for r in site.reservations for t in (r.begin, r.end, *(r.begin - limit for limit in limits))}
    seconds = np.zeros((len(world.submit), len(REASONS)))
    for begin, end in pairwise(sorted(t for t in marks if 0 <= t <= played.stopped)):
        moment = Moment(result, site, closed, begin)
        for j, first, eligible, since, last in waits:
            if first <= begin < last:
                job = world.frame.row(j, named=True)
                why = (
                    "not_eligible"
                    if begin < eligible
                    else moment.reason(job, "scheduler" if begin >= since else blocked)
                )
                seconds[j, REASONS.index(why)] += end - begin
    return seconds[world.measured]


@settings(max_examples=120, derandomize=True, deadline=None)
@given(rows=st.lists(JOB, min_size=1, max_size=18), of=SITES, until=st.sampled_from([None, None, 45.0]))
def test_each_second_under_slurm_has_the_reason_that_the_schedule_shows(rows, of, until):
    site = site_of(of)
    result = fleetlab.simulate(workload_of(rows, of), NODES, scheduler=site, events=events_of(of), until=until)
    closed = [of["events"][:3]] if of["events"] else []
    seconds = read_again(result, site, closed, "reservation" if of["on"] else "head_of_line")
    ledger = result.ledger.drop("job")
    np.testing.assert_array_equal(ledger.to_numpy(), seconds)
    np.testing.assert_array_equal(ledger.sum_horizontal().to_numpy(), result.jobs["wait"].to_numpy())
    np.testing.assert_allclose(result.holders.drop("job").sum_horizontal(), result.jobs["wait"])


@settings(max_examples=25, derandomize=True, deadline=None)
@given(rows=st.lists(JOB, min_size=1, max_size=18), of=SITES, until=st.sampled_from([None, None, 45.0]))
def test_stretches_of_one_reason_under_slurm_sum_to_the_ledger(rows, of, until):
    result = fleetlab.simulate(workload_of(rows, of), NODES, scheduler=site_of(of), events=events_of(of), until=until)
    ledger = {row["job"]: row for row in result.ledger.iter_rows(named=True)}
    for job, wait in result.jobs.select("job", "wait").iter_rows():
        segments = result.wait_segments(job).with_columns(seconds=pl.col("end") - pl.col("begin"))
        assert segments["seconds"].sum() == wait
        assert (segments["begin"][1:] >= segments["end"][:-1]).all()
        for reason in REASONS.names:
            assert segments.filter(pl.col("reason") == reason)["seconds"].sum() == ledger[job][reason]
        held = result.blockers(job)["seconds"].sum()
        nobody = result.holders.filter(pl.col("job") == job)["nobody"].item()
        np.testing.assert_allclose(held + nobody, wait, atol=1e-5)
