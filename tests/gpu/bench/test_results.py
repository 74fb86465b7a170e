import gzip
import json
import math

import numpy as np
import pytest
from realtest.archives import gpu_sharing

import fleetlab
from fleetlab.cli import main
from fleetlab.gpu.bench.analysis import analyze
from fleetlab.gpu.bench.histogram import Histogram
from fleetlab.gpu.bench.results.suite import suite_result
from fleetlab.stats import geometric_means, wilson


def line(name, rates, *, stage="s", block=0, status="ok", failures=()):
    seats = name.split("+")
    tenants = [
        {"seat": seat, "tenant": seat.partition("@")[0], "unit": "item", "rate": rate, "p50": [0.01, 0.009, 0.011]}
        | {"starved": 0.0, "cpu": 0.5, "late": 0.0}
        for seat, rate in zip(seats, rates, strict=False)
    ]
    about = {"cell": f"{stage}/{block}/{name}", "stage": stage, "mode": "mps", "block": block, "status": status}
    return about | {"tenants": tenants, "gpu": {}, "failures": list(failures)}


def folder(path, lines):
    about = {
        "plan": "p",
        "seed": 0,
        "window": 5,
        "settle": 1,
        "card": {"name": "H0"},
        "rehearsal": False,
        "skipped": [],
    }
    (path / "manifest.json").write_text(json.dumps(about))
    (path / "cells.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


def row(frame, **by):
    rows = [r for r in frame.iter_rows(named=True) if all(r[k] == v for k, v in by.items())]
    assert len(rows) == 1
    return rows[0]


def test_progress_is_relative_to_alone_without_mps_in_every_mode(tmp_path):
    """MPS makes `a` slower alone, too: what its user would have without sharing is the rate without MPS."""
    lines = []
    for block, wobble in ((0, 0.98), (1, 1.02)):
        without = [
            line("a", [100 * wobble], stage="ts", block=block),
            line("b", [40 * wobble], stage="ts", block=block),
        ]
        lines += [one | {"mode": "time-slicing"} for one in without]
        lines += [line("a", [80 * wobble], block=block), line("b", [40 * wobble], block=block)]
        lines += [line("a+b", [50 * wobble, 30 * wobble], block=block)]
    found = suite_result(folder(tmp_path, lines)).tables()
    assert row(found["progress"], tenant="a")["progress"] == pytest.approx(0.5, rel=1e-3)
    mix = row(found["mixes"], mix="a + b")
    assert (mix["stp"], mix["worst"], mix["blocks"]) == pytest.approx((1.25, 0.5, 2), rel=1e-3)
    assert mix["antt"] == pytest.approx((2 + 4 / 3) / 2, rel=1e-3)


def test_progress_is_that_of_the_analysis(tmp_path):
    lines = [line("a", [100], stage="ts") | {"mode": "time-slicing"}, line("a", [80]), line("a+a", [45, 55])]
    shown = suite_result(folder(tmp_path, lines)).tables()
    analyzed = analyze(tmp_path).tables()
    assert row(shown["progress"], tenant="a")["progress"] == row(analyzed["progress"], tenant="a")["progress"]
    assert row(shown["mixes"], mix="2 a")["stp"] == row(analyzed["mixes"], mix="2 a")["stp"]


def test_a_tenant_that_was_never_alone_without_mps_is_named(tmp_path):
    found = suite_result(folder(tmp_path, [line("a", [100]), line("a+a", [45, 55])]))
    assert "not measured alone without MPS, so relative to alone under MPS: a" in found.notes
    assert row(found.tables()["progress"], tenant="a")["progress"] == pytest.approx(0.5)


def test_a_share_is_relative_to_the_whole_card(tmp_path):
    lines = [line("a", [100]), line("a@50", [60]), line("a@50+a@50", [45, 55])]
    found = suite_result(folder(tmp_path, lines)).tables()
    assert row(found["progress"], tenant="a@50", beside="")["progress"] == pytest.approx(0.6)
    assert row(found["progress"], tenant="a@50", beside="a@50")["progress"] == pytest.approx(0.5)
    assert row(found["mixes"], mix="2 a@50")["stp"] == pytest.approx(1.0)


def test_a_failed_cell_is_listed_and_counts_for_nothing(tmp_path):
    fault = {"seat": "b", "kind": "died", "detail": "ended by signal 9", "copy": 0}
    lines = [line("a", [100]), line("a+b", [90], status="failed", failures=[fault])]
    found = suite_result(folder(tmp_path, lines))
    assert found.tables()["failures"]["kind"].to_list() == ["died"]
    assert found.tables()["mixes"].is_empty()
    assert found.summary()[-1].value == 1


def test_of_a_cell_measured_twice_the_last_counts(tmp_path):
    lines = [line("a", [1], status="failed"), line("a", [100])]
    assert suite_result(folder(tmp_path, lines)).tables()["alone"]["rate"].to_list() == pytest.approx([100])


def test_one_block_has_no_limits(tmp_path):
    found = suite_result(folder(tmp_path, [line("a", [100])])).tables()["alone"]
    assert math.isnan(found["low"][0])


def test_a_folder_without_a_suite_says_so(tmp_path):
    with pytest.raises(fleetlab.DeviceError, match="not the results of a suite"):
        suite_result(tmp_path)


def test_cells_may_be_packed(tmp_path):
    path = folder(tmp_path, [line("a", [100]), line("a+a", [40, 50])])
    plain = suite_result(path).tables()
    (path / "cells.jsonl.gz").write_bytes(gzip.compress((path / "cells.jsonl").read_bytes()))
    (path / "cells.jsonl").unlink()
    assert suite_result(path).tables()["mixes"].equals(plain["mixes"])


def test_packed_cells_that_are_cut_off_are_an_error(tmp_path):
    path = folder(tmp_path, [line("a", [100])])
    (path / "cells.jsonl.gz").write_bytes(gzip.compress((path / "cells.jsonl").read_bytes())[:20])
    (path / "cells.jsonl").unlink()
    with pytest.raises(fleetlab.DeviceError, match="not the results of a suite"):
        suite_result(path)


def test_pooled_limits_by_hand():
    # Two pairs, each 10 % apart in logs: noise 0.1 / sqrt(2) with 2 degrees of freedom, t = 4.303.
    groups = [[1.0, math.exp(0.1)], [2.0, 2 * math.exp(-0.1)]]
    first, second = geometric_means(groups)
    half = 4.303 * 0.1 / math.sqrt(2) / math.sqrt(2)
    assert first == pytest.approx((math.exp(0.05), math.exp(0.05 - half), math.exp(0.05 + half)), rel=1e-3)
    assert second.value == pytest.approx(2 * math.exp(-0.05))


# --- success, latency, costs, gates ----------------------------------------------------------------------------------


def steps(seconds, n):
    return Histogram.of([seconds] * n).to_json()


def with_(cell, *, gpu=None, **tenants):
    """The same cell, its tenants with more to tell: one value for all, or a list with one for each."""
    for name, values in tenants.items():
        each = values if isinstance(values, list) else [values] * len(cell["tenants"])
        for one, value in zip(cell["tenants"], each, strict=True):
            one[name] = value
    return cell | {"window": 5.0} | ({"gpu": gpu} if gpu else {})


def card(watts, *, reasons=0, util=90.0):
    return {"watts": watts, "sm_mhz": 1980.0, "reasons": reasons, "util": util}


def test_every_try_counts_for_success(tmp_path):
    fault = {"seat": "a", "kind": "died", "detail": "", "copy": 0}
    lines = [line("a+b", [1, 1]), line("a+b", [], block=1, status="failed", failures=[fault])]
    lines += [line("a+b", [1, 1], block=1), line("a", [2])]
    found = suite_result(folder(tmp_path, lines)).tables()["runs"]
    both = row(found, mix="a + b")
    assert (both["tried"], both["ok"], both["success"]) == pytest.approx((3, 2, 2 / 3))
    assert both["low"] < 2 / 3 < both["high"]
    assert row(found, mix="a")["success"] == 1


def test_a_failed_crowd_is_named_by_what_it_was_to_be(tmp_path):
    lines = [line("a", [1]), line("16xa", [], status="failed", failures=[{"kind": "mode", "detail": "no daemon"}])]
    found = suite_result(folder(tmp_path, lines)).tables()["runs"]
    assert row(found, mix="16 a")["ok"] == 0


def test_latency_adds_blocks_before_it_asks(tmp_path):
    """Two blocks of 200 steps, of 10 ms and of 20 ms: P95 is 20 ms, and only both together carry a P99."""
    lines = [with_(line("a", [1], block=b), times=steps(0.01 * (1 + b), 200)) for b in (0, 1)]
    made = row(suite_result(folder(tmp_path, lines)).tables()["latency"], tenant="a")
    assert (made["n"], made["blocks"], made["short"]) == (400, 2, "")
    assert made["p95_ms"] == pytest.approx(20, rel=2e-3)
    assert made["p99_low"] <= made["p99_ms"] <= made["p99_high"]


def test_too_few_steps_have_no_percentile_but_a_reason(tmp_path):
    made = row(suite_result(folder(tmp_path, [with_(line("a", [1]), times=steps(0.01, 100))])).tables()["latency"])
    assert made["p95_ms"] == pytest.approx(10, rel=2e-3)
    assert made["p99_ms"] is None
    assert made["short"] == "n too small for P99: 100 of 299"


def shared_card(tmp_path):
    """Alone a makes 100 items per second and b 40; together 60 and 20: progress 0.6 and 0.5, STP 1.1."""
    lines = [with_(line("a", [100]), gpu=card(300)), with_(line("b", [40]), gpu=card(200))]
    return folder(tmp_path, [*lines, with_(line("a+b", [60, 20]), gpu=card(440))])


def test_costs_by_hand(tmp_path):
    """3.6 an hour is a thousandth a second. Alone 1,000 items of a take 10 s of the GPU; shared, 10 / 1.1."""
    found = suite_result(shared_card(tmp_path), price=3.6).tables()["costs"]
    alone, shared = row(found, tenant="a", beside=""), row(found, tenant="a", beside="b")
    assert (alone["gpu_s_per_1000"], alone["cost_per_1000"]) == pytest.approx((10, 0.010))
    assert (shared["gpu_s_per_1000"], shared["cost_per_1000"]) == pytest.approx((10 / 1.1, 0.010 / 1.1))
    assert alone["joules_an_item"] == pytest.approx(300 / 100)
    assert shared["joules_an_item"] == pytest.approx(300 / 100 * 440 / (0.6 * 300 + 0.5 * 200))


def test_all_of_a_cards_time_and_energy_is_paid_for(tmp_path):
    found = suite_result(shared_card(tmp_path)).tables()["costs"]
    a, b = row(found, tenant="a", beside="b"), row(found, tenant="b", beside="a")
    assert 60 * a["gpu_s_per_1000"] / 1000 + 20 * b["gpu_s_per_1000"] / 1000 == pytest.approx(1)
    assert 60 * a["joules_an_item"] + 20 * b["joules_an_item"] == pytest.approx(440)


def test_the_energy_of_a_mix_is_relative_to_the_same_work_alone(tmp_path):
    """Alone, 0.6 seconds of a at 300 W and 0.5 of b at 200 W take 280 J; together 440."""
    made = row(suite_result(shared_card(tmp_path)).tables()["mixes"])
    assert made["energy_times"] == pytest.approx(440 / 280)


def test_without_a_price_there_is_no_cost(tmp_path):
    assert "cost_per_1000" not in suite_result(shared_card(tmp_path)).tables()["costs"].columns


@pytest.mark.parametrize("price", [-1, math.nan, math.inf])
def test_a_price_that_is_none_is_refused(price, tmp_path):
    with pytest.raises(fleetlab.DeviceError, match="not a price"):
        suite_result(shared_card(tmp_path), price=price)


def test_trillions_are_counted_as_such(tmp_path):
    lines = [with_(line("gemm", [5e14]), unit="flop", gpu=card(700))]
    made = row(suite_result(folder(tmp_path, lines)).tables()["costs"])
    assert made["unit"] == "TFLOP"
    assert made["joules_an_item"] == pytest.approx(700 / 500)


def served(*, lag=0.0001, unsent=0, rates=(200, 50), name="s+b"):
    """s has 200 requests per second on an arrival schedule; b goes as fast as it can."""
    cell = with_(line(name, list(rates)), times=steps(0.004, 1000))
    told = {"offered": 1000, "lag": steps(lag, 1000), "unsent": unsent}
    cell["tenants"][0] |= told
    return cell


def test_requests_by_a_timetable_are_told_apart(tmp_path):
    found = suite_result(folder(tmp_path, [line("b", [100]), served(), served(name="s")])).tables()
    made = row(found["serving"], tenant="s", beside="b")
    assert (made["offered"], made["answered"], made["unsent"], made["valid"]) == (200, 200, 0, True)
    assert made["p99_ms"] == pytest.approx(4, rel=2e-3)
    assert made["lag_p99_ms"] == pytest.approx(0.1, rel=2e-3)
    assert found["latency"]["tenant"].to_list() == ["b"]


def test_a_rate_that_was_asked_for_is_no_progress(tmp_path):
    """The one with the arrival schedule does what it is told; the other is slowed, and that can be said."""
    found = suite_result(folder(tmp_path, [line("b", [100]), served(), served(name="s")])).tables()
    assert found["alone"]["tenant"].to_list() == ["b"]
    assert found["progress"].select("tenant", "beside", "progress").rows() == [("b", "s", pytest.approx(0.5))]
    assert found["mixes"].is_empty()
    assert set(found["costs"].select("tenant", "beside").rows()) == {("b", ""), ("s", "")}


def test_a_late_sender_is_not_valid_and_what_was_not_sent_is_said(tmp_path):
    found = suite_result(folder(tmp_path, [served(lag=0.002, unsent=7, name="s")]))
    made = row(found.tables()["serving"])
    assert (made["valid"], made["unsent"]) == (False, 7)
    assert any("never sent" in note for note in found.notes)
    assert row(found.tables()["checks"], check="generator lag below 1 ms at P99")["passed"] is False


def generating(ended, cut_off):
    """A server of a language model: 10 tokens a request, of those that end in 1 s; others have 4 after 5 s."""
    cell = line("s", [2_000]) | {"window": 10}
    requests = [[9, 10, 10, 0.5, 1.0]] * ended + [[9, 10, 4, 0.5, 5.0]] * cut_off
    times = Histogram.of(np.repeat([1.0, 5.0], [ended, cut_off])).to_json()
    cell["tenants"][0] |= {"times": times, "offered": len(requests), "llm": LLM | {"requests": requests}}
    return cell


LLM = {"seconds": 10.0, "goals": {"ttft": 1.0, "tpot": 0.1}, "refused": 0, "itl": Histogram.of(np.ones(9)).to_json()}
LLM |= {"running": 1.0, "waiting_most": 1, "kv_most": 1, "kv_tokens": 10}


def test_requests_that_had_not_ended_have_no_p99(tmp_path):
    """30 of 1,000 had not: P95 is among those that had, P99 is not. 97 of 100 requests a second were answered."""
    made = row(suite_result(folder(tmp_path, [generating(970, 30)])).tables()["serving"])
    assert (made["p95_ms"], made["p99_ms"], made["p99_low"]) == (pytest.approx(1000, rel=2e-3), None, None)
    assert "P99 is above 5,0" in made["short"]
    assert "ms: 30 of 1,000 requests had not ended" in made["short"]
    assert (made["offered"], made["answered"]) == pytest.approx((100, 97))


def test_requests_that_had_all_ended_have_a_p99(tmp_path):
    made = row(suite_result(folder(tmp_path, [generating(1000, 0)])).tables()["serving"])
    assert made["p99_ms"] == pytest.approx(1000, rel=2e-3)
    assert "had not ended" not in made["short"]


@pytest.mark.parametrize(("rates", "holds"), [((100, 105), True), ((100, 107), False)])
def test_anchors_are_within_three_in_a_hundred_of_their_mean(rates, holds, tmp_path):
    lines = [line("a", [rate], block=b) for b, rate in enumerate(rates)]
    made = row(suite_result(folder(tmp_path, lines)).tables()["checks"], check="solo rate within 3 % in every block")
    assert (made["checked"], made["passed"]) == (1, holds)


def check(tmp_path, cell, name, machine=None):
    path = folder(tmp_path, [cell])
    about = json.loads((path / "manifest.json").read_text()) | ({"machine": machine} if machine else {})
    (path / "manifest.json").write_text(json.dumps(about))
    return row(suite_result(path).tables()["checks"], check=name)["passed"]


@pytest.mark.parametrize("proved", [True, False])
def test_a_client_must_be_proved_to_be_attached(proved, tmp_path):
    cell = with_(line("a+b", [1, 1]), attached=[True, proved])
    assert check(tmp_path, cell, "clients attached to MPS") is proved


@pytest.mark.parametrize(("reasons", "holds"), [(0, True), (1, True), (0x4, False), (0x40, False)])
def test_clocks_that_were_throttled_are_flagged(reasons, holds, tmp_path):
    cell = with_(line("a", [1]), gpu=card(700, reasons=reasons))
    assert check(tmp_path, cell, "no throttling by power or temperature") is holds


@pytest.mark.parametrize(("cores", "holds"), [(2, True), (1, False)])
def test_a_busy_host_is_flagged(cores, holds, tmp_path):
    """Two tenants take half a core each."""
    assert check(tmp_path, line("a+b", [1, 1]), "CPU utilization below 80 %", {"cores": cores}) is holds


def test_what_was_not_there_to_check_is_not_checked(tmp_path):
    found = suite_result(folder(tmp_path, [line("a", [1])])).tables()["checks"]
    assert found["passed"].to_list() == [None] * 6


def test_a_line_that_was_cut_off_is_left_out_and_said(tmp_path):
    path = folder(tmp_path, [line("a", [100])])
    with (path / "cells.jsonl").open("a") as file:
        file.write('{"cell": "s/1/a", "sta')
    found = suite_result(path)
    assert found.tables()["alone"]["blocks"].to_list() == [1]
    assert any("truncated" in note for note in found.notes)


def test_a_line_that_is_no_cell_is_an_error(tmp_path):
    path = folder(tmp_path, [{"cell": "s/0/a", "status": "ok"}])
    with pytest.raises(fleetlab.DeviceError, match="a cell without stage, mode, block"):
        suite_result(path)


def test_shares_that_were_counted_have_wilsons_limits():
    """The score test's own limits: at either, the share seen is just 1.96 deviations away."""
    value, low, high = wilson(7, 20)
    for p in (low, high):
        assert abs(value - p) / math.sqrt(p * (1 - p) / 20) == pytest.approx(1.96, rel=1e-3)
    assert wilson(0, 5).low == 0
    assert wilson(5, 5).high == 1


def test_the_command_takes_a_price_and_goals(tmp_path, capsys):
    with pytest.raises(SystemExit) as e:
        main(["bench", "show", str(shared_card(tmp_path)), "--price", "3.6", "--table", "costs"])
    assert e.value.code == 0
    said = capsys.readouterr().out
    assert "cost_per_1000" in said
    assert "\nmixes\n" not in said


@pytest.mark.parametrize("name", ["pairs-mps", "breaking", "solo", "sm-curve"])
def test_what_was_measured_on_an_h200_reads(name):
    folder = gpu_sharing() / "h200" / name
    found = suite_result(folder, price=3.5)
    assert found.tables()["latency"].height
    assert found.tables()["costs"]["joules_an_item"].is_not_null().all()
    assert found.tables()["checks"].height == 6


def test_a_folder_of_suites_is_pointed_to_one_of_them_or_to_the_analysis():
    folder = gpu_sharing() / "h200"
    with pytest.raises(fleetlab.DeviceError, match="12 suites, not one: breaking, classes, crowded, …") as caught:
        suite_result(folder)
    assert f"fleetlab bench analyze {folder}" in caught.value.hint
