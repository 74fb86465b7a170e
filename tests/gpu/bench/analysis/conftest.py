"""Hand-made suites: who met whom, how fast each was, and how long steps took."""

import json
from types import SimpleNamespace

import pytest

from fleetlab.gpu.bench.histogram import Histogram

WORKS = {"train": "resnet-train", "learn": "bert-train", "serve": "resnet-infer", "answer": "bert-infer"}
STEPS = 400


def tenant(seat, rate, *, step=None, starved=0.0, busy=1.0, offered=None, lag=1e-5, unit="image", sms=132, group=1.0):
    """What a worker says of itself; its steps take `step` seconds, a second over its rate if not told.

    So many requests wait as a `group`, None if that was not recorded.
    """
    steps = [1 / rate if step is None else step] * STEPS if not isinstance(step, list) else step
    about = {
        "seat": seat,
        "tenant": seat.partition("@")[0].partition("!")[0].partition("~")[0],
        "rate": rate,
        "unit": unit,
        "busy": busy,
        "starved": starved,
        "times": Histogram.of(steps).to_json(),
        "steps": len(steps),
        "sms": sms,
        "late": 0.0,
    }
    if offered is not None:
        about |= {"offered": offered, "lag": Histogram.of([lag] * 400).to_json(), "unsent": 0}
        about |= {} if group is None else {"clumps": dict.fromkeys(("p50", "p95", "p99"), group)}
    return about


def cell(tenants, *, mode="time-slicing", stage=None, block=0, watts=300.0, util=100.0, opens=None, **more):
    stage = stage or mode
    name = "+".join(t["seat"] for t in tenants)
    about = {"cell": f"{stage}/{block}/{name}", "stage": stage, "mode": mode, "block": block, "status": "ok"}
    gpu = {"util": util, "watts": watts, "sm_mhz": 1900.0, "memory_mib": 2048, "reasons": 0} if watts else {}
    return about | {"tenants": tenants, "gpu": gpu, "failures": [], "window": 5.0, "opens": opens} | more


def failed(name, *, mode="mps", block=0, kind="out-of-memory"):
    about = {"cell": f"{mode}/{block}/{name}", "stage": mode, "mode": mode, "block": block, "status": "failed"}
    return about | {"failures": [{"seat": name, "kind": kind, "detail": "asked for 20 GiB"}]}


def suite(path, cells, *, tenants=None, card="H0", rehearsal=False, plan=None, **more):
    """A folder as a suite leaves it."""
    path.mkdir(parents=True, exist_ok=True)
    names = {t["tenant"] for c in cells for t in c.get("tenants", [])}
    about = {
        "plan": plan or path.name,
        "seed": 0,
        "window": 5.0,
        "settle": 1.0,
        "card": {"name": card, "uuid": f"GPU-{card}"} if card else {"absent": "no NVML"},
        "rehearsal": rehearsal,
        "skipped": [],
        "tenants": tenants or {name: {"work": WORKS.get(name, name)} for name in sorted(names)},
        **more,
    }
    (path / "manifest.json").write_text(json.dumps(about))
    (path / "cells.jsonl").write_text("".join(json.dumps(c) + "\n" for c in cells))
    return path


def pair_suites(path, modes, *, blocks=2, alone=None, wobble=0.001, tails=None):
    """One suite a mode: each tenant alone, and the pairs that `modes[mode]` has, as (a, b) -> (progress, progress).

    Blocks differ by `wobble` to each side of the value, in turns, so that means are what was asked for.
    """
    alone = alone or {}
    for mode, pairs in modes.items():
        share = "@" + mode.partition("@")[2] if "@" in mode else ""
        cells = []
        for block in range(blocks):
            sign = 1 + wobble * (1 if block % 2 else -1)
            names = sorted({name for pair in pairs for name in pair})
            for name in names:
                rate = 1000.0 * alone.get((mode, name), 1.0)
                cells.append(cell([tenant(name, rate)], mode=mode.partition("@")[0], stage=mode, block=block))
            for (a, b), (pa, pb) in pairs.items():
                tail = (tails or {}).get((mode, a, b), (None, None))
                both = [
                    tenant(a + share, 1000 * pa * sign, step=tail[0]),
                    tenant(b + share, 1000 * pb * sign, step=tail[1]),
                ]
                cells.append(cell(both, mode=mode.partition("@")[0], stage=mode, block=block))
        suite(path / mode, cells)
    return path


@pytest.fixture(scope="session")
def made():
    """The makers of tenants, cells and suites."""
    return SimpleNamespace(tenant=tenant, cell=cell, failed=failed, suite=suite, pairs=pair_suites)
