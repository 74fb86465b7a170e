import gzip
import json
import math

import pytest

import fleetlab
from fleetlab.bench.measured import measured
from fleetlab.bench.statistics import pooled


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


def test_progress_is_relative_to_the_same_block(tmp_path):
    """The card is twice as fast in the second block: alone and beside others alike."""
    lines = []
    for block, speed in ((0, 1.0), (1, 2.0)):
        lines += [line("a", [100 * speed], block=block), line("b", [40 * speed], block=block)]
        lines += [line("a+b", [50 * speed, 30 * speed], block=block)]
    found = measured(folder(tmp_path, lines)).tables()
    made = row(found["progress"], tenant="a")
    assert (made["progress"], made["low"], made["high"]) == pytest.approx((0.5, 0.5, 0.5))
    mix = row(found["mixes"], mix="a + b")
    assert (mix["stp"], mix["worst"], mix["blocks"]) == pytest.approx((1.25, 0.5, 2))
    assert mix["antt"] == pytest.approx((2 + 4 / 3) / 2)


def test_a_share_is_relative_to_the_whole_card(tmp_path):
    lines = [line("a", [100]), line("a@50", [60]), line("a@50+a@50", [45, 55])]
    found = measured(folder(tmp_path, lines)).tables()
    assert row(found["progress"], tenant="a@50", beside="")["progress"] == pytest.approx(0.6)
    assert row(found["progress"], tenant="a@50", beside="a@50")["progress"] == pytest.approx(0.5)
    assert row(found["mixes"], mix="2 a@50")["stp"] == pytest.approx(1.0)


def test_a_failed_cell_is_listed_and_counts_for_nothing(tmp_path):
    fault = {"seat": "b", "kind": "died", "detail": "ended by signal 9", "copy": 0}
    lines = [line("a", [100]), line("a+b", [90], status="failed", failures=[fault])]
    found = measured(folder(tmp_path, lines))
    assert found.tables()["failures"]["kind"].to_list() == ["died"]
    assert found.tables()["mixes"].is_empty()
    assert found.summary()[-1].value == 1


def test_of_a_cell_measured_twice_the_last_counts(tmp_path):
    lines = [line("a", [1], status="failed"), line("a", [100])]
    assert measured(folder(tmp_path, lines)).tables()["alone"]["rate"].to_list() == pytest.approx([100])


def test_one_block_has_no_limits(tmp_path):
    found = measured(folder(tmp_path, [line("a", [100])])).tables()["alone"]
    assert math.isnan(found["low"][0])


def test_a_folder_without_a_suite_says_so(tmp_path):
    with pytest.raises(fleetlab.DeviceError, match="holds no measured suite"):
        measured(tmp_path)


def test_cells_may_be_packed(tmp_path):
    path = folder(tmp_path, [line("a", [100]), line("a+a", [40, 50])])
    plain = measured(path).tables()
    (path / "cells.jsonl.gz").write_bytes(gzip.compress((path / "cells.jsonl").read_bytes()))
    (path / "cells.jsonl").unlink()
    assert measured(path).tables()["mixes"].equals(plain["mixes"])


def test_packed_cells_that_are_cut_off_are_an_error(tmp_path):
    path = folder(tmp_path, [line("a", [100])])
    (path / "cells.jsonl.gz").write_bytes(gzip.compress((path / "cells.jsonl").read_bytes())[:20])
    (path / "cells.jsonl").unlink()
    with pytest.raises(fleetlab.DeviceError, match="holds no measured suite"):
        measured(path)


def test_pooled_limits_by_hand():
    # Two pairs, each 10 % apart in logs: noise 0.1 / sqrt(2) with 2 degrees of freedom, t = 4.303.
    groups = [[1.0, math.exp(0.1)], [2.0, 2 * math.exp(-0.1)]]
    first, second = pooled(groups)
    half = 4.303 * 0.1 / math.sqrt(2) / math.sqrt(2)
    assert first == pytest.approx((math.exp(0.05), math.exp(0.05 - half), math.exp(0.05 + half)), rel=1e-3)
    assert second.value == pytest.approx(2 * math.exp(-0.05))
