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

[tenant.mine]
command = "python my_train.py"  # your own, in its own process; or callable = "my_module:function", one step a call
```
"""

from __future__ import annotations

import re
import shlex
import tomllib
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

from fleetlab.gpu.bench.plans import BenchCell, SuitePlan, Tenant, mig_cells, mix_cells, shuffle_cells
from fleetlab.gpu.bench.workloads import OWN
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing.modes import MIG, Share, check_mode

WORK = ("workload", *OWN)  # what a tenant is: exactly one of them
OPTIONS = ("rest", "poisson")
OWN_SETTINGS = {"command": ("match", "items", "unit", "warm_up", "start_s"), "callable": ("items", "unit")}
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
        raise BenchError(f"{path.name}: not a number of blocks: {blocks}")
    mixes = suite.get("mixes", "pairs")
    if mixes == "pairs":
        mixes = list(combinations_with_replacement(tenants, 2))
    elif not (isinstance(mixes, list) and all(isinstance(m, list) and m for m in mixes)):
        raise BenchError(f"{path.name}: mixes must be lists of tenants, or `pairs`: {mixes}")
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
    if not tenants or not all(isinstance(t, dict) and _is_work(t) for t in tenants.values()):
        msg = f"{path.name}: each tenant needs a workload, a command or a callable, and only one of them"
        raise BenchError(msg, hint='[tenant.train] with workload = "resnet-train", or command = "python my_train.py"')
    return about.get("suite", {}), {name: _tenant(name, t, path) for name, t in tenants.items()}


def _is_work(about: dict[str, Any]) -> bool:
    return [isinstance(about[key], str) for key in WORK if key in about] == [True]


def _tenant(name: str, about: dict[str, Any], path: Path) -> Tenant:
    """Read a tenant; settings of a command or a callable are checked here, of a workload when it is made."""
    feed = {k: _number(about[k], k, path) for k in OPTIONS if k in about}
    settings = {k: v for k, v in about.items() if k not in (*OPTIONS, "workload")}
    if "workload" in about:
        return Tenant(about["workload"], settings, **feed)
    work = next(key for key in OWN if key in about)
    unknown = sorted(set(settings) - {work, *OWN_SETTINGS[work]})
    if unknown or (work == "command" and feed):
        msg = f"{path.name}: {name}: a {work} has no {', '.join(unknown or feed)}"
        raise BenchError(msg, hint=f"it has {', '.join(OWN_SETTINGS[work])}; a command steps at its own pace")
    for key in ("items", "warm_up", "start_s"):
        if key in settings and not _number(settings[key], key, path) > 0:
            raise BenchError(f"{path.name}: {name}: {key} must be above 0: {settings[key]}")
    if work == "command":
        check_command(settings["command"], str(settings.get("match", "")))
    return Tenant(work, settings, **feed)


def check_command(command: str, match: str) -> None:
    """Refuse what cannot be started or matched."""
    try:
        words = shlex.split(command)
        re.compile(match)
    except (ValueError, re.error) as e:
        raise BenchError(f"not a command or a pattern: `{command}`, `{match}`: {e}") from None
    if not words:
        raise BenchError("an empty command", hint='command = "python my_train.py"')


def _cells(words: str, mixes: list[Any]) -> list[BenchCell]:
    if words.startswith(MIG):
        return mig_cells(words, mixes)
    mode, _, percent = words.partition("@")
    if percent and not percent.isdigit():
        raise BenchError(f"unknown sharing mode: `{words}`", hint="mps@50 is MPS with half of the SMs for each tenant")
    check_mode(mode)
    return mix_cells(words, mode, mixes, Share(int(percent)) if percent else Share())


def _number(value: object, key: str, path: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BenchError(f"{path.name}: {key} must be a number: {value}")
    return float(value)
