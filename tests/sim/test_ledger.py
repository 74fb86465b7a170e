"""The wait ledger: the reason of every second, against a plain re-reading of the schedule, and in planted worlds."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab import Cluster, Drain, Faults, Outage, Workload
from fleetlab.core.catalog import REASONS
from fleetlab.sim.ledger.ledger import holders
from fleetlab.traces import synthesize

RESOURCES = ("cpu_milli", "memory_mib", "rdma_milli", "disk_mib")
NAMES = ("cpu", "memory", "rdma", "disk")
JOB = st.fixed_dictionaries(
    {
        "submit": st.integers(0, 12).map(float),
        "runtime": st.integers(0, 9).map(float),
        "instances": st.sampled_from([1, 1, 1, 2, 3]),
        "cpu_milli": st.sampled_from([0, 500, 2000]),
        "memory_mib": st.sampled_from([0, 40]),
        "rdma_milli": st.sampled_from([0, 0, 500]),
        "disk_mib": st.sampled_from([0, 0, 6]),
        "gpu_milli": st.sampled_from([0, 250, 500, 700, 1000, 2000]),
        "gpu_memory_mib": st.sampled_from([0, 0, 6]),
        "gpu_types": st.sampled_from([[], ["A"], ["B"], ["A", "B"]]),
        "max_per_node": st.sampled_from([0, 0, 1]),
        "app": st.sampled_from(["x", "y"]),
        "priority": st.integers(0, 2),
        "user": st.sampled_from(["u", "v"]),
    }
)
CLUSTER = Cluster.of(
    pl.DataFrame(
        {
            "node": ["n0", "n1", "n2", "n3"],
            "gpu_type": ["A", "B", None, "A"],
            "gpus": [2, 3, 0, 1],
            "gpu_memory_mib": [10, 10, 0, 20],
            "cpu_milli": [4000, 4000, 2000, 9000],
            "memory_mib": [100, 100, 100, 90],
            "rdma_milli": [1000, 1000, 0, 1000],
            "disk_mib": [10, 20, 20, 10],
        }
    ),
    source="four nodes",
)
# With partitions that overlap, features, and jobs that ask for both, or for nodes of their own.
PLACES = {
    "partitions": st.sampled_from([[], ["x"], ["y"], ["x", "y"], ["z"]]),
    "constraint": st.sampled_from([None, None, None, "fast", "!fast"]),
    "distinct_nodes": st.sampled_from([False, False, True]),
    "exclusive": st.sampled_from([False, False, False, True]),
}
PARTITIONED = Cluster.of(
    CLUSTER.frame.with_columns(
        partitions=pl.Series([["x"], ["x", "y"], ["y"], ["z"]]), features=pl.Series([["fast"], [], [], ["fast"]])
    ),
    source="four nodes in partitions",
)
SCHEMA = {"partitions": pl.List(pl.String), "constraint": pl.String, "gpu_types": pl.List(pl.String)}
# Events by hand: node, from, to, whether its jobs are lost.
EVENTS = {
    "none": ([], []),
    "drain": ([Drain(3, 9, nodes=["n0"])], [(0, 3.0, 9.0)]),
    "outage": ([Outage(2, 8, nodes=["n1", "n3"])], [(1, 2.0, 8.0), (3, 2.0, 8.0)]),
}


class Moment:
    """A schedule at one instant, after all that happens in it, read from its runs."""

    def __init__(self, result, closed, quota, time):
        world, runs = result.world, result.played.runs(result.world.first)
        self.jobs, self.time, self.quota = result.world.frame, time, quota
        self.nodes = [dict(row) for row in result.cluster.frame.iter_rows(named=True)]
        self.up = [not any(n == m and a <= time < b for m, a, b in closed) for n in range(len(self.nodes))]
        self.gpus = [[[1000, node["gpu_memory_mib"]] for _ in range(node["gpus"])] for node in self.nodes]
        self.apps = [{} for _ in self.nodes]
        self.counts, self.own = [0] * len(self.nodes), [False] * len(self.nodes)
        self.users, self.running = {}, []
        for k, j in enumerate(runs.job):
            if not runs.begin[k] <= time < runs.end[k]:
                continue
            job = self.jobs.row(int(j), named=True)
            whole = job["gpu_milli"] >= 1000
            self.running.append(
                (int(j), float(runs.begin[k]), [int(runs.where[i]) for i in self.instances(world, runs, k)])
            )
            for i in self.instances(world, runs, k):
                n = int(runs.where[i])
                for name in RESOURCES:
                    self.nodes[n][name] -= job[name]
                for g, card in enumerate(self.gpus[n]):
                    if int(runs.got[i]) >> g & 1:
                        card[0] -= 1000 if whole else job["gpu_milli"]
                        card[1] -= job["gpu_memory_mib"]
                limited = job["max_per_node"] > 0 and not self.distinct(job)
                self.apps[n][job["app"]] = self.apps[n].get(job["app"], 0) + limited
                self.counts[n] += 1
                self.own[n] |= job["exclusive"]
                self.users[job["user"]] = self.users.get(job["user"], 0) + job["gpu_milli"]

    @staticmethod
    def instances(world, runs, k):
        return range(runs.first[k], runs.first[k] + world.instances[runs.job[k]])

    def held(self, j, reason, since, keys):
        """Return what of the missing resource is held on nodes that job `j` may use: by holder, and by user."""
        job, resource = self.jobs.row(j, named=True), REASONS[reason].resource
        resource = "cpu" if resource == "gpu" and not job["gpu_milli"] else resource
        column = {r.name: r.request for r in fleetlab.core.catalog.RESOURCES}.get(resource)
        by_kind, by_user = [0, 0, 0], {}
        for i, begin, nodes in self.running:
            other = self.jobs.row(i, named=True)
            each = other[column] if column else 0
            if resource == "gpu_memory":
                each *= max(1, other["gpu_milli"] // 1000) if other["gpu_milli"] else 0
            may = [n for n in nodes if self.may(job, n) and (not job["gpu_milli"] or self.allowed(job, n))]
            kind = 0 if begin < since else 1 if (keys[i], i) < (keys[j], j) else 2
            by_kind[kind] += each * len(may)
            by_user[other["user"]] = by_user.get(other["user"], 0) + each * len(may)
        return by_kind, by_user

    def may(self, job, n):
        """Return whether a job may use a node, by its partitions and constraint."""
        node, wanted = self.nodes[n], set(job["partitions"])
        if wanted and any(other["partitions"] for other in self.nodes) and not wanted & set(node["partitions"]):
            return False
        return not job["constraint"] or (job["constraint"] == "fast") == ("fast" in node["features"])

    @staticmethod
    def distinct(job):
        return job["distinct_nodes"] and job["instances"] > 1 and job["max_per_node"] != 1 and not job["exclusive"]

    def allowed(self, job, n):
        kind = self.nodes[n]["gpu_type"]
        return kind is not None and (not job["gpu_types"] or kind in job["gpu_types"])

    def slots(self, job, n, upto, *, empty=False):
        """Return how many instances node `n` has room for, by GPUs and the first `upto` of what else is required."""
        node, ask = self.nodes[n], job["gpu_milli"]
        source = CLUSTER.frame.row(n, named=True) if empty else node
        cards = [[1000, node["gpu_memory_mib"]] for _ in self.gpus[n]] if empty else self.gpus[n]
        most = 1 if job["exclusive"] else 10**6
        if not self.may(job, n) or (not empty and (self.own[n] or (job["exclusive"] and self.counts[n]))):
            return 0
        if ask:
            if job["gpu_types"] and node["gpu_type"] not in job["gpu_types"]:
                return 0
            each = min(ask, 1000)
            most = min(most, sum(card[0] // each for card in cards) // max(1, ask // 1000))
        for name in RESOURCES[: max(0, upto)]:
            if job[name]:
                most = min(most, source[name] // job[name])
        if upto > len(RESOURCES) and ask and job["gpu_memory_mib"]:
            fit = sum(min(card[0] // min(ask, 1000), card[1] // job["gpu_memory_mib"]) for card in cards)
            most = min(most, fit // max(1, ask // 1000))
        if upto > len(RESOURCES) + 1 and self.distinct(job):
            return min(most, 1)
        if upto > len(RESOURCES) + 1 and job["max_per_node"]:
            most = min(most, job["max_per_node"] - (0 if empty else self.apps[n].get(job["app"], 0)))
        return most

    def reason(self, j, blocked):
        job = self.jobs.row(j, named=True)
        need, count, last = job["gpu_milli"] * job["instances"], job["instances"], len(RESOURCES) + 2
        nodes = [n for n in range(len(self.nodes)) if self.up[n]]
        if self.quota is not None and need and self.users.get(job["user"], 0) + need > self.quota * 1000:
            return "quota"
        if sum(self.slots(job, n, last, empty=True) for n in nodes) < count:
            return "node_down"
        if sum(card[0] for n in nodes for card in self.gpus[n]) < need:
            return "gpu"
        allowed = [n for n in nodes if not job["gpu_types"] or self.nodes[n]["gpu_type"] in job["gpu_types"]]
        if sum(card[0] for n in allowed for card in self.gpus[n]) < need:
            return "gpu_type"
        if sum(card[0] for n in allowed if self.may(job, n) for card in self.gpus[n]) < need:
            return "partition"
        for upto, name in enumerate(("fragmentation", *NAMES, "gpu_memory", "max_per_node")):
            if sum(self.slots(job, n, upto) for n in nodes) < count:
                if need == 0 and name in NAMES:
                    column = RESOURCES[NAMES.index(name)]
                    if sum(self.nodes[n][column] for n in nodes if self.may(job, n)) >= job[column] * count:
                        return "fragmentation"
                    if sum(self.nodes[n][column] for n in nodes) >= job[column] * count:
                        return "partition"
                return "fragmentation" if name == "max_per_node" and self.distinct(job) else name
        return blocked


def read_again(result, closed, quota, blocked, at=Moment):
    """Return the ledger, who held what was missing, and which users, by re-reading the schedule."""
    played, world = result.played, result.world
    runs, keys = played.runs(world.first), np.zeros(len(world.submit)) if played.keys is None else played.keys
    marks = {0.0, played.stopped, *runs.begin, *runs.end, *(t for _, a, b in closed for t in (a, b))}
    marks |= {*world.submitted, *world.eligible, *world.submit}
    times = sorted(t for t in marks if t <= played.stopped)
    reasons, holders = np.zeros((len(world.submit), len(REASONS))), np.zeros((len(world.submit), 4))
    users = dict.fromkeys(world.users, 0.0)
    for begin, end in pairwise(times):
        moment = at(result, closed, quota, begin)
        for j in range(len(world.submit)):
            mine = runs.job == j
            running = bool((mine & (runs.begin <= begin) & (begin < runs.end)).any())
            if world.submitted[j] > begin or running or played.end[j] <= begin:
                continue
            unseen = world.submit[j] > begin  # the scheduler has not looked yet
            reason, seconds = moment.reason(j, "scheduler" if unseen else blocked), end - begin
            reason = "not_eligible" if world.eligible[j] > begin else reason
            reasons[j, REASONS.index(reason)] += seconds
            since = max([world.eligible[j], *runs.end[mine & (runs.end <= begin)]])
            by_kind, by_user = moment.held(j, reason, since, keys) if reason != "not_eligible" else ([0, 0, 0], {})
            total = sum(by_kind)
            holders[j] += seconds * np.array([*by_kind, 0]) / total if total else [0, 0, 0, seconds]
            for user, amount in by_user.items():
                users[user] += seconds * amount / total if total else 0.0
    return reasons[world.measured], holders[world.measured], users


@pytest.mark.parametrize("backfill", ["none", "greedy", "easy", "conservative"])
@settings(max_examples=40, derandomize=True)
@given(
    rows=st.lists(JOB, min_size=1, max_size=20),
    order=st.sampled_from(["fifo", "sjf", "fair", "priority"]),
    placement=st.sampled_from(["best_fit", "worst_fit"]),
    events=st.sampled_from(sorted(EVENTS)),
    quota=st.sampled_from([None, None, 2]),
    preemption=st.booleans(),
    until=st.sampled_from([None, None, 7.0]),
)
def test_each_second_has_the_reason_that_the_schedule_shows(
    backfill, rows, order, placement, events, quota, preemption, until
):
    zero = min(row["submit"] for row in rows)
    workload = Workload.of(pl.DataFrame([row | {"submit": row["submit"] - zero} for row in rows]), source="small")
    happen, closed = EVENTS[events]
    words = {"order": order, "backfill": backfill, "placement": placement, "events": happen, "until": until}
    if quota is not None:
        words["quota"] = quota
    if preemption and backfill in {"none", "greedy"}:
        words["preemption"] = True
    result = fleetlab.simulate(workload, CLUSTER, **words)
    blocked = {"none": "head_of_line", "greedy": "scheduler"}.get(backfill, "reservation")
    ledger = result.ledger.drop("job")
    assert tuple(ledger.columns) == REASONS.names
    reasons, holders, users = read_again(result, closed, quota, blocked)
    np.testing.assert_array_equal(ledger.to_numpy(), reasons)
    np.testing.assert_array_equal(ledger.sum_horizontal().to_numpy(), result.jobs["wait"].to_numpy())
    held = result.holders.drop("job")
    np.testing.assert_allclose(held.to_numpy(), holders, atol=1e-5)
    np.testing.assert_array_equal(held.sum_horizontal().to_numpy(), result.jobs["wait"].to_numpy())
    by_user = dict(result.held_by_user.iter_rows())
    assert by_user == pytest.approx(users, abs=1e-5)
    assert ledger["scheduler"].sum() == 0  # an event-driven scheduler looks at once


@pytest.mark.parametrize("backfill", ["none", "greedy", "easy", "conservative"])
@settings(max_examples=40, derandomize=True)
@given(
    rows=st.lists(st.tuples(JOB, st.fixed_dictionaries(PLACES)), min_size=1, max_size=20),
    order=st.sampled_from(["fifo", "sjf", "fair"]),
    events=st.sampled_from(sorted(EVENTS)),
    quota=st.sampled_from([None, None, 2]),
    until=st.sampled_from([None, None, 7.0]),
)
def test_so_it_is_with_partitions(backfill, rows, order, events, quota, until):
    zero = min(row["submit"] for row, _ in rows)
    frame = pl.DataFrame(
        [row | places | {"submit": row["submit"] - zero} for row, places in rows], schema_overrides=SCHEMA
    )
    happen, closed = EVENTS[events]
    words = {"order": order, "backfill": backfill, "events": happen, "until": until}
    words |= {"quota": quota} if quota is not None else {}
    result = fleetlab.simulate(Workload.of(frame, source="small"), PARTITIONED, **words)
    blocked = {"none": "head_of_line", "greedy": "scheduler"}.get(backfill, "reservation")
    reasons, holders, users = read_again(result, closed, quota, blocked)
    np.testing.assert_array_equal(result.ledger.drop("job").to_numpy(), reasons)
    np.testing.assert_array_equal(reasons.sum(axis=1), result.jobs["wait"].to_numpy())
    np.testing.assert_allclose(result.holders.drop("job").to_numpy(), holders, atol=1e-5)
    assert dict(result.held_by_user.iter_rows()) == pytest.approx(users, abs=1e-5)
    assert result.ledger["scheduler"].sum() == 0  # an event-driven scheduler looks at once


@pytest.mark.parametrize("backfill", ["none", "greedy", "easy", "conservative"])
@settings(max_examples=25, derandomize=True)
@given(
    rows=st.lists(st.tuples(JOB, st.sampled_from([0.0, 0.0, 1.0, 6.0])), min_size=1, max_size=20),
    order=st.sampled_from(["fifo", "sjf", "priority"]),
    cycle=st.sampled_from([0, 3, 5]),
    quota=st.sampled_from([None, None, 2]),
    until=st.sampled_from([None, None, 7.0]),
)
def test_so_it_is_with_eligible_times_and_cycles(backfill, rows, order, cycle, quota, until):
    zero = min(row["submit"] for row, _ in rows)
    times = [{"submit": row["submit"] - zero, "eligible": row["submit"] - zero + held} for row, held in rows]
    frame = pl.DataFrame([row | time for (row, _), time in zip(rows, times, strict=True)])
    words = {"order": order, "backfill": backfill, "cycle": cycle, "until": until}
    words |= {"quota": quota} if quota is not None else {}
    result = fleetlab.simulate(Workload.of(frame, source="small"), CLUSTER, **words)
    blocked = {"none": "head_of_line", "greedy": "scheduler"}.get(backfill, "reservation")
    reasons, holders, users = read_again(result, [], quota, blocked)
    np.testing.assert_array_equal(result.ledger.drop("job").to_numpy(), reasons)
    np.testing.assert_array_equal(reasons.sum(axis=1), result.jobs["wait"].to_numpy())
    np.testing.assert_allclose(result.holders.drop("job").to_numpy(), holders, atol=1e-5)
    assert dict(result.held_by_user.iter_rows()) == pytest.approx(users, abs=1e-5)
    starts = result.jobs.drop_nulls("start")
    assert (starts["start"] >= result.scenario.workload.frame["eligible"].gather(starts["job"])).all()
    if cycle:
        assert (starts["start"] % cycle == 0).all()


def test_a_draining_or_failed_node_is_a_reason_of_its_own():
    cluster = Cluster.uniform(nodes=2, gpus=8, gpu_type="A100")
    rows = {"submit": [0.0, 5.0], "runtime": [10.0, 10.0], "gpu_milli": [8000, 8000], "instances": [1, 2]}
    workload = Workload.of(pl.DataFrame(rows), source="two jobs")
    result = fleetlab.simulate(workload, cluster, events=[Drain(2, 40, nodes=[cluster.frame["node"][1]])])
    assert result.ledger["node_down"].to_list() == [0.0, 35.0]
    faults = fleetlab.simulate(workload, cluster, events=[Faults(mtbf=3, mttr=3)], seed=4)
    waits = faults.ledger.drop("job").sum_horizontal()
    np.testing.assert_array_equal(waits.to_numpy(), faults.jobs["wait"].to_numpy())


# -- planted causes ----------------------------------------------------------------------------------------------------


def main_reason(workload, cluster, **words):
    ledger = fleetlab.simulate(Workload.of(pl.DataFrame(workload), source="planted"), cluster, **words).ledger
    sums = ledger.drop("job").sum()
    assert sums.sum_horizontal()[0] > 0
    return max(sums.columns, key=lambda name: sums[name][0])


def stream(count=400, gap=10.0, **columns):
    arrivals = np.cumsum(np.random.default_rng(1).exponential(gap, count))
    plain = {"runtime": 60.0, "gpu_milli": 1000, "cpu_milli": 1000, "memory_mib": 100}
    values = {name: np.full(count, v) if np.isscalar(v) else v for name, v in (plain | columns).items()}
    held = values.pop("held", np.zeros(count))  # by a dependency
    return {"submit": arrivals - arrivals[0], "eligible": arrivals - arrivals[0] + held, **values}


def plenty(**scarce):
    node = {"gpus": 8, "gpu_memory_mib": 80_000, "cpu_milli": 96_000, "memory_mib": 10**6, "rdma_milli": 8000}
    node |= {"disk_mib": 10**6} | scarce
    names = [f"n{k}" for k in range(4)]
    return Cluster.of(pl.DataFrame([{"node": n, "gpu_type": "A100"} | node for n in names]), source="planted")


@pytest.mark.parametrize(
    ("reason", "columns", "scarce", "words"),
    [
        ("gpu", {"gap": 1.8}, {}, {}),
        ("cpu", {"cpu_milli": 8000}, {"cpu_milli": 16_000}, {}),
        ("memory", {"memory_mib": 500}, {"memory_mib": 1000}, {}),
        ("rdma", {"rdma_milli": 1000}, {"rdma_milli": 2000}, {}),
        ("disk", {"disk_mib": 500}, {"disk_mib": 1000}, {}),
        ("gpu_memory", {"gpu_milli": 100, "gpu_memory_mib": 30_000, "gap": 1.2}, {"gpu_memory_mib": 40_000}, {}),
        ("fragmentation", {"gpu_milli": 5000, "gap": 18.0}, {}, {}),
        ("max_per_node", {"max_per_node": 1, "app": "one", "gap": 16.0}, {}, {}),
        ("quota", {"user": "mallory"}, {}, {"quota": 7}),
        ("node_down", {"gap": 40.0}, {}, {"events": [Outage(500, 3000, nodes=["n0", "n1", "n2", "n3"])]}),
        *[("scheduler", {"gap": 40.0}, {}, {"cycle": 300, "backfill": rule}) for rule in ("none", "greedy", "easy")],
        ("not_eligible", {"gap": 40.0, "held": 500.0}, {}, {}),
        ("start_up", {"gap": 40.0}, {}, {"latency": 30}),
    ],
)  # fmt: skip
def test_a_planted_shortage_is_the_main_reason(reason, columns, scarce, words):
    assert main_reason(stream(**columns), plenty(**scarce), **words) == reason


def test_too_few_gpus_of_a_type_are_named_while_others_idle():
    cluster = Cluster.of(
        pl.DataFrame({"node": ["a", "b"], "gpu_type": ["V100", "T4"], "gpus": [4, 16], "cpu_milli": [96_000] * 2}),
        source="two types",
    )
    types = [["V100"] if k % 2 else ["T4"] for k in range(400)]
    assert main_reason(stream(gap=8.0, gpu_types=types, memory_mib=0), cluster) == "gpu_type"


@pytest.mark.parametrize(("backfill", "reason"), [("none", "head_of_line"), ("easy", "reservation")])
def test_a_gang_that_needs_every_gpu_makes_others_wait_for_the_rule(backfill, reason):
    gangs = [32 if k % 50 == 25 else 1 for k in range(400)]
    runtimes = [10.0 if g > 1 else 60.0 for g in gangs]
    assert main_reason(stream(gap=8.0, instances=gangs, runtime=runtimes), plenty(), backfill=backfill) == reason


@pytest.mark.parametrize(
    ("columns", "words", "kind"),
    [
        # One job of all GPUs, then a stream that it holds up.
        ({"runtime": [4000.0] + [1.0] * 399, "instances": [32] + [1] * 399}, {}, "ran_before"),
        # Long jobs of high priority keep coming while the first of low priority waits.
        ({"gap": 1.0, "priority": [5, 0] * 200, "runtime": [200.0, 1.0] * 200}, {"order": "priority"}, "ahead"),
        # A gang of all GPUs is passed by everyone, all the time.
        ({"gap": 4.0, "instances": [1] * 60 + [32] + [1] * 339}, {}, "overtook"),
        ({"user": "mallory"}, {"quota": 7}, "nobody"),
    ],
)  # fmt: skip
def test_who_holds_it_is_who_was_planted(columns, words, kind):
    workload = Workload.of(pl.DataFrame(stream(**columns)), source="planted")
    sums = fleetlab.simulate(workload, plenty(), **words).holders.drop("job").sum()
    assert max(sums.columns, key=lambda name: sums[name][0]) == kind


def test_a_sample_of_jobs_tells_the_same_shares():
    result = fleetlab.simulate(synthesize("pai2020", jobs=20_000, constrained=1.0), load=1.5, warm_up="none")
    part = holders(result.world, result.played, pairs=200_000, seed=3)
    assert 0 < len(part.job) < result.jobs.height / 2
    np.testing.assert_array_equal(part.seconds, result.holders.drop("job").to_numpy()[part.job])
