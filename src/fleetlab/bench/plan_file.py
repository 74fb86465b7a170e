"""A plan of one's own, from a TOML file.

```toml
[suite]
modes = ["time-slicing", "mps", "mps@50"]  # @50: each tenant on half of the SMs
mixes = [["train", "serve"], ["train", "train"]]  # or "pairs": every two, also of a kind
blocks = 3

[tenant.train]
work = "resnet-train"
batch = 128

[tenant.serve]
work = "resnet-infer"
poisson = 200  # steps fall due at random, 200 a second; `rest = 0.05` pauses after each step; else it saturates
```
"""

from __future__ import annotations

import tomllib
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

from fleetlab.bench.plans import Plan, Tenant, meetings, shuffled
from fleetlab.devices.errors import BenchError
from fleetlab.sharing.modes import MODES, Share

FEEDING = ("work", "rest", "poisson")
SUITE = ("modes", "mixes", "blocks", "settle", "window")


def read_plan(path: Path, *, seed: int = 0, blocks: int | None = None) -> Plan:
    """The plan that a file describes; each mode is a stage of its own."""
    try:
        about = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as e:
        msg = f"cannot read the plan: {path}: {e}"
        raise BenchError(msg, hint="a plan is a TOML file with [suite] and [tenant.NAME]") from None
    suite, tenants = _parts(about, path)
    blocks = blocks or suite.get("blocks", 3)
    if not isinstance(blocks, int) or blocks < 1:
        msg = f"{path.name}: not a number of blocks: {blocks}"
        raise BenchError(msg)
    mixes = suite.get("mixes", "pairs")
    if mixes == "pairs":
        mixes = list(combinations_with_replacement(tenants, 2))
    elif not (isinstance(mixes, list) and all(isinstance(m, list) and m for m in mixes)):
        msg = f"{path.name}: mixes are lists of tenants, or `pairs`: {mixes}"
        raise BenchError(msg)
    cells = tuple(
        cell
        for words in suite.get("modes", ["time-slicing"])
        for cell in shuffled(meetings(words, *_mode(words, mixes)), blocks=blocks, seed=seed)
    )
    lengths = {key: _number(suite[key], key, path) for key in ("settle", "window") if key in suite}
    return Plan(path.stem, tenants, cells, seed=seed, **lengths)


def _parts(about: dict[str, Any], path: Path) -> tuple[dict[str, Any], dict[str, Tenant]]:
    unknown = sorted(set(about) - {"suite", "tenant"}) + sorted(set(about.get("suite", {})) - set(SUITE))
    if unknown:
        msg = f"{path.name}: no such key: {', '.join(unknown)}"
        raise BenchError(msg, hint=f"[suite] has {', '.join(SUITE)}; each [tenant.NAME] has work and its settings")
    tenants = about.get("tenant", {})
    if not tenants or not all(isinstance(t, dict) and isinstance(t.get("work"), str) for t in tenants.values()):
        msg = f"{path.name}: each tenant needs a work"
        raise BenchError(msg, hint='[tenant.train] with work = "resnet-train"')
    return about.get("suite", {}), {
        name: Tenant(
            t["work"],
            {k: v for k, v in t.items() if k not in FEEDING},
            **{k: _number(t[k], k, path) for k in FEEDING[1:] if k in t},
        )
        for name, t in tenants.items()
    }


def _mode(words: str, mixes: list[Any]) -> tuple[str, list[Any], Share]:
    mode, _, percent = str(words).partition("@")
    if mode not in MODES or (percent and not percent.isdigit()):
        msg = f"no sharing mode by that name: `{words}`"
        raise BenchError(msg, hint=f"there are {', '.join(MODES)}, and mps@PERCENT")
    return mode, mixes, Share(int(percent)) if percent else Share()


def _number(value: object, key: str, path: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = f"{path.name}: {key} is a number: {value}"
        raise BenchError(msg)
    return float(value)
