"""The built-in trace: it has the published numbers, it is the same each time, and a simulator can run it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from benchmarks.refit_synthetic import refit, restore

from fleetlab.core import Trace, TraceError, Workload
from fleetlab.core.data import open_trace
from fleetlab.traces.synthesize import pairing, synthesize, wait_sampling
from fleetlab.traces.synthesize.groups import deal, group_sizes
from fleetlab.traces.synthesize.joint_law import FULL, LAWS, TYPES, Target, at_quantiles, fit, grid, multipliers, ranked
from fleetlab.traces.synthesize.pairing import Margins, PairConstraint, paired, tilt
from fleetlab.traces.synthesize.requests import CPU_RUN_TIME, RUN_TIME, shapes
from fleetlab.traces.synthesize.run_times import held_a_job, run_times
from fleetlab.traces.synthesize.usage import REQUESTED, usage_law
from fleetlab.traces.synthesize.wait_sampling import margins, waits
from fleetlab.traces.synthesize.waits import wait_law

from .targets.check import CONFLICTS, check
from .targets.target import WeightedSample, along, quantile

DOCS = Path(__file__).parents[2] / "docs" / "measurements" / "synthesize.md"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return synthesize("pai2020", jobs=100_000, seed=0)


@pytest.fixture(scope="module")
def verdicts(trace):
    return check(trace).frame


def assigned(trace):
    """The GPU type that each job was assigned."""
    return trace.names.collect()["gpu_type"]


# -- what was published ------------------------------------------------------------------------------------------


def test_no_published_number_is_missed_by_a_hundred_thousand_jobs(verdicts):
    assert verdicts.filter(pl.col("verdict") == "missed").select("target", "published", "achieved").rows() == []


@pytest.mark.validate
def test_no_published_number_is_missed_at_full_size():
    verdicts = check(synthesize("pai2020", jobs=FULL, seed=0)).frame
    assert verdicts.filter(pl.col("verdict") == "missed").select("target", "published", "achieved").rows() == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_published_number_is_missed_whatever_the_seed(seed):
    assert check(synthesize("pai2020", jobs=100_000, seed=seed)).passed


def test_most_published_numbers_can_be_held_against_a_hundred_thousand_jobs(verdicts):
    assert (verdicts["verdict"] == "met").sum() > 395


def test_numbers_that_contradict_others_are_those_that_the_docs_name(verdicts):
    in_conflict = set(verdicts.filter(pl.col("verdict") == "conflict")["target"])
    told = {line.split("`")[1] for line in DOCS.read_text("utf-8").splitlines() if line.startswith("- conflict: `")}
    assert in_conflict == set(CONFLICTS) == told


def missed(trace: Trace, **columns: pl.Expr) -> pl.Series:
    """The targets that a trace misses with some of its columns changed."""
    w = trace.workload
    changed = Workload(w.frame.with_columns(**columns), w.source, w.epoch, w.zone)
    frame = check(replace(trace, workload=changed)).frame
    return frame.filter(pl.col("verdict") == "missed")["target"]


def test_a_check_notices_when_every_job_runs_a_fifth_longer(trace):
    assert missed(trace, runtime=(pl.col("runtime") * 1.2).round()).str.starts_with("run time").sum() > 20


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("by", [1.3, 1 / 1.3])
def test_a_check_notices_when_jobs_of_one_type_run_longer_or_shorter(trace, type, by):
    mine = (assigned(trace) == type).fill_null(value=False)
    assert missed(trace, runtime=pl.when(mine).then((pl.col("runtime") * by).round()).otherwise("runtime")).len()


def test_a_check_notices_a_curve_that_is_off_on_v100_alone():
    trace = synthesize("pai2020", jobs=300_000, seed=0)
    longer = pl.when(assigned(trace) == "V100").then((pl.col("runtime") * 1.3).round())
    assert (
        missed(trace, runtime=longer.otherwise("runtime")).str.starts_with("run time of completed jobs, V100, ").any()
    )


def test_a_check_notices_waits_that_are_longer(trace):
    wait = ((pl.col("start") - pl.col("submit")) * 1.2).round()
    assert missed(trace, start=pl.col("submit") + wait).str.starts_with("wait").sum() > 10


def test_a_check_notices_waits_that_are_dealt_to_jobs_by_lot(trace):
    waited = trace.workload.frame.select("gpu_milli", type=assigned(trace), wait=pl.col("start") - pl.col("submit"))
    wait = waited.select(pl.col("wait").shuffle(seed=0).over("type", "gpu_milli"))["wait"]
    found = missed(trace, start=pl.col("submit") + wait)
    assert found.str.ends_with("of JCT").sum() > 10
    # Who waits matters to no other number but those of instances.
    assert found.filter(~found.str.contains("instances|of JCT")).is_empty()


def test_every_row_of_a_check_names_a_source_and_a_tolerance_that_is_written_down(verdicts):
    assert set(verdicts["source"]) <= set(LAWS["sources"].values())
    assert verdicts.filter(~pl.col("tolerance").str.contains(r"\d|exactly|a quarter|a tenth|at least")).is_empty()


def test_a_verdict_is_met_only_inside_its_interval_or_by_its_level(verdicts):
    inside = pl.col("achieved").is_between("at least", "at most") | pl.col("why").str.starts_with("met by its level")
    assert verdicts.filter((pl.col("verdict") == "met") & ~inside.fill_null(value=False)).is_empty()


def test_no_interval_reaches_below_nothing(verdicts):
    assert verdicts["at least"].min() >= 0


CURVE = {"10": 10.0, "50": 100.0, "90": 1000.0, "99": 10_000.0}


def spread_by(factor: float, count: int = 1_000_000) -> WeightedSample:
    """A sample that has the curve above to the last value, times a factor."""
    return WeightedSample.of(
        np.array([along(CURVE, (k + 0.5) / count) for k in range(0, count, 100)]).repeat(100) * factor
    )


@pytest.mark.parametrize(("factor", "met"), [(1.0, True), (1.07, True), (0.93, True), (1.12, False), (0.88, False)])
def test_a_quantile_may_be_off_by_eight_hundredths_or_a_point_and_no_more(factor, met):
    t = quantile("a quantile", spread_by(factor), CURVE, 50.0, source="figure")
    assert (t.low <= t.achieved <= t.high or t.level is not None) is met


def test_a_quantile_on_a_steep_curve_is_met_by_its_level():
    steep = CURVE | {"50": 100.0, "51": 200.0}
    t = quantile(
        "a quantile", WeightedSample.of(np.repeat([50.0, 150.0], [495_000, 505_000])), steep, 50.0, source="figure"
    )
    assert not t.low <= t.achieved <= t.high
    assert t.level == "met by its level: 49.50 %, within 1.15 points"


def test_a_quantile_of_a_handful_of_values_is_called_one_of_too_few():
    few = quantile("a quantile", WeightedSample.of(np.arange(1.0, 200.0)), CURVE, 50.0, source="figure").few
    assert few == "effective sample size 199: ±11 points"


def test_other_traces_are_not_bound_by_these_numbers(trace):
    other = Trace(trace.workload, type(trace.provenance)("read", "elsewhere"))
    with pytest.raises(TraceError, match="not a trace from `synthesize`"):
        check(other)


def test_a_handful_of_jobs_is_not_held_against_a_million():
    with pytest.raises(TraceError, match="too few jobs"):
        check(synthesize("pai2020", jobs=9_999))


# -- what every trace must be ------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2, 3, 7, 50, 1234])
def test_any_number_of_jobs_makes_a_trace(jobs):
    assert len(synthesize("pai2020", jobs=jobs, seed=jobs).workload) == jobs


def test_the_same_seed_makes_the_same_trace():
    one, two = (synthesize("pai2020", jobs=5000, seed=3) for _ in range(2))
    assert one.workload.frame.equals(two.workload.frame)
    assert one.usage.collect().equals(two.usage.collect())


def test_another_seed_makes_another_trace():
    one, two = (synthesize("pai2020", jobs=5000, seed=s) for s in (3, 4))
    assert not one.workload.frame["submit"].equals(two.workload.frame["submit"])


def test_jobs_come_as_often_as_in_the_real_trace_unless_days_are_given(trace):
    days = trace.workload.frame["submit"].max() / 86_400
    assert days == pytest.approx(100_000 / FULL * 62, rel=0.01)


def test_days_stretch_the_same_jobs():
    assert synthesize("pai2020", jobs=2000, days=10).workload.frame["submit"].max() / 86_400 == pytest.approx(10, 0.05)


def test_the_busiest_hour_of_the_day_is_a_working_hour_or_midnight_in_shanghai(trace):
    w = trace.workload
    clock = pl.from_epoch((w.frame["submit"] + w.epoch).cast(pl.Int64)).dt.replace_time_zone("UTC")
    assert int(clock.dt.convert_time_zone(w.zone).dt.hour().mode()[0]) in {0, 10, 11, 14, 15, 16, 17}


def test_what_the_log_does_not_know_is_null(trace):
    f = trace.workload.frame
    open_ended = f.filter(pl.col("status").is_in(["running", "waiting"]))
    assert open_ended["runtime"].null_count() == open_ended["end"].null_count() == open_ended.height
    assert f.filter(pl.col("start").is_null())["status"].unique().to_list() == ["waiting"]


def test_a_job_ends_its_run_time_after_it_starts(trace):
    f = trace.workload.frame.drop_nulls("end")
    assert f.filter(pl.col("end") != pl.col("start") + pl.col("runtime")).is_empty()


def test_every_gang_could_start_on_the_empty_nodes_of_its_type(trace):
    nodes = trace.cluster.frame.group_by("gpu_type", "gpus", "cpu_milli", "memory_mib").len()
    f = trace.workload.frame.with_columns(type=assigned(trace)).filter(pl.col("gpu_milli") > 0)
    shapes = f.select("instances", "gpu_milli", "cpu_milli", "memory_mib", "type").unique()
    rooms = shapes.join(nodes, left_on="type", right_on="gpu_type", suffix="_node").with_columns(
        room=pl.min_horizontal(
            pl.when(pl.col("gpu_milli") < 1000)
            .then(1000 // pl.col("gpu_milli") * pl.col("gpus"))
            .otherwise(pl.col("gpus") * 1000 // pl.col("gpu_milli")),
            pl.col("cpu_milli_node") // pl.col("cpu_milli"),
            pl.col("memory_mib_node") // pl.col("memory_mib"),
        )
        * pl.col("len")
    )
    room = rooms.group_by("instances", "gpu_milli", "cpu_milli", "memory_mib", "type").agg(pl.col("room").sum())
    assert room.height == shapes.height
    assert room.filter(pl.col("room") < pl.col("instances")).is_empty()


def test_nothing_uses_more_gpu_than_its_gpus_have(trace):
    used = trace.usage.collect().join(trace.workload.frame.select("job", asked="gpu_milli"), on="job")
    assert used.filter(pl.col("gpu_milli") > pl.max_horizontal("asked", 1000)).is_empty()


def test_a_saved_and_opened_trace_is_checked_alike(trace, verdicts, tmp_path):
    assert check(Trace.load(trace.save(tmp_path / "kept"))).frame.equals(verdicts)


def test_a_group_is_no_longer_or_shorter_for_being_large(trace):
    f = trace.workload.frame.filter(pl.col("instances") == 1).drop_nulls("runtime")
    groups = f.group_by("group").agg(pl.len(), pl.col("runtime").median()).filter(pl.col("len") > 1)
    assert abs(groups.select(pl.corr("len", "runtime", method="spearman")).item()) < 0.1


def test_the_groups_of_a_user_run_more_alike_than_those_of_others(trace):
    f = trace.workload.frame.filter(pl.col("instances") == 1, assigned(trace) == "MISC")
    groups = f.group_by("user", "group").agg(pl.col("runtime").log().mean()).drop_nulls()
    apart = groups.group_by("user").agg(pl.col("runtime").std()).drop_nulls()["runtime"]
    assert apart.mean() < 0.6 * groups["runtime"].std()


def test_a_users_jobs_on_one_type_tell_of_those_on_another(trace):
    f = trace.workload.frame.filter(pl.col("instances") == 1).with_columns(log=pl.col("runtime").log())
    types = assigned(trace).filter(trace.workload.frame["instances"] == 1)
    by_type = f.with_columns(type=types).drop_nulls("log").group_by("user", "type").agg(pl.len(), pl.col("log").mean())
    some = by_type.filter(pl.col("len") >= 10).pivot("type", index="user", values="log")
    assert some.select(pl.corr("MISC", "T4", method="spearman")).item() > 0.7


# -- types and shares of a GPU -------------------------------------------------------------------------------------


@pytest.mark.parametrize("constrained", [0.0, 0.02, 0.33, 1.0])
def test_a_share_of_the_gpu_jobs_may_use_one_type_only_those_on_v100s_first(constrained):
    made = synthesize("pai2020", jobs=30_000, constrained=constrained)
    gpu = made.workload.frame.with_columns(type=assigned(made)).filter(pl.col("gpu_milli") > 0)
    only = gpu.filter(pl.col("gpu_types").list.len() > 0)
    assert only.height / gpu.height == pytest.approx(constrained, abs=0.002)
    assert (only["gpu_types"].list.first() == only["type"]).all()
    high = gpu.filter(pl.col("type").is_in(["V100", "V100M32"]))
    pinned = (high["gpu_types"].list.len() > 0).mean()
    assert pinned == 1.0 if constrained >= 0.33 else (only["type"].str.starts_with("V100")).all()
    # A group's jobs ask alike.
    assert gpu.group_by("group").agg(pl.col("gpu_types").list.len().n_unique())["gpu_types"].max() == 1


def test_constraints_change_nothing_else():
    few, all_of_them = (synthesize("pai2020", jobs=5000, constrained=c).workload.frame for c in (0.1, 1.0))
    assert few.drop("gpu_types").equals(all_of_them.drop("gpu_types"))


@pytest.mark.parametrize("constrained", [-0.1, 1.1, float("nan"), "a", True])
def test_a_share_that_is_none_is_refused(constrained):
    with pytest.raises(TraceError, match="`constrained` is not a share of the GPU jobs"):
        synthesize("pai2020", jobs=100, constrained=constrained)


def test_some_groups_ask_for_two_gpu_shares_and_run_for_other_times_with_each(trace):
    f = trace.workload.frame.filter(pl.col("gpu_milli") > 0, pl.col("runtime") > 0)
    shares = f.group_by("group").agg(pl.col("gpu_milli").n_unique().alias("shares"), pl.col("user").n_unique())
    assert shares["shares"].max() == 2
    assert shares["user"].max() == 1
    two = f.filter(pl.col("group").is_in(shares.filter(pl.col("shares") == 2)["group"].implode()))
    assert 0.02 < two.height / f.height < 0.12
    halves = two.group_by("group", "gpu_milli").agg(pl.col("runtime").log().mean())
    apart = halves.group_by("group").agg((pl.col("runtime").max() - pl.col("runtime").min()).alias("apart"))
    assert apart["apart"].median() > 0.3  # by a third and more


DIGEST = """
import hashlib, numpy as np
from fleetlab.traces.synthesize import synthesize
square = np.random.default_rng(0).random((99, 99))
made = synthesize("pai2020", jobs=5000, seed=1)
hashed = [f.hash_rows().to_numpy() for f in (made.workload.frame, made.usage.collect())]
print(*(hashlib.sha256(x.tobytes()).hexdigest() for x in (square @ square, *hashed)))
"""


def test_a_trace_is_the_same_to_the_bit_on_processors_that_multiply_differently():
    runs = [
        subprocess.run(
            [sys.executable, "-c", DIGEST], env=os.environ | extra, check=True, capture_output=True, text=True
        ).stdout.split()
        for extra in ({"OPENBLAS_NUM_THREADS": "2"}, {"OPENBLAS_CORETYPE": "Haswell"})
    ]
    if runs[0][0] == runs[1][0]:
        pytest.skip("this numpy multiplies matrices alike whatever the core type")
    assert runs[0][1:] == runs[1][1:]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": "pai2021"}, "did you mean pai2020"),
        ({"jobs": 0}, "`jobs` is not a whole number"),
        ({"jobs": 10**12}, "`jobs` is not a whole number"),
        ({"jobs": 1.5}, "`jobs` is not a whole number"),
        ({"jobs": True}, "`jobs` is not a whole number"),
        ({"days": 0}, "`days` is not a number above 0"),
        ({"days": -1.0}, "`days` is not a number above 0"),
        ({"days": float("nan")}, "`days` is not a number above 0"),
        ({"days": float("inf")}, "`days` is not a number above 0"),
        ({"days": 1e30}, "`days` is not a number above 0"),
        ({"days": "two"}, "`days` is not a number above 0"),
        ({"seed": -1}, "`seed` is not a whole number"),
        ({"seed": 0.5}, "`seed` is not a whole number"),
    ],
)
def test_what_cannot_be_made_is_refused_with_a_hint(asked, said):
    with pytest.raises(TraceError, match=said) as refused:
        synthesize(**{"name": "pai2020", "jobs": 10} | asked)
    assert refused.value.hint


def test_progress_is_told_from_nothing_to_all():
    heard = []
    synthesize("pai2020", jobs=100, progress=lambda what, rows, share: heard.append(share))
    assert heard == sorted(heard)
    assert heard[-1] == 1.0


# -- how it is made ----------------------------------------------------------------------------------------------


def test_a_fitted_law_keeps_what_is_given_and_grants_the_wish():
    given = np.array([0.25, 0.75])
    law = fit("a test", np.ones((2, 3)), [Target(np.array([0.0, 1.0, 2.0]), 1.4, 1e-6)], marginal=given)
    assert law.sum(axis=1) == pytest.approx(given)
    assert (law @ [0.0, 1.0, 2.0]).sum() == pytest.approx(1.4)


def test_wishes_that_contradict_one_another_are_each_missed_a_little():
    one = np.array([[1.0, 0.0]])
    law = fit("another test", np.ones((1, 2)), [Target(one, 0.4, 0.01), Target(one, 0.6, 0.01)])
    assert law[0, 0] == pytest.approx(0.5)


@pytest.fixture
def fitted_anew():
    kept = {name: list(found) for name, found in multipliers().items()}
    yield kept, refit()
    restore()


@pytest.mark.validate
def test_the_multipliers_on_disk_are_those_of_the_published_laws(fitted_anew):
    kept, again = fitted_anew
    assert {n: pytest.approx(again[n], rel=1e-3, abs=1e-3) for n in again} == {n: kept[n] for n in again}


@pytest.fixture
def fitted_from_disk(monkeypatch):
    """The multipliers on disk, those that fits move them to, and how far the pairing is off in units of its slack."""
    off = []

    def judged(name, margins, constraints):
        tilted = tilt(name, margins, constraints)
        rows, weights = np.stack([w.row for w in constraints]), np.stack([w.weight for w in constraints])
        value, slack = np.array([w.value for w in constraints]), np.array([w.slack for w in constraints])
        reached = pairing._moments(paired(margins, tilted), rows, weights)
        off.extend(np.abs(reached - value + np.array(multipliers()[name]) * slack**2) / slack)
        return tilted

    monkeypatch.setattr(wait_sampling, "tilt", judged)
    restore()
    kept = {name: list(found) for name, found in multipliers().items()}
    for law in (shapes, run_times, wait_law, wait_sampling.tilts):
        law()
    for what in REQUESTED:
        usage_law(what)
    yield kept, multipliers(), np.array(off)
    restore()


def test_no_law_moves_away_from_its_multipliers_on_disk(fitted_from_disk):
    # From there a fit of a changed law goes on to other ones; to fit all from nothing is for `make validate`.
    kept, again, off = fitted_from_disk
    assert {n: pytest.approx(again[n], rel=1e-3, abs=1e-3) for n in again} == {n: kept[n] for n in again}
    assert off.size
    assert (off < pairing.CLOSE).all()


def test_requests_count_on_the_run_times_that_jobs_have():
    gpu, cpu = (dict(zip((*TYPES, None), held, strict=True)) for held in held_a_job())
    law = shapes()
    for asked, held, written in ((law.gpu_milli, gpu, RUN_TIME), (law.cpu_milli, cpu, CPU_RUN_TIME)):
        amount = np.bincount(law.type, weights=law.share * law.instances * asked)
        seconds = {name: held[name] / amount[TYPES.index(name)] for name in written}
        assert seconds == pytest.approx(written, rel=0.01)


def test_a_pairing_keeps_both_margins_and_grants_the_wish():
    rng = np.random.default_rng(0)
    first, second = (rng.dirichlet(np.ones(n), 3) for n in (5, 7))
    given = Margins(np.array([0.5, 0.3, 0.2]), first, second)
    row, weight = rng.random((5, 7)), np.array([1.0, 2.0, 0.5])
    by_lot = float(np.einsum("p,pi,pj,ij,p->", given.share, first, second, row, weight))
    law = paired(given, tilt("a test of pairs", given, [PairConstraint(row, weight, by_lot + 0.02, 1e-6)]))
    assert law.sum(axis=2) == pytest.approx(given.share[:, None] * first, abs=1e-7)
    assert law.sum(axis=1) == pytest.approx(given.share[:, None] * second, abs=1e-7)
    assert float(np.einsum("pij,ij,p->", law, row, weight)) == pytest.approx(by_lot + 0.02, abs=1e-6)


def test_what_no_pairing_can_say_is_said_as_far_as_it_can_be():
    even = Margins(np.ones(1), np.full((1, 2), 0.5), np.full((1, 2), 0.5))
    both = np.array([[0.0, 0.0], [0.0, 1.0]])
    law = paired(even, tilt("a test of what cannot be", even, [PairConstraint(both, np.ones(1), 0.7, 0.05)]))
    assert 0.45 < law[0, 1, 1] < 0.5


def test_each_pool_has_its_own_waits_whatever_its_run_times():
    law, shape = shapes(), np.repeat(int(np.argmax(shapes().share)), 4000)
    times = np.random.default_rng(1).lognormal(6, 2, (2, 4000)).round() + 3
    one, two = (np.sort(waits(law, shape, t, np.random.default_rng(2))) for t in (times[0], times[1] * 10))
    assert np.array_equal(one, two)
    assert one.max() > 50 * np.median(one)


def test_jobs_of_unknown_run_time_wait_as_their_pool_does():
    law, shape = shapes(), np.repeat(int(np.argmax(shapes().share)), 3000)
    known = np.where(np.arange(3000) < 1500, 600.0, np.nan)
    wait = waits(law, shape, known, np.random.default_rng(0))
    apart = [np.sort(wait[:1500]), np.sort(wait[1500:])]
    assert np.median(apart[0]) == pytest.approx(np.median(apart[1]), abs=1)


def test_margins_of_pools_add_up():
    for part in (margins().first, margins().second):
        assert part.sum(axis=1) == pytest.approx(1.0)
    assert margins().share.sum() == pytest.approx(1.0)


def test_dealt_groups_fill_each_place_as_asked():
    room = np.array([500.0, 300.0, 200.0])
    sizes = np.sort(np.random.default_rng(0).integers(1, 20, 100))[::-1]
    sizes = np.append(sizes, np.ones(1000 - sizes.sum() % 1000, dtype=np.int64))
    place = deal(sizes, room, np.random.default_rng(1))
    filled = np.bincount(place, weights=sizes) / sizes.sum()
    assert filled == pytest.approx(room / room.sum(), abs=2 / len(room) / 100)


@pytest.mark.parametrize("jobs", [1, 10, 999, 100_000, FULL])
def test_groups_hold_every_job(jobs):
    assert group_sizes(jobs).sum() == jobs


def test_ranked_values_have_their_law_whatever_the_scores():
    law, edges = np.array([[0.5, 0.5]]), grid(1.0, 100.0, 2)
    pool = np.zeros(1000, dtype=np.int64)
    value, _ = at_quantiles(law, edges, pool, ranked(pool, np.random.default_rng(0).random(1000) ** 5))
    assert np.median(value) == pytest.approx(10.0, rel=0.01)


# -- a trace by its words ----------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fleetlab"


def test_builtin_words_name_jobs_and_seed(cache):
    trace = open_trace("builtin:500:7")
    assert (len(trace.workload), trace.provenance.seed) == (500, 7)


def test_a_built_in_trace_is_kept_and_found_again(cache):
    first = open_trace("builtin:500")
    stamp = next(cache.glob("*/trace.json")).stat().st_mtime_ns
    again = open_trace("builtin:500")
    assert next(cache.glob("*/trace.json")).stat().st_mtime_ns == stamp
    assert again.workload.frame.equals(first.workload.frame)


@pytest.mark.parametrize("damaged", ["trace.json", "tables-*/workload.parquet", "tables-*/usage.parquet"])
def test_a_damaged_cache_is_made_again(cache, damaged):
    made = open_trace("builtin:300").workload.frame
    next(cache.glob(f"*/{damaged}")).write_bytes(b"{}")
    assert open_trace("builtin:300").workload.frame.equals(made)
    assert json.loads(next(cache.glob("*/trace.json")).read_text("utf-8"))["layout"]


def test_a_cache_that_cannot_be_written_only_means_that_nothing_is_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(open_trace("builtin:200").workload) == 200


def test_a_folder_is_opened_as_a_saved_trace(tmp_path):
    kept = synthesize("pai2020", jobs=100).save(tmp_path / "mine")
    assert len(open_trace(str(kept)).workload) == 100


@pytest.mark.parametrize(
    "words", ["builtin:", "builtin:many", "builtin:1:2:3", "builtin:-5", "builtin:²", "builtin:" + "9" * 5000]
)
def test_built_in_words_that_make_no_sense_are_refused(words, cache):
    with pytest.raises(TraceError, match="not a synthetic trace"):
        open_trace(words)


# -- beside real samples -----------------------------------------------------------------------------------------


def distance(one, two) -> float:
    """Kolmogorov and Smirnov's: the widest gap between two distribution functions."""
    one, two = np.sort(one), np.sort(two)
    at = np.unique(np.concatenate([one, two]))
    parts = (np.searchsorted(x, at, side="right") / len(x) for x in (one, two))
    return float(np.abs(next(parts) - next(parts)).max())


@pytest.fixture
def sample(data) -> pl.DataFrame:
    return pl.read_csv(data / "alibaba-pai-v2020" / "task_sample_60105" / "alibaba_trace_sub.csv")


def completed(trace) -> pl.DataFrame:
    return trace.workload.frame.filter((pl.col("status") == "completed") & (pl.col("gpu_milli") > 0))


@pytest.mark.data
def test_run_times_are_like_those_of_a_real_sample(trace, sample):
    longest = sample["service_sec"].max()
    assert distance(sample["service_sec"], completed(trace)["runtime"].clip(0, longest)) < 0.08


@pytest.mark.data
def test_gangs_hold_gpus_like_those_of_a_real_sample(trace, sample):
    done = completed(trace)
    held = done["instances"].to_numpy() * np.maximum(1, done["gpu_milli"].to_numpy() // 1000)
    assert distance(sample["gpu_count"], held) < 0.06


@pytest.mark.data
def test_bursts_are_like_those_of_a_real_sample(trace, sample):
    done = completed(trace)["submit"].to_numpy()
    # The same part of all jobs, and the same part of the days: thinning makes bursts look smaller.
    part = sample.height / (FULL * 0.702 * 0.8225)
    thin = done[np.random.default_rng(0).random(len(done)) < part]
    real = sample["arrival_s"].to_numpy()
    for seconds in (1, 10, 60):
        seen, ours = (np.bincount(((t - t.min()) // seconds).astype(int)) for t in (real, thin))
        assert ours.var() / ours.mean() == pytest.approx(seen.var() / seen.mean(), rel=0.25)
