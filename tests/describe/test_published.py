"""What papers and data say, beside what a description finds."""

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab.core import as_json
from fleetlab.describe.trace_view import TraceView


def on_the_curves(found):
    rows = found.tables()["published"]
    assert set(rows["figure"]) >= {
        "runtime", "runtime by GPU type", "wait by GPUs per instance", "wait by GPU type, instances",
        "GPUs per instance", "CPUs per job", "memory per instance", "gang size", "jobs per user", "runs of a group",
        "wait over JCT", "wait over JCT, instances",
    }  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def built_in():
    return fleetlab.describe(fleetlab.synthesize("pai2020", jobs=100_000))


def test_the_built_in_trace_lies_on_the_published_curves(built_in):
    # How many jobs per user or a group has depends on how long one looks: that is for the whole trace.
    rows = on_the_curves(built_in).filter(~pl.col("figure").is_in(["jobs per user", "runs of a group"]))
    assert rows.filter(pl.col("within") < pl.col("points")).is_empty()
    # Where there are many values, that says something: within a point and a half of level at every point.
    sure = rows.filter(pl.col("sampling error, points") < 2)
    assert sure.height >= 15
    assert sure["KS distance, points"].abs().max() <= 1.5


def test_published_points_are_drawn_on_the_same_axes(built_in):
    series = set(built_in.figures()["runtime"].frame["series"])
    assert series == {"jobs", "jobs, published", "instances", "instances, published"}
    for figure in ("wait over JCT", "wait over JCT, instances"):
        frame = built_in.figures()[figure].frame
        assert set(frame["series"]) == {
            f"{of}{told}" for of in ("short", "long", "all") for told in ("", ", published")
        }
        assert frame.filter(pl.col("series").str.ends_with(", published")).height == 18


def test_half_of_the_jobs_are_short_and_half_of_the_instances_by_their_own_median():
    view = TraceView(fleetlab.synthesize("pai2020", jobs=20_000), 0)
    known = np.isfinite(view.runtime)
    for weights in (None, view.instances):
        weight = np.ones(len(known)) if weights is None else weights
        short, long = view.lengths(weights).values()
        assert weight[short].sum() / weight[known].sum() == pytest.approx(0.5, abs=0.02)
        assert (short ^ long)[known].all()
        assert not (short | long)[~known].any()


def test_classes_of_requests_and_types_have_their_published_shares(built_in):
    for table in ("GPU jobs by request", "GPU jobs by type"):
        rows = built_in.tables()[table].select("%", "published, %").drop_nulls()
        assert rows.height == 5
        assert (rows["%"] - rows["published, %"]).abs().max() <= 0.3 + 0.15  # a bar's length, and 3 standard errors


def test_a_curve_that_is_off_is_told_to_be_off():
    trace = fleetlab.synthesize("pai2020", jobs=20_000)
    work = trace.workload.frame.with_columns(pl.col("runtime") * 1.5)
    longer = fleetlab.Trace(fleetlab.Workload(work, trace.workload.source), trace.provenance)
    rows = fleetlab.describe(longer, only=["runtimes"]).tables()["published"]
    assert rows.filter((pl.col("figure") == "runtime") & (pl.col("within") == pl.col("points"))).is_empty()


@pytest.mark.validate
def test_the_whole_built_in_trace_lies_on_every_published_curve_and_stays_small():
    found = fleetlab.describe(fleetlab.synthesize("pai2020", jobs=1_260_920))
    rows = on_the_curves(found)
    assert rows.filter(pl.col("within") < pl.col("points")).is_empty()
    hours = found.tables()["by hour of day"]
    # Read off box plots: 8 %, and a standard error of a quartile of 62 days.
    assert ((hours["P50"] / hours["P50 published"]).log().abs() < np.log(1.08) + 0.06).all()
    assert len(as_json(found)) < 5e6


# -- real data ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def described():
    """Descriptions of real traces, each made once."""
    made = {}

    def make(folder, name, *only):
        if folder not in made:
            made[folder] = fleetlab.describe(fleetlab.read(folder, name), only=only)
        return made[folder]

    return make


@pytest.fixture
def dlrm(data, described):
    return described(data / "alibaba-dlrm-v2025", "dlrm2025")


def by(table, key, value):
    return dict(table.select(key, value).iter_rows())


@pytest.mark.data
def test_delays_by_role_and_rule_are_those_of_the_published_instances(dlrm):
    roles = dlrm.tables()["delay by role"]
    assert by(roles, "role", "count") == {"all": 16_591, "complete": 12_390, "CN": 12_328, "HN": 4263}
    means = by(roles, "role", "mean")
    assert (means["all"], means["complete"]) == pytest.approx((187.9, 119.9), abs=0.05)
    assert (means["HN"], means["CN"]) == pytest.approx((505, 78), abs=0.5)
    assert by(roles, "role", "P50") == dict.fromkeys(means, 0)
    assert by(roles, "role", "at 0, %")["all"] == pytest.approx(65.5, abs=0.05)
    assert by(roles, "role", "10 longest, % of sum")["all"] == pytest.approx(47, abs=0.5)
    rules = by(dlrm.tables()["delay by rule"], "rule", "mean")
    assert rules == pytest.approx({"none": 95, "2": 318, "4": 309, "8": 205, "10": 42, "16": 30}, abs=0.5)


@pytest.mark.data
def test_tails_of_delays_and_run_times_are_those_of_the_published_instances(dlrm):
    delay = dlrm.tables()["delay by role"].row(0, named=True)
    assert [delay[f"P{p}"] for p in (50, 75, 90, 95)] == [0, 11, 59, 136.5]
    assert delay["P99"] == pytest.approx(1652, rel=0.01)
    run = dlrm.tables()["runtime by role"].row(0, named=True)
    assert [run[f"P{p}"] for p in (25, 50, 75, 90, 95)] == pytest.approx(
        [1150, 8300, 67_800, 287_000, 611_000], rel=5e-3
    )
    assert run["mean"] / 3600 == pytest.approx(28 + 28 / 60, abs=1 / 60)


@pytest.mark.data
def test_only_disk_is_requested_below_its_limit(dlrm):
    ratios = by(dlrm.tables()["request over limit"], "of", "request over limit")
    assert ratios == pytest.approx({"CPU": 1, "GPU": 1, "memory": 1, "RDMA": 1, "disk": 0.847}, abs=5e-4)


@pytest.mark.data
def test_disk_is_requested_below_its_limit_by_both_roles(dlrm):
    rows = dlrm.tables()["request over limit by role"].filter(pl.col("of") == "disk")
    assert by(rows, "role", "request over limit") == pytest.approx({"CN": 0.8429, "HN": 0.8573}, abs=5e-5)
    assert by(rows, "role", "instances") == {"CN": 16_485, "HN": 7386}


@pytest.mark.data
def test_requests_by_role_are_those_of_the_published_table(dlrm):
    rows = dlrm.tables()["requests by role"]
    assert rows.height == 10
    assert (rows["mean"] - rows["mean, published"]).abs().max() < 6e-4
    quantiles = {(r["of"], r["role"]): (r["P10"], r["P50"], r["P90"]) for r in rows.to_dicts()}
    assert quantiles["CPU", "CN"] == (48, 64, 96)
    assert quantiles["CPU", "HN"] == (8, 8, 12)
    assert quantiles["memory", "CN"] == (240, 320, 480)
    assert quantiles["memory", "HN"] == (32, 40, 80)
    assert (quantiles["RDMA", "CN"][1], quantiles["RDMA", "HN"][1]) == (0.01, 0.25)


@pytest.mark.data
def test_delays_and_run_times_lie_on_the_published_quantiles(dlrm):
    rows = dlrm.tables()["published"]
    assert rows["figure"].to_list() == ["delay by role", "runtime by role"]
    assert (rows["within"] == rows["points"]).all()


@pytest.mark.data
def test_delays_by_request_are_told_within_roles(dlrm):
    # Worked out from the file by plain sums.
    rows = {(r["role"], r["RDMA request"]): r for r in dlrm.tables()["delay by RDMA request and role"].to_dicts()}
    assert (rows["HN", "0.25"]["count"], rows["CN", "0.01"]["count"]) == (3815, 8858)
    assert (rows["HN", "0.25"]["mean"], rows["CN", "0.01"]["mean"]) == pytest.approx((561.55, 99.39), abs=0.01)
    assert (rows["HN", "0.5"]["mean"], rows["CN", "1"]["mean"]) == pytest.approx((23.51, 8.17), abs=0.01)
    assert rows["HN", "0.75"]["P50"] == 41.5
    effect = {r["request"]: r for r in dlrm.tables()["requests and delay"].to_dicts()}
    assert effect["RDMA"]["within low"] < 0 < effect["RDMA"]["within high"]


@pytest.mark.data
def test_every_service_is_ranked_by_delay_and_by_run_time(dlrm):
    delays, runs = (dlrm.tables()[f"{what} by application"] for what in ("delay", "runtime"))
    assert delays.height == 156
    assert delays["mean"].is_sorted(descending=True)
    assert delays["count"].sum() == 16_591
    assert runs["count"].sum() == 12_390
    every = dlrm.tables()["runtime by application, Kaplan–Meier"]
    assert (every["count"].sum(), every["still running"].sum(), every.height) == (16_591, 4201, 156)


@pytest.mark.data
def test_rules_and_sizes_of_services_are_those_of_the_published_instances(dlrm):
    rules = by(dlrm.tables()["placement rules"], "rule", "instances")
    assert rules == {"none": 12_248, "2": 6778, "4": 3588, "8": 724, "10": 469, "16": 64}
    sizes = dlrm.tables()["instances per application"].row(0, named=True)
    # The published median, 42, lies between the 78th and the 79th of 156.
    assert (sizes["count"], sizes["P50"], sizes["largest"]) == (156, 42, 2551)
    assert sizes["P90"] == pytest.approx(433, rel=0.01)


@pytest.mark.data
def test_run_times_by_rule_are_told_within_roles(dlrm):
    ended = by(dlrm.tables()["runtime by rule"], "rule", "count")
    assert sum(ended.values()) == 12_390
    rows = {(r["role"], r["rule"]): r for r in dlrm.tables()["runtime by rule and role, Kaplan–Meier"].to_dicts()}
    assert len(rows) == 10
    assert sum(r["still running"] for r in rows.values()) == 4201
    assert rows["HN", "2"]["P50"] < rows["CN", "2"]["P50"]


@pytest.mark.data
def test_instances_alive_at_the_end_are_counted_in(dlrm):
    ended, still = dlrm.tables()["runtime, Kaplan–Meier"].to_dicts()
    assert (still["count"], still["ended"], still["still running"]) == (16_591, 12_390, 4201)
    assert still["P50"] > 3 * ended["P50"]
    named = dlrm.missing["what"].to_list()
    assert "submit times of 7,280 jobs" in named
    assert "ages of 4,677 running jobs" in named  # 8,878 alive at the end, of which 4,201 were seen to start
    assert "hour of the day and weekday" in named


@pytest.mark.data
def test_pods_ask_for_gpus_as_the_fgd_paper_s_table_says(data, described):
    found = described(data / "alibaba-openb-v2023", "openb2023")
    table = found.tables()["by GPUs per instance"]
    assert by(table, "GPUs per instance", "jobs, %") == pytest.approx(
        {"0": 13.3, "(0,1)": 37.8, "1": 48.0, "2": 0.2, "4": 0.2, "8": 0.5}, abs=0.05
    )
    assert by(table, "GPUs per instance", "GPUs, %") == pytest.approx(
        {"0": 0, "(0,1)": 28.5, "1": 64.2, "2": 0.5, "4": 1.0, "8": 5.8}, abs=0.06
    )
    assert table["GPUs"].sum() == pytest.approx(6086.8, abs=0.05)
    shares = by(found.tables()["fractional GPUs"].head(6), "GPUs per instance", "%")
    assert shares == pytest.approx({0.81: 35, 0.47: 24.4, 0.32: 10.7, 0.65: 8.2, 0.23: 4.5, 0.46: 4.2}, abs=0.05)
    assert by(found.tables()["priorities"], "priority", "%") == pytest.approx(
        {3: 0.1, 2: 57, 1: 1.2, 0: 41.7}, abs=0.05
    )
    wait = found.tables()["wait"].row(0, named=True)
    assert [wait[f"P{p}"] for p in (50, 75, 90, 95)] == [2, 35, 106, 241]
    assert found.tables()["CPUs per instance"]["mean"].item() == pytest.approx(10.48, abs=0.005)


@pytest.mark.data
def test_requests_and_containers_of_the_image_service_are_as_published(data, described):
    found = described(data / "alibaba-genai-v2026", "genai2026")
    rows = {r["metric"]: r for r in found.tables()["container metrics"].to_dicts()}
    thousands = {
        "pipeline_inference": (15.1, 26.3, 70.6), "model_predict": (35.0, 74.0, 98.0), "base_model_update_latency":
        (22.7, 42.0, 51.8), "lora_update_latency": (4.4, 6.1, 8.2), "controlnet_latency": (3.9, 8.2, 16.7),
        "pipeline_update_latency": (8.5, 26.8, 54.3),
    }  # fmt: skip
    for name, told in thousands.items():
        assert [rows[name][p] / 1000 for p in ("P50", "P90", "P99")] == pytest.approx(told, abs=0.2), name
    duty = rows["pod_gpu_duty_cycle"]
    assert (duty["mean"], duty["at 0, %"], duty["P90"], duty["P99"]) == pytest.approx((7.0, 66.8, 24.7, 78.6), abs=0.06)
    latency = found.tables()["latency by kind"].row(0, named=True)
    assert [latency[p] for p in ("P50", "P75", "P90", "P95", "P99")] == [23, 33, 53, 69, 106]
    bursts = found.tables()["burstiness"].row(0, named=True)
    assert bursts["value"] == pytest.approx(144, abs=0.5)
    assert found.summary()[0].value == 26_823


@pytest.mark.data
def test_a_real_trace_and_the_built_in_one_are_held_against_each_other(data, built_in):
    pods = fleetlab.read(data / "alibaba-openb-v2023", "openb2023")
    made = fleetlab.synthesize("pai2020", jobs=5000)
    rows = fleetlab.describe(made, against=pods, only=["runtimes", "requests"]).tables()["distances"]
    row = rows.filter((pl.col("figure") == "runtime") & (pl.col("series") == "jobs")).row(0, named=True)
    assert row["other median"] == pytest.approx(610, rel=0.01)  # scheduled to deleted, those that ended
    assert row["KS low"] <= row["KS distance, points"] <= row["KS high"]
