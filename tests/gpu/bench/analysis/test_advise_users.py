"""Advice for servers of language models and for notebooks: by hand, and from the cells of the H200."""

import gzip
import json
import math
from collections import defaultdict

import polars as pl
import pytest
from realtest.archives import gpu_sharing

from fleetlab.core import DeviceError
from fleetlab.gpu.bench.advise import advise
from fleetlab.gpu.bench.analysis import analyze
from fleetlab.gpu.bench.results.suite import suite_result
from fleetlab.gpu.devices.console import BenchError

HALF_AND_MOST = {"time-slicing": (100, 100), "mps": (180, 20)}  # requests within the goals, and others
MEASURED = gpu_sharing()


def server(made, good, missed, *, cut=0, seconds=10.0, lag=1e-5):
    """A server with so many requests within 200 ms and 25 ms per token, so many that are late, and so many cut off."""
    met, late, open_ = [9, 11, 11, 0.1, 0.2], [9, 11, 11, 0.5, 0.6], [9, 11, 5, 0.1, 0.14]
    # In turns, so that requests do not wait in groups.
    rows = sorted([(k / good, met) for k in range(good)] + [(k / missed, late) for k in range(missed)])
    requests = [row for _, row in rows] + [open_] * cut
    llm = {"goals": {"ttft": 0.2, "tpot": 0.025}, "kv_tokens": 100, "kv_most": 50, "seconds": seconds, "refused": 0}
    llm |= {"requests": requests, "itl": {"gaps": [], "counts": []}, "running": 1.0, "waiting_most": 0}
    return made.tenant("chat", 100.0, offered=len(requests), lag=lag, unit="token") | {"llm": llm}


def chats(made, path, by, **more):
    cells = []
    for mode, (good, missed) in by.items():
        cells.append(made.cell([made.tenant("train", 100.0)], mode=mode))
        cells.append(made.cell([server(made, good, missed, **more), made.tenant("train", 60.0)], mode=mode))
    return made.suite(path, cells, tenants={"chat": {"work": "llm-serve"}, "train": {"work": "resnet-train"}})


def test_goodput_is_requests_per_second_within_the_goals(tmp_path, made):
    """Of 200 requests in 10 s, 180 and 100 meet the goals: 18 and 10 per second."""
    found = advise(chats(made, tmp_path, HALF_AND_MOST), mix="chat, train", goal="goodput")
    assert (found.mode, found.verdict) == ("mps", "better")
    assert found.tables()["choice"]["value"].to_list() == pytest.approx([18.0, 10.0])


def test_a_mode_without_requests_within_the_goals_is_told_by_both_values(tmp_path, made):
    """None of 200 is no base of a percentage."""
    folder = chats(made, tmp_path, {"time-slicing": (0, 200), "mps": (100, 100)})
    said = advise(folder, mix="chat, train", goal="goodput").findings[0]
    assert "against 0.0" in said
    assert " % (" not in said


def chat_times(made, ended, cut, never=0):
    """A server with requests that ended after 1 s, and others that the window cut off after 7.5 s."""
    rows = [[9, 11, 11, 0.1, 1.0]] * ended + [[9, 11, 5, 0.1, 7.5]] * cut + [[9, 11, 0, None, None]] * never
    step = [1.0] * ended + [7.5] * (cut + never)
    return (
        server(made, 1, 1)
        | made.tenant("chat", 100.0, step=step, offered=len(rows), unit="token")
        | {"llm": server(made, 1, 1)["llm"] | {"requests": rows}}
    )


def pair_of_chats(made, path, by):
    cells = [
        made.cell([chat_times(made, *counts), made.tenant("train", 60.0)], mode=mode) for mode, counts in by.items()
    ]
    return made.suite(path, cells, tenants={"chat": {"work": "llm-serve"}, "train": {"work": "resnet-train"}})


def test_a_p99_of_requests_that_had_not_ended_with_the_window_is_a_limit_and_decides_nothing(tmp_path, made):
    folder = pair_of_chats(made, tmp_path, {"time-slicing": (960, 40), "mps": (980, 20)})
    with pytest.raises(DeviceError, match=r"MPS: P99 above 7,5.. ms: 20 of 1,000 requests had not ended") as caught:
        advise(folder, mix="chat, train", goal="p99")
    assert "--goal goodput" in caught.value.hint
    assert "a window in which 99 % of the requests end" in caught.value.hint


def test_a_p99_below_which_all_requests_ended_is_a_value(tmp_path, made):
    """5 of 1,000 requests were cut off: they lie above the P99 however long they would have taken."""
    folder = pair_of_chats(made, tmp_path, {"time-slicing": (995, 5), "mps": (995, 5)})
    found = advise(folder, mix="chat, train", goal="p99")
    assert found.tables()["choice"]["value"].to_list() == pytest.approx([1000, 1000], rel=0.02)


def test_a_server_of_a_language_model_whose_queue_grows_falls_behind(tmp_path, made):
    """Of 1,000 requests in 10 s, 600 ended and 300 have no first token."""
    folder = pair_of_chats(made, tmp_path, {"time-slicing": (600, 100, 300), "mps": (1000, 0)})
    found = advise(folder, mix="chat, train", goal="p99")
    assert (found.mode, found.verdict) == ("mps", "better")
    assert "Time slicing falls behind: 60 of 100 requests/s" in " ".join(found.findings)


def test_a_window_in_which_few_requests_end_does_not_tell_whether_a_server_keeps_up(tmp_path, made):
    """Of 100 requests, 85 and 95 ended, and all have a first token."""
    cells = [
        made.cell([server(made, 85, 0, cut=15), made.tenant("train", 60.0)], mode="time-slicing"),
        made.cell([server(made, 60, 35, cut=5), made.tenant("train", 60.0)], mode="mps"),
    ]
    folder = made.suite(tmp_path, cells)
    shown = suite_result(folder).tables()["llm"].rows_by_key("stage", named=True, unique=True)
    assert [row["keeps_up"] for row in shown.values()] == [None, True]
    with pytest.raises(DeviceError, match=r"85 % of requests ended in a window of 10 s: too short to tell") as caught:
        advise(folder, mix="chat, train", goal="goodput")
    assert "--window" in caught.value.hint


def test_longer_windows_of_the_same_mix_count_instead_of_short_ones(tmp_path, made):
    """In 5 s all requests that ended met the goals, and a fifth was cut off; in 50 s half of them met the goals."""
    cells = []
    for block, (good, missed, cut, seconds) in enumerate([(80, 0, 20, 5.0), (500, 500, 0, 50.0)]):
        for mode in ("time-slicing", "mps"):
            one = server(made, good, missed, cut=cut, seconds=seconds)
            cells.append(made.cell([one, made.tenant("train", 60.0)], mode=mode, block=block))
    found = advise(made.suite(tmp_path, cells), mix="chat, train", goal="goodput")
    assert found.tables()["choice"]["value"].to_list() == pytest.approx([10.0, 10.0])
    assert analyze(tmp_path).tables()["llm"]["goodput"].to_list() == pytest.approx([0.5, 0.5])


def test_a_server_that_falls_behind_in_long_windows_is_not_known_in_short_ones():
    """Beside a training by time slicing, a quarter of the requests was within the goals in 7 s, and none in 30 s."""
    with pytest.raises(DeviceError, match=r"time slicing: \d\d % of requests ended in a window of 6.5 s: too short"):
        advise(MEASURED / "h200-again" / "llm", mix="llm-serve, resnet-train", goal="goodput")
    long = advise(MEASURED / "h200-long" / "llm", mix="llm-serve, resnet-train", goal="goodput").tables()["choice"]
    by = long.rows_by_key("mode", named=True, unique=True)
    assert by["time-slicing"]["value"] < 0.05 * by["mps"]["value"]


def test_goodput_of_servers_that_keep_up_in_no_mode_is_no_choice():
    """Of 4 servers on the H200, each mode leaves a third or more of the requests without a first token."""
    with pytest.raises(DeviceError, match="keeps up in no mode: 4 llm-serve: time slicing falls behind: 16 of 41") as e:
        advise(MEASURED / "h200-long" / "llm", mix="4 llm-serve", goal="goodput")
    assert "fewer requests" in e.value.hint


def test_advice_does_not_flip_to_a_mode_in_which_servers_fall_behind():
    found = advise(MEASURED / "h200-long" / "llm", mix="2 llm-serve", goal="goodput")
    assert "4 llm-serve" not in found.tables()["flips"]["mix"].to_list()


def test_goodput_says_in_which_modes_the_server_falls_behind():
    found = advise(MEASURED / "h200-long" / "llm", mix="llm-serve, resnet-train", goal="goodput")
    assert "Time slicing falls behind: 9 of 11 requests/s: its goodput falls as long as one measures." in found.findings


def test_a_server_that_falls_behind_is_told_as_that_and_not_as_a_late_generator():
    """In the first run on the H200, the generator beside a training by time slicing was 19 ms late."""
    folder = MEASURED / "h200-llm"
    with pytest.raises(DeviceError, match=r"time slicing: falls behind: 6 of 13 requests/s"):
        advise(folder, mix="llm-serve, resnet-train", goal="goodput")
    (said,) = [line for line in analyze(folder).findings if line.startswith("llm-serve beside resnet-train: servers")]
    assert "0 under time slicing" in said


def test_a_server_that_keeps_up_with_a_late_generator_is_not_valid(tmp_path, made):
    chats(made, tmp_path, HALF_AND_MOST, lag=0.01)
    (said,) = [line for line in analyze(tmp_path).findings if line.startswith("chat beside train: servers")]
    assert said.endswith("not valid (late generator) under time slicing, not valid (late generator) under MPS.")


def test_windows_without_a_request_tell_nothing(tmp_path, made):
    modes = ("time-slicing", "mps")
    cells = [made.cell([server(made, 0, 0), made.tenant("train", 60.0)], mode=mode) for mode in modes]
    folder = made.suite(tmp_path, cells)
    assert suite_result(folder).tables()["llm"]["keeps_up"].to_list() == [None, None]
    assert suite_result(folder).tables()["serving"]["keeps_up"].to_list() == [None, None]
    with pytest.raises(DeviceError, match="MPS: no request fell due in a window of 10 s"):
        advise(folder, mix="chat, train", goal="goodput")


def test_other_servers_beside_a_language_model_count_however_long_its_windows_are(tmp_path, made):
    """An image server that answers 50 of 100 requests/s falls behind, also where the model's window is too short."""
    cells = []
    for mode in ("time-slicing", "mps"):
        images = made.tenant("images", 50.0, offered=500)
        cells.append(made.cell([server(made, 85, 0, cut=15), images], mode=mode))
    with pytest.raises(DeviceError, match=r"keeps up in no mode.*MPS falls behind"):
        advise(made.suite(tmp_path, cells), mix="chat, images", goal="p99")


def test_long_requests_that_have_a_first_token_are_not_behind(tmp_path, made):
    folder = pair_of_chats(made, tmp_path, {"time-slicing": (800, 200), "mps": (1000, 0)})
    with pytest.raises(DeviceError, match=r"time slicing: P99 above 7,5.. ms: 200 of 1,000"):
        advise(folder, mix="chat, train", goal="p99")


def test_four_servers_of_the_h200_keep_up_in_no_mode():
    """Of 1,192 requests in 29 s, 465 ended by time slicing, 676 under MPS and 724 under MPS at 25 %."""
    with pytest.raises(DeviceError, match="keeps up in no mode: 4 llm-serve: time slicing falls behind: 16 of 41") as e:
        advise(MEASURED, mix="4 llm-serve", goal="p99")
    assert "--goal goodput" in e.value.hint


def test_two_servers_of_the_h200_have_no_p99_in_these_windows():
    with pytest.raises(DeviceError, match=r"time slicing: P99 above 8,... ms: 57 of 614 requests had not ended"):
        advise(MEASURED, mix="2 llm-serve", goal="p99")


def test_the_margin_of_goodput_is_that_of_the_ratio_of_shares(tmp_path, made):
    """Katz' interval of 180/200 over 100/200, with half a hit added to each."""
    found = advise(chats(made, tmp_path, HALF_AND_MOST), mix="chat, train", goal="goodput")
    ahead = found.tables()["choice"].row(1, named=True)
    error = math.sqrt(1 / 180.5 + 1 / 100.5 - 2 / 200.5)
    ends = [180.5 / 100.5 * math.exp(z * error) - 1 for z in (-1.96, 1.96)]
    assert (ahead["margin_low"], ahead["margin_high"]) == pytest.approx(ends, rel=1e-3)


def test_costs_of_servers_alone_are_those_of_a_request_within_the_goals(tmp_path, made):
    """18 and 10 per second within the goals, at 300 W; 3.6 an hour is a thousandth a second."""
    cells = [
        made.cell([server(made, good, 200 - good)], mode=mode, block=block)
        for mode, good in (("time-slicing", 100), ("mps", 180))
        for block in (0, 1)
    ]
    pairs = [made.cell(cell["tenants"] * 2, mode=cell["mode"], block=cell["block"]) for cell in cells]
    folder = made.suite(tmp_path, cells + pairs, tenants={"chat": {"work": "llm-serve"}})
    costs = advise(folder, mix="2 chat", goal="goodput", price=3.6).tables()["costs"]
    (row,) = costs.filter(mode="mps").iter_rows(named=True)
    assert (row["unit"], row["gpu_s_per_1000"]) == ("request within the goals", pytest.approx(1000 / 36))
    assert row["joules_an_item"] == pytest.approx(300 / 36)
    assert row["cost_per_1000"] == pytest.approx(1 / 36)


def test_flips_are_looked_for_with_the_goals_that_were_asked_for(tmp_path, made):
    """Requests that are late by the servers' goals meet those of 600 ms, so that both modes are alike."""
    tenants = {name: {"work": "llm-serve", "rate": rate} for name, rate in (("chat", 10), ("talk", 20))}
    cells = []
    for mode, good in (("time-slicing", 100), ("mps", 180)):
        for name in tenants:
            seat = {"seat": name, "tenant": name}
            cells += [made.cell([server(made, good, 200 - good) | seat] * 2, mode=mode)]
    found = advise(
        made.suite(tmp_path, cells, tenants=tenants), mix="2 chat", goal="goodput", goodput="ttft:600,tpot:60"
    )
    (row,) = found.tables()["flips"].filter(mix="2 talk").iter_rows(named=True)
    assert row["margin"] == pytest.approx(0.0, abs=1e-9)


def test_other_goals_change_the_answer(tmp_path, made):
    """A first token after 500 ms is within 600 ms: then all requests are good in both modes."""
    folder = chats(made, tmp_path, HALF_AND_MOST)
    loose = advise(folder, mix="chat, train", goal="goodput", goodput="ttft:600")
    assert (loose.verdict, loose.tables()["choice"]["value"].to_list()) == ("no difference", [20.0, 20.0])


def test_twice_the_goals_that_change_the_mode_are_a_flip(tmp_path, made):
    """Late requests have a first token after 500 ms; goals of 400 ms leave them out, so the order stays."""
    found = advise(chats(made, tmp_path, HALF_AND_MOST), mix="chat, train", goal="goodput")
    (row,) = [r for r in found.tables()["flips"].iter_rows(named=True) if "400 ms" in r["changed"]]
    assert (row["best"], row["flips"]) == ("mps", False)


def test_a_generator_that_was_late_is_not_compared_and_said(tmp_path, made):
    cells = []
    for mode, lag in (("time-slicing", 0.01), ("mps", 1e-5), ("mps", 1e-5)):
        cells.append(made.cell([server(made, 100, 100, lag=lag), made.tenant("train", 60.0)], mode=mode))
    cells.append(made.cell([server(made, 100, 100), made.tenant("train@50", 60.0)], mode="mps"))
    found = advise(made.suite(tmp_path, cells), mix="chat, train", goal="goodput")
    known = found.tables()["choice"].filter(pl.col("value").is_not_null())
    assert set(known["mode"]) == {"mps", "mps@50"}
    assert "Not compared: time slicing (its generator of requests was late)." in found.findings


def test_requests_that_were_cut_off_may_change_the_order_and_that_is_said(tmp_path, made):
    """63 of 90 met the goals and 10 were cut off: 0.7, at most 0.73; of the other mode 0.72."""
    cells = [
        made.cell([server(made, 63, 27, cut=10), made.tenant("train", 60.0)], mode="time-slicing"),
        made.cell([server(made, 72, 28), made.tenant("train", 60.0)], mode="mps"),
    ]
    found = advise(made.suite(tmp_path, cells), mix="chat, train", goal="goodput")
    assert any("had met the goals, time slicing would be ahead" in s for s in found.findings)


def test_what_the_training_keeps_is_told_beside(tmp_path, made):
    found = advise(chats(made, tmp_path, HALF_AND_MOST), mix="chat, train", goal="goodput")
    assert found.tables()["beside"]["value"].to_list() == pytest.approx([0.6, 0.6])
    assert any(s.startswith("Meanwhile train keeps, of its speed alone: 0.60 (no CI) under ") for s in found.findings)


def test_a_mix_without_a_server_of_a_language_model_has_no_goodput(tmp_path, made):
    folder = made.pairs(tmp_path, {mode: {("serve", "train"): (0.5, 0.5)} for mode in ("time-slicing", "mps")})
    with pytest.raises(DeviceError, match="none was measured in this mix"):
        advise(folder, mix="serve, train", goal="goodput")
    with pytest.raises(DeviceError, match="time to answer is that of notebooks"):
        advise(folder, mix="serve, train", goal="answer")


def test_goals_that_are_none_are_told(tmp_path, made):
    folder = chats(made, tmp_path, HALF_AND_MOST)
    with pytest.raises(BenchError, match="not a goal: `e2el:200`"):
        advise(folder, mix="chat, train", goal="goodput", goodput="e2el:200")


# --- notebooks --------------------------------------------------------------------------------------------------------


def user(made, copy, times):
    """A user with cells of each kind that take so long; of a training per step, of ten."""
    cells = [[kind, 10 if kind == "train" else 1, (10 if kind == "train" else 1) * s] for kind, s in times.items()]
    return made.tenant("notebook", 2.0) | {"copy": copy, "notebook": {"cells": cells * 5, "pace": 1200.0}}


def users(made, path, by):
    """One user alone with cells of 1 s, and two users with cells of so many seconds in each mode."""
    alone = {"load": 1.0, "train": 1.0}
    cells = [made.cell([user(made, 0, alone)])]
    cells += [made.cell([user(made, k, times) for k, times in enumerate(two)], mode=mode) for mode, two in by.items()]
    return made.suite(path, cells, tenants={"notebook": {"work": "notebook"}})


def test_time_to_answer_is_relative_to_one_user_alone_and_each_kind_counts_alike(tmp_path, made):
    """The first user waits 2 and 8 times as long by turns: 4 on the mean, as the second does."""
    slow, fast = {"load": 2.0, "train": 8.0}, {"load": 2.0, "train": 2.0}
    folder = users(made, tmp_path, {"time-slicing": (slow, {"load": 4.0, "train": 4.0}), "mps": (fast, fast)})
    found = advise(folder, mix="2 notebook", goal="answer")
    assert found.mode == "mps"
    assert found.tables()["choice"]["value"].to_list() == pytest.approx([2.0, 4.0])


def test_users_are_compared_with_themselves(tmp_path, made):
    """Users differ by a factor of three, but each waits exactly twice as long by turns."""
    one, other = {"load": 1.0, "train": 1.0}, {"load": 3.0, "train": 3.1}
    by = {"mps": (one, other), "time-slicing": tuple({k: 2 * s for k, s in u.items()} for u in (one, other))}
    found = advise(users(made, tmp_path, by), mix="2 notebook", goal="answer")
    row = found.tables()["choice"].row(1, named=True)
    assert found.verdict == "better"
    assert (row["margin_low"], row["margin_high"]) == pytest.approx((0.5, 0.5))


def test_one_user_says_nothing_of_the_noise(tmp_path, made):
    cells = [
        made.cell([user(made, 0, {"load": 1.0}), made.tenant("train", 50.0)], mode=m) for m in ("time-slicing", "mps")
    ]
    found = advise(made.suite(tmp_path, cells), mix="notebook, train", goal="answer")
    assert found.verdict == "not known"
    assert "one user says nothing" in found.findings[0]


# --- the measured H200, computed again from the raw cells -------------------------------------------------------------


def raw(name):
    lines = gzip.decompress((MEASURED / name / "cells.jsonl.gz").read_bytes()).decode().splitlines()
    return [json.loads(line) for line in lines]


def within(request):
    """True or False, or None if it was cut off while it met the goals of 200 ms and 25 ms per token."""
    _, output, got, first, last = request
    if first is None or first > 0.2 or (got > 1 and (last - first) / (got - 1) > 0.025):
        return False
    return True if got >= output else None


@pytest.mark.parametrize(
    ("mix", "tenants", "best"),
    [
        ("2 llm-serve", ["llm-serve"] * 2, "mps"),
        ("bert-train, llm-serve", ["bert-train", "llm-serve"], "mps"),
        ("llm-serve, resnet-train", ["llm-serve", "resnet-train"], "mps@50"),
    ],
)
def test_goodput_on_the_h200_is_that_of_its_raw_requests(mix, tenants, best):
    found = advise(MEASURED / "h200-long" / "llm", mix=mix, goal="goodput")
    by = {}
    for cell in raw("h200-long/llm"):
        if sorted(t["tenant"] for t in cell["tenants"]) == tenants:
            servers = [t["llm"] for t in cell["tenants"] if "llm" in t]
            seats = {t["seat"].partition("@")[2] for t in cell["tenants"]}
            judged = [within(request) for llm in servers for request in llm["requests"]]
            known = [x for x in judged if x is not None]
            offered = sum(len(llm["requests"]) / llm["seconds"] for llm in servers)
            by[cell["mode"] + "".join(f"@{s}" for s in seats if s)] = offered * sum(known) / len(known)
    assert found.mode == best
    shown = dict(found.tables()["choice"].drop_nulls("value").select("mode", "value").rows())
    assert shown == pytest.approx({mode: by[mode] for mode in shown})


def test_time_to_answer_on_the_h200_is_that_of_its_raw_cells():
    def logs(cell):
        by = defaultdict(list)
        for one in cell["tenants"]:
            each = defaultdict(list)
            for kind, size, seconds in one.get("notebook", {"cells": []})["cells"]:
                each[kind].append(math.log(seconds / size))
            for kind, some in each.items():
                by[one.get("copy"), one["tenant"]].append((kind, sum(some) / len(some)))
        return {user: dict(kinds) for user, kinds in by.items()}

    cells = {(c["mode"], tuple(sorted(t["tenant"] for t in c["tenants"]))): c for c in raw("h200-notebook")}
    (alone,) = logs(cells["time-slicing", ("notebook",)]).values()
    mix = ("notebook",) * 4 + ("resnet-train",)
    expected = {}
    for mode in ("time-slicing", "mps"):
        each = [sum(v - alone[k] for k, v in kinds.items()) / len(kinds) for kinds in logs(cells[mode, mix]).values()]
        expected[mode] = math.exp(sum(each) / len(each))
    found = advise(MEASURED / "h200-notebook", mix="4 notebook, resnet-train", goal="answer")
    assert dict(found.tables()["choice"].select("mode", "value").rows()) == pytest.approx(expected)
    assert (found.mode, found.verdict) == ("mps", "better")


def test_servers_and_notebooks_together_are_told_by_the_time_to_answer():
    found = advise(MEASURED / "h200-notebook", mix="4 notebook, llm-serve", goal="answer")
    assert set(found.tables()["beside"]["tenant"]) == {"llm-serve"}
    assert found.tables()["answers"].filter(pl.col("cell") == "explore").height == 2


def test_windows_of_8_s_do_not_tell_the_goodput_of_a_server_beside_notebooks():
    with pytest.raises(DeviceError, match=r"73 % of requests ended in a window of 7 s: too short to tell"):
        advise(MEASURED / "h200-notebook", mix="4 notebook, llm-serve", goal="goodput")


def test_the_median_of_a_kind_of_cell_has_its_interval_or_says_why_not(tmp_path, made):
    """Two users with five equal cells each are worth two: too few for an interval."""
    found = advise(MEASURED, mix="4 notebook, resnet-train", goal="answer")
    (said,) = [s for s in found.findings if s.startswith("Median ms")]
    (row,) = found.tables()["answers"].filter(mode="mps", cell="load").iter_rows(named=True)
    assert "load {:.1f} ({:.1f} to {:.1f})".format(*(row[f"p50_{end}"] for end in ("ms", "low", "high"))) in said
    slow = {"load": 2.0, "train": 8.0}, {"load": 3.0, "train": 4.0}
    few = advise(users(made, tmp_path, {"time-slicing": slow, "mps": slow}), mix="2 notebook", goal="answer")
    assert "(no CI)" in next(s for s in few.findings if s.startswith("Median ms"))
    assert any(s.startswith("`no CI`: cells of one user are alike") for s in few.findings)


def seen_twice(made, path, *, drawn_anew):
    """Two suites of two blocks; users of the second block of each, and of the second suite, are the same or others."""
    for run in range(2):
        cells = []
        for block in range(2):
            step = 10 * (1 + 2 * block + run) if drawn_anew else 10
            for mode, slow in (("time-slicing", 2.0), ("mps", 1.0)):
                both = []
                for copy, times in enumerate((1.0, 1.3)):
                    one = user(made, copy, {"load": slow, "train": slow * times ** (slow - 1)})
                    for cell in one["notebook"]["cells"]:
                        cell[1:] = [cell[1] * step, cell[2] * step] if cell[0] == "train" else cell[1:]
                    both.append(one)
                cells.append(made.cell(both, mode=mode, block=block))
        made.suite(path / str(run), cells)
    return path


def test_users_who_were_drawn_alike_in_two_blocks_and_suites_are_one(tmp_path, made):
    """Eight users, or two seen four times: the interval is that of eight or of two."""
    widths = []
    for anew in (True, False):
        folder = seen_twice(made, tmp_path / str(anew), drawn_anew=anew)
        row = advise(folder, mix="2 notebook", goal="answer").tables()["choice"].row(1, named=True)
        widths.append(math.log((1 - row["margin_low"]) / (1 - row["margin_high"])))
    logs = [math.log(2), math.log(2 * math.sqrt(1.3))]  # of each user: the mean over two kinds of cells
    spread = (logs[1] - logs[0]) / 2  # four users on each side, or one
    by_hand = [
        2 * 2.3646 * spread * math.sqrt(8 / 7) / math.sqrt(8),
        2 * 12.7062 * spread * math.sqrt(2) / math.sqrt(2),
    ]
    assert widths == pytest.approx(by_hand, rel=1e-3)


def test_windows_with_the_same_requests_are_worth_one(tmp_path, made):
    """The same 200 requests in two blocks give the interval of 200, as one block does."""
    ends = []
    for blocks in (1, 2):
        cells = [
            made.cell([server(made, good, 200 - good), made.tenant("train", 60.0)], mode=mode, block=block)
            for mode, good in (("time-slicing", 100), ("mps", 180))
            for block in range(blocks)
        ]
        found = advise(made.suite(tmp_path / str(blocks), cells), mix="chat, train", goal="goodput").tables()["choice"]
        ends.append(found.row(1)[1:7])
    assert ends[0] == pytest.approx(ends[1])


def test_blocks_that_repeat_the_same_cells_of_notebooks_are_no_repetition_of_throughput(tmp_path, made):
    slow = {"load": 2.0, "train": 8.0}, {"load": 3.0, "train": 4.0}
    cells = [made.cell([user(made, 0, slow[0])], mode="time-slicing")]
    for block in range(2):
        for mode, speed in (("time-slicing", 0.5), ("mps", 0.8)):
            both = [user(made, copy, times) | {"rate": 2.0 * speed} for copy, times in enumerate(slow)]
            cells.append(made.cell(both, mode=mode, block=block))
    found = advise(made.suite(tmp_path, cells), mix="2 notebook", goal="throughput")
    assert (found.mode, found.verdict) == ("mps", "not known")
    assert "but its 2 blocks of one run drew the same cells of notebooks, and count once" in found.findings[0]


def test_one_block_of_notebooks_is_not_said_to_repeat_cells(tmp_path, made):
    slow = {"load": 2.0, "train": 8.0}
    cells = [made.cell([user(made, 0, slow)], mode="time-slicing")]
    cells += [made.cell([user(made, copy, slow) for copy in (0, 1)], mode=mode) for mode in ("time-slicing", "mps")]
    found = advise(made.suite(tmp_path, cells), mix="2 notebook", goal="throughput")
    assert "neither this mix nor one of the same work was measured twice" in found.findings[0]


def test_modes_with_the_same_value_are_level_and_none_is_ahead(tmp_path, made):
    cells = [made.cell([made.tenant("a", 100.0)]), made.cell([made.tenant("b", 100.0)])]
    modes = ("time-slicing", "mps")
    cells += [made.cell([made.tenant("a", 50.0), made.tenant("b", 50.0)], mode=mode) for mode in modes]
    said = advise(made.suite(tmp_path, cells), mix="a, b", goal="throughput").findings[0]
    assert "is level with" in said
