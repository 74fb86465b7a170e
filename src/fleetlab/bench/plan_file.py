"""Read a plan from a TOML file.

```toml
[suite]
modes = ["time-slicing", "mps", "mps@50", "mig:2x3g.20gb"]  # @50: each tenant on half of the SMs
mixes = [["train", "serve"], ["train", "train"]]  # or "pairs": all pairs, also of equal tenants
blocks = 3

[tenant.train]
workload = "resnet-train"
batch = 128

[tenant.serve]
workload = "resnet-infer"
poisson = 200  # open loop, 200 steps per second; `rest = 0.05` pauses after each step; default: closed loop
```
"""

from __future__ import annotations

import tomllib
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

from fleetlab.bench.mig_plan import mig_cells
from fleetlab.bench.plans import BenchCell, SuitePlan, Tenant, mix_cells, shuffle_cells
from fleetlab.devices.errors import BenchError
from fleetlab.sharing.modes import MIG, Share, check_mode

OPTIONS = ("workload", "rest", "poisson")
SUITE = ("modes", "mixes", "blocks", "settle", "window")


def read_plan(path: Path, *, seed: int = 0, blocks: int | None = None) -> SuitePlan:
    """Read the plan of a file; each mode is a stage."""
    try:
        about = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as e:
        msg = f"cannot read the plan: {path}: {(isinstance(e, OSError) and e.strerror) or e}"
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
        msg = f"{path.name}: mixes must be lists of tenants, or `pairs`: {mixes}"
        raise BenchError(msg)
    cells = tuple(
        cell
        for words in suite.get("modes", ["time-slicing"])
        for cell in shuffle_cells(_cells(str(words), mixes), blocks=blocks, seed=seed)
    )
    lengths = {key: _number(suite[key], key, path) for key in ("settle", "window") if key in suite}
    return SuitePlan(path.stem, tenants, cells, seed=seed, **lengths)


def _parts(about: dict[str, Any], path: Path) -> tuple[dict[str, Any], dict[str, Tenant]]:
    unknown = sorted(set(about) - {"suite", "tenant"}) + sorted(set(about.get("suite", {})) - set(SUITE))
    if unknown:
        msg = f"{path.name}: unknown key: {', '.join(unknown)}"
        raise BenchError(msg, hint=f"[suite] has {', '.join(SUITE)}; each [tenant.NAME] has workload and its settings")
    tenants = about.get("tenant", {})
    if not tenants or not all(isinstance(t, dict) and isinstance(t.get("workload"), str) for t in tenants.values()):
        msg = f"{path.name}: each tenant needs a workload"
        raise BenchError(msg, hint='[tenant.train] with workload = "resnet-train"')
    return about.get("suite", {}), {
        name: Tenant(
            t["workload"],
            {k: v for k, v in t.items() if k not in OPTIONS},
            **{k: _number(t[k], k, path) for k in OPTIONS[1:] if k in t},
        )
        for name, t in tenants.items()
    }


def _cells(words: str, mixes: list[Any]) -> list[BenchCell]:
    if words.startswith(MIG):
        return mig_cells(words, mixes)
    mode, _, percent = words.partition("@")
    if percent and not percent.isdigit():
        msg = f"unknown sharing mode: `{words}`"
        raise BenchError(msg, hint="mps@50 is MPS with half of the SMs for each tenant")
    check_mode(mode)
    return mix_cells(words, mode, mixes, Share(int(percent)) if percent else Share())


def _number(value: object, key: str, path: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = f"{path.name}: {key} must be a number: {value}"
        raise BenchError(msg)
    return float(value)
