"""The tenants llm-serve and notebook: what they record, and the tables made of it."""

import json
import math
import time

import numpy as np
import pytest
import torch

from fleetlab.gpu.bench.loops import DriveWindow
from fleetlab.gpu.bench.plans import BenchCell, Seat, SuitePlan, Tenant
from fleetlab.gpu.bench.results.cells import CellResult
from fleetlab.gpu.bench.results.latency import rows_llm, rows_notebook, tpot
from fleetlab.gpu.bench.results.suite import suite_result
from fleetlab.gpu.bench.run import SuiteRun
from fleetlab.gpu.bench.workloads import make
from fleetlab.gpu.bench.workloads.llm_serve import LONGEST, ROUND, SIGMA


def driven(name, *, settle=0.2, window=0.6, **settings):
    torch.set_num_threads(1)
    work = make(name, tiny=True, **settings)
    work.setup(torch.device("cpu"))
    start = time.monotonic()
    return work, work.drive(DriveWindow(start, start + settle, start + 0.2 + window, start + 0.35 + window, seed=5))


def test_a_server_answers_all_requests_of_a_rate_that_it_can_hold():
    work, found = driven("llm-serve", window=1.0, rate=15.0, most=3)
    llm = found["llm"]
    assert found["offered"] == len(llm["requests"]) > 0
    assert all(got == output and 0 < first <= last for _, output, got, first, last in llm["requests"])
    assert llm["kv_most"] <= llm["kv_tokens"] == work.slots * work.context
    assert llm["refused"] == 0


def test_an_overloaded_server_refuses_and_counts_what_never_began():
    """One slot, long answers and a short queue: most requests must be refused, and the rest wait."""
    _, found = driven("llm-serve", rate=400.0, slots=1, queue=5, most=200)
    llm = found["llm"]
    never = [row for row in llm["requests"] if row[3] is None]
    assert llm["refused"] > len(llm["requests"]) / 2
    assert len(never) >= llm["refused"]
    assert llm["waiting_most"] == 5


def test_latency_counts_from_the_schedule_so_a_stalled_server_is_seen():
    """A stall of 0.3 s in the engine shows in the first token of every request that was due meanwhile."""
    torch.set_num_threads(1)
    work = make("llm-serve", tiny=True, rate=50.0, most=1)
    work.setup(torch.device("cpu"))
    prefill, calls = work.model.prefill, []

    def stall(*what):
        if not calls:
            time.sleep(0.3)
        calls.append(1)
        return prefill(*what)

    work.model.prefill = stall
    start = time.monotonic()
    found = work.drive(DriveWindow(start, start, start + 0.6, start + 0.9, seed=1))
    first = [row[3] for row in found["llm"]["requests"] if row[3] is not None]
    assert sum(t > 0.1 for t in first) >= 5


def test_a_users_cells_come_in_rounds_with_published_spreads():
    work, found = driven("notebook", window=1.0, pace=100_000.0)
    cells = found["notebook"]["cells"]
    kinds = [kind for kind, _, _ in cells]
    first = next(k for k in range(len(ROUND)) if kinds[: len(ROUND)] == list(ROUND[k:] + ROUND[:k]))
    assert kinds == [ROUND[(first + k) % len(ROUND)] for k in range(len(kinds))]
    assert found["steps"] == len(cells)
    logs = np.log([work._draw(1, k) for k in range(2000)])
    assert np.median(logs) == pytest.approx(0, abs=0.01)
    assert np.quantile(logs, 0.75) == pytest.approx(math.log(2.5), abs=0.02)  # P75 over P50 of Adobe's trainings
    assert logs.max() <= math.log(LONGEST) + 1e-9 < 2 * SIGMA


def test_the_same_seed_gives_a_user_the_same_session():
    (_, one), (_, two) = driven("notebook", settle=0.0), driven("notebook", settle=0.0)
    sizes = [[(kind, size) for kind, size, _ in found["notebook"]["cells"]] for found in (one, two)]
    n = min(map(len, sizes))
    assert n > 3
    assert sizes[0][:n] == sizes[1][:n]


# --- tables ----------------------------------------------------------------------------------------------------------


def server(requests, **more):
    llm = {"goals": {"ttft": 0.2, "tpot": 0.02}, "seconds": 10.0, "refused": 0, "requests": requests}
    llm |= {"itl": {"gaps": [], "counts": []}, "running": 2.0, "waiting_most": 0, "kv_most": 5, "kv_tokens": 100}
    return {"seat": "s", "tenant": "s", "rate": 7.0, "llm": llm | more}


def cell(*tenants, stage="ts"):
    about = {"cell": "one", "stage": stage, "mode": "time-slicing", "block": 0, "status": "ok"}
    return CellResult.of(about | {"tenants": list(tenants)})


def test_goodput_needs_both_goals_and_a_request_without_a_token_has_none():
    fast, slow_first, slow_each = [9, 11, 11, 0.1, 0.2], [9, 11, 11, 0.3, 0.4], [9, 11, 11, 0.1, 0.5]
    one_token, none = [9, 1, 1, 0.1, 0.1], [9, 11, 0, None, None]
    found = next(iter(rows_llm([cell(server([fast] * 6 + [slow_first, slow_each, one_token, none]))])))
    assert found["goodput"] == pytest.approx(0.7)
    assert found["good_per_s"] == pytest.approx(0.7)
    assert found["goodput_low"] < 0.7 < found["goodput_high"]
    assert found["ttft_p50_ms"] == pytest.approx(100, rel=0.01)


def test_a_request_that_the_window_cut_off_is_neither_met_nor_missed():
    whole, cut, missed = [9, 11, 11, 0.1, 0.2], [9, 11, 5, 0.1, 0.14], [9, 11, 5, 0.9, 1.0]
    found = next(iter(rows_llm([cell(server([whole] * 6 + [cut] * 2 + [missed] * 2))])))
    assert found["unfinished"] == 4
    assert [found[k] for k in ("goodput_least", "goodput", "goodput_most")] == pytest.approx([0.6, 0.75, 0.8])


def test_time_per_output_token_leaves_the_first_out():
    """The definition of vLLM and MLPerf: (last - first) / (n - 1), so prefill is not in it."""
    rows = np.array([[1000, 5, 5, 2.0, 2.4], [10, 5, 5, 0.1, 0.5]])
    assert tpot(rows) == pytest.approx([0.1, 0.1])


def test_copies_of_a_server_are_one_row_and_their_goodput_adds_up_to_a_mean():
    good, bad = [9, 11, 11, 0.1, 0.2], [9, 11, 11, 0.9, 1.0]
    found = list(rows_llm([cell(server([good] * 10), server([bad] * 10)), cell(server([good] * 8))]))
    assert [(r["servers"], r["beside"], r["requests"], r["goodput"]) for r in found] == [
        (2, "s", 20, 0.5),
        (1, "", 8, 1),
    ]


def user(*cells):
    return {"seat": "notebook", "tenant": "notebook", "notebook": {"cells": list(cells)}}


def test_slowdown_of_a_training_is_per_step_against_one_user_alone():
    alone = cell(user(["train", 10, 1.0], ["train", 20, 2.1], ["load", 1, 0.5], ["load", 1, 0.52]))
    both = cell(user(["train", 30, 6.0], ["load", 1, 0.5]), user(["train", 10, 2.1], ["load", 1, 0.5]))
    found = {(r["cell"], r["users"]): r for r in rows_notebook([alone, both])}
    assert found["train", 2]["slowdown"] == pytest.approx(2.0, rel=0.03)
    assert found["train", 2]["low"] < 2.0 < found["train", 2]["high"]
    assert found["load", 2]["slowdown"] == pytest.approx(1.0, rel=0.05)
    assert found["train", 1]["slowdown"] == 1.0


def test_both_run_as_processes_of_a_suite_and_have_tables(tmp_path):
    tenants = {"llm-serve": Tenant("llm-serve"), "notebook": Tenant("notebook")}
    cells = [BenchCell("ts", "time-slicing", 0, (Seat("llm-serve"), Seat("notebook")))]
    plan = SuitePlan("mine", tenants, tuple(cells), settle=0.2, window=1.0)
    assert SuiteRun(plan, tmp_path / "out", limit=120, rehearse=True, progress=lambda _: None).run() == []
    assert json.loads((tmp_path / "out/cells.jsonl").read_text())["status"] == "ok"
    found = suite_result(tmp_path / "out").tables()
    assert found["llm"]["beside"].to_list() == ["notebook"]
    assert set(found["notebook"]["cell"]) <= set(ROUND)
    assert found["notebook"]["beside"].unique().to_list() == ["llm-serve"]
