"""The tiles of a timeline against sums by hand: in every tile of every level, GPU time is that of the schedule."""

import zlib

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab import Cluster, Drain, Outage, Workload
from fleetlab.sim.codes import REASONS
from fleetlab.sim.tiles import timeline
from fleetlab.sim.tiles.figure import Clock, figure, panels
from fleetlab.sim.tiles.rows import rows_of
from fleetlab.sim.tiles.timeline import BINS, ROWS, ClusterTimeline, TilePlace

jobs = st.lists(
    st.tuples(
        st.integers(0, 400), st.integers(1, 300), st.sampled_from([250, 500, 1000, 2000, 4000]), st.integers(1, 3),
        st.sampled_from(["ann", "bob", "eve"]),
    ),
    min_size=1, max_size=25,
)  # fmt: skip
NODES = pl.DataFrame(
    {
        "node": ["a", "b", "c", "d", "e"],
        "pool": ["x", "y", "x", "y", "y"],
        "gpus": [4, 2, 4, 0, 2],
        "gpu_type": ["A100", "T4", "A100", None, "T4"],
        "features": [["rack2"], [], ["ib", "rack1"], [], []],
        "cpu_milli": 64_000,
        "memory_mib": 100_000,
    }
)


def cluster():
    return Cluster.of(NODES, source="made up")


def simulated(rows, **words):
    submit, runtime, milli, instances, user = zip(*rows, strict=True)
    frame = pl.DataFrame(
        {"submit": submit, "runtime": runtime, "gpu_milli": milli, "instances": instances, "user": user},
        schema_overrides={"submit": pl.Float64, "runtime": pl.Float64},
    )
    frame = frame.with_columns(pl.col("submit") - pl.col("submit").min()).sort("submit")
    return fleetlab.simulate(Workload.of(frame, source="made up"), cluster(), min_coverage=0.0, **words)


def timeline_of(result):
    return ClusterTimeline.of(result.world, result.played, result.cluster, result.scenario)


def every_tile(timeline, level, zoom):
    blocks = -(-(len(timeline.rows.levels[level].edges) - 1) // ROWS)
    return [TilePlace(level, zoom, column, block) for column in range(2**zoom) for block in range(blocks)]


def inside(begin, end, width, bins):
    """The seconds of an interval in each bin."""
    edges = np.arange(bins + 1) * width
    return np.maximum(0.0, np.minimum(end, edges[1:]) - np.maximum(begin, edges[:-1]))


def held_by_hand(result, order):
    """Yield GPU, begin, end, milli and user of all that ran: `order` lists nodes as they are drawn."""
    gpus = dict(NODES.select("node", "gpus").iter_rows())
    first = {node: sum(gpus[other] for other in order[:k]) for k, node in enumerate(order)}
    of_job = {row["job"]: row for row in result.jobs.to_dicts()}
    for job, _, node, bits in result.placements.iter_rows():
        row = of_job[job]
        for bit in range(64):
            if bits >> bit & 1:
                yield first[node] + bit, row["start"], row["end"], min(row["gpu_milli"], 1000), row["user"]


@settings(max_examples=25, deadline=None)
@given(jobs, st.integers(0, 3))
def test_every_cell_holds_the_gpu_time_of_the_schedule(rows, zoom):
    result = simulated(rows)
    assume(result.played.stopped)
    timeline = timeline_of(result)
    zoom = min(zoom, timeline.deepest)
    expected = np.zeros((12, BINS * 2**zoom))
    width = timeline.span / expected.shape[1]
    for gpu, begin, end, milli, _ in held_by_hand(result, ["c", "a", "b", "e"]):
        expected[gpu] += inside(begin, end, width, expected.shape[1]) * milli / 1000
    for level, of in enumerate(timeline.rows.levels):
        coarse = np.add.reduceat(expected, of.edges[:-1], axis=0)
        tiles = [timeline.held(place)[0] for place in every_tile(timeline, level, zoom)]
        np.testing.assert_allclose(np.concatenate(tiles, axis=1), coarse, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(jobs)
def test_a_cell_is_of_the_user_with_most_of_it(rows):
    result = simulated(rows)
    assume(result.jobs.height)
    timeline = timeline_of(result)
    level = len(timeline.rows.levels) - 1
    edges, labels = timeline.rows.levels[level].edges, timeline.coloring["user"].labels
    held, most = timeline.held(TilePlace(level, 0, 0, 0), "user")
    width = timeline.span / BINS
    by_user = {user: np.zeros(held.shape) for user in labels}
    for gpu, begin, end, milli, user in held_by_hand(result, ["c", "a", "b", "e"]):
        row = int(np.searchsorted(edges, gpu, side="right")) - 1
        by_user[user][row] += inside(begin, end, width, BINS) * milli
    amounts = np.stack([by_user[user] for user in labels])
    chosen = np.take_along_axis(amounts, np.maximum(most.astype(int) - 1, 0)[None], axis=0)[0]
    np.testing.assert_allclose(chosen, amounts.max(axis=0), rtol=1e-9, atol=1e-6)
    assert ((most == 0) == (held == 0)).all()


def test_rows_are_in_order_of_pool_rack_and_node():
    result = simulated([(0, 10, 1000, 1, "ann")])
    rows = rows_of(cluster(), result.world.nodes)
    assert [NODES["node"][n] for n in rows.nodes.tolist()] == ["c", "a", "b", "e"]
    assert {level.name: level.edges.tolist() for level in rows.levels[1:]} == {
        "node": [0, 4, 8, 10, 12], "rack": [0, 4, 8, 12], "pool": [0, 8, 12],
    }  # fmt: skip


def test_groups_of_nodes_join_neighbors_and_no_two_pools():
    many = Cluster.of(
        pl.DataFrame({"node": [f"n{k}" for k in range(130)], "pool": ["p"] * 65 + ["q"] * 65, "gpus": 2}).with_columns(
            gpu_type=pl.lit("T4"), cpu_milli=pl.lit(1000), memory_mib=pl.lit(1000)
        ),
        source="made up",
    )
    frame = pl.DataFrame({"submit": [0.0], "runtime": [10.0], "gpu_milli": [1000]})
    world = fleetlab.simulate(Workload.of(frame, source="one"), many).world
    levels = rows_of(many, world.nodes).levels
    assert [level.name for level in levels] == ["GPU", "node", "2 nodes", "4 nodes", "pool"]
    for level in levels:
        assert 130 in level.edges  # the border of the pools, in GPUs
        assert (np.diff(level.edges) > 0).all()


def test_nodes_that_are_down_or_drained_are_so_for_the_time_of_the_events():
    events = [Outage(begin=100.0, end=150.0, nodes=("a",)), Drain(begin=20.0, end=80.0, nodes=("b",))]
    result = simulated([(0, 400, 1000, 1, "ann"), (0, 30, 250, 1, "bob")], events=events)
    timeline = timeline_of(result)
    for level in range(len(timeline.rows.levels)):
        places = every_tile(timeline, level, min(1, timeline.deepest))
        assert sum(timeline.in_state(p, timeline.down).sum() for p in places) == pytest.approx(4 * 50.0)
    gpu = np.concatenate([timeline.in_state(p, timeline.drained) for p in every_tile(timeline, 0, 0)])
    assert gpu.sum(axis=1).nonzero()[0].tolist() == [8, 9]
    assert {"down", "drained"} <= set(timeline.planes)


@settings(max_examples=15, deadline=None)
@given(jobs, st.sampled_from(["greedy", "none", "easy"]), st.integers(1, 40))
def test_waiting_jobs_by_reason_add_up_to_the_ledger(rows, backfill, bins):
    result = simulated(rows, backfill=backfill)
    width = result.played.stopped / bins
    assume(width)
    by_reason = timeline.waiting_by_reason(result.world, result.played, bins)
    whole = result.ledger.select(REASONS).to_numpy().sum(axis=0)
    np.testing.assert_allclose(by_reason.sum(axis=0) * width, whole, atol=1e-6)
    np.testing.assert_allclose(
        by_reason.sum(axis=1), timeline.waiting(result.world, result.played, 0.0, width, bins), atol=1e-6
    )
    assert timeline.arrivals(result.world, 0.0, width, bins).sum() == result.jobs.height


@settings(max_examples=15, deadline=None)
@given(jobs, st.integers(1, 40))
def test_as_many_jobs_wait_in_a_bin_as_a_reader_counts(rows, bins):
    result = simulated(rows)
    width = result.played.stopped / bins
    assume(width)
    expected = np.zeros(bins)
    for job in result.jobs.iter_rows(named=True):
        expected += inside(job["submit"], job["start"], width, bins) / width
    np.testing.assert_allclose(timeline.waiting(result.world, result.played, 0.0, width, bins), expected, atol=1e-6)


def test_a_point_tells_the_jobs_that_run_there():
    result = simulated([(0, 100, 500, 1, "ann"), (0, 50, 500, 1, "bob")])
    timeline = timeline_of(result)
    counts = [timeline.at(gpu, gpu + 1, 20.0) for gpu in range(12)]
    shared = next(found for count, found in counts if count == 2)
    assert sorted((job["user"], job["begin"], job["end"]) for job in shared) == [("ann", 0, 100), ("bob", 0, 50)]
    assert timeline.at(0, 12, 70.0)[0] == 1


def test_what_is_free_but_of_no_use_is_measured_as_in_the_table_over_time():
    rng = np.random.default_rng(3)
    rows = [
        (int(s), 200, int(m), 1, "ann")
        for s, m in zip(rng.integers(0, 300, 30), rng.choice([250, 1000, 4000], 30), strict=True)
    ]
    result = simulated(rows)
    timeline = timeline_of(result)
    samples = len(timeline.fragmented)
    times = (np.arange(samples) + 0.5) * timeline.span / samples
    table = result.timeline(every=float(times[0])).filter(pl.col("gpu_type") == "all")
    wasted = dict(table.select("time", "fragmented").iter_rows())
    gpus = np.diff(timeline.rows.first)
    held = timeline.held(TilePlace(1, 0, 0, 0))[0]
    assert held.sum() > 0
    for k in range(0, samples, 16):
        bins = [
            timeline.at(first, first + n, times[k], 64) for first, n in zip(timeline.rows.first[:-1], gpus, strict=True)
        ]
        free = [n - sum(min(1.0, job["gpus"]) for job in found) for n, (_, found) in zip(gpus, bins, strict=True)]
        assert float((timeline.fragmented[k] * free).sum()) == pytest.approx(wasted[times[k]], abs=1e-6)


def test_a_figure_holds_compressed_planes_within_its_bytes():
    rng = np.random.default_rng(1)
    rows = [
        (int(s), int(r), 1000, 1, u)
        for s, r, u in zip(rng.integers(0, 5000, 200), rng.integers(1, 900, 200), ["ann", "bob"] * 100, strict=True)
    ]
    result = simulated(rows)
    timeline = timeline_of(result)
    over_time = panels(result.world, result.played)
    small, large = (figure(timeline, "fifo", Clock(), over_time, most) for most in (4000, 300_000))
    assert sum(map(len, small.tiles.values())) <= 4000 < sum(map(len, large.tiles.values())) <= 300_000
    level, zoom = large.about["held"][0]
    place = TilePlace(level, zoom, 0, 0)
    for plane in ("taken", "user", "size"):
        packed = zlib.decompress(large.tiles[f"{level}/{zoom}/0/0/{plane}"])
        assert packed == timeline.plane(place, plane).tobytes()


def test_a_tile_that_is_not_there_is_refused():
    timeline = timeline_of(simulated([(0, 100, 500, 1, "ann")]))
    for place in (TilePlace(9, 0, 0, 0), TilePlace(0, 0, 1, 0), TilePlace(0, 0, 0, 1), TilePlace(0, 99, 0, 0)):
        with pytest.raises(fleetlab.WorkloadError, match="no such tile"):
            timeline.check(place)
