"""What to set for a mode: replicas, limits of each tenant, and the memory that each was seen to hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fleetlab.bench.advise.mig_layout import MigAssignment, assign_profiles, layout_rows
from fleetlab.bench.analysis.findings import Findings
from fleetlab.bench.analysis.users import ENOUGH, llm_table
from fleetlab.bench.analysis.wording import count_noun

HEADROOM, CONTEXT = 1.1, 512  # of the memory that a tenant was seen to hold; MiB of its context, which count too
MPS_CLIENTS = 48  # of one MPS server on Volta and newer, by NVIDIA's documentation
REPLICAS = "sharing.mps.resources[].replicas"


def setting_rows(f: Findings, mode: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Settings of the mode, and of each tenant."""
    n = len(names)
    kind = mode.partition("@")[0].partition("!")[0].partition("~")[0]
    percents, low = re.findall(r"@(\d+)(?!\d|sms)", mode), "!1" in mode
    if kind == "time-slicing":
        yield _row(
            "GPU", "sharing.timeSlicing.resources[].replicas", n, "one replica for each tenant; it has no limits"
        )
    elif kind == "mps":
        yield _replicas(percents, n)
    if mode == "mig":
        one = all(name in f.gathered.kinds for name in names)  # tenants, not classes of them
        found = mig_layout(f, names) if one else "a layout is that of one mix: ask for one of them"
        yield from layout_rows(found, names, [_memory(f, name) for name in names])
        return
    if mode.startswith("mig:"):
        yield _row("GPU", "MIG layout", mode.removeprefix("mig:"), "as measured, in the order of the tenants")
    yield from _fits(f, mode, names)
    for name in dict.fromkeys(names):
        if percents:
            why = "an upper limit of its SMs" + (", as measured" if len(percents) == 1 else "; one each, as measured")
            yield _row(name, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", " or ".join(percents), why)
        elif kind == "mps":
            yield _row(name, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100", "measured without a limit")
        if low and f.gathered.kinds.get(name) == "training":
            yield _row(name, "CUDA_MPS_CLIENT_PRIORITY", "1", "below the inference tenant")
        if kind == "mps" and (held := _memory(f, name)):
            mib = round(held * HEADROOM) + CONTEXT
            yield _row(name, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", f"0={mib}M", f"it held {held:,} MiB, and its context")


def mig_layout(f: Findings, names: tuple[str, ...], *, total: bool = False) -> MigAssignment | str:
    """A layout with room for what each tenant was seen to hold, and its context; or why there is none."""
    needs = [round(mib * HEADROOM) + CONTEXT if mib else 0 for mib in (_memory(f, name) for name in names)]
    return assign_profiles(f.gathered, names, needs, total=total)


def _replicas(percents: list[str], n: int) -> dict[str, Any]:
    """Replicas of the device plugin, if they give this mode: it always limits each client to 100 / replicas %."""
    given = 100 // n
    if set(percents) == {str(given)}:
        return _row("GPU", REPLICAS, n, f"the device plugin limits each to {given} % of SMs, as measured")
    other = "without limits" if not percents else f"at {' and '.join(percents)} %"
    why = f"the device plugin would limit each to {given} % of SMs, which is not MPS {other}: "
    return _row("GPU", REPLICAS, "none", why + "start the MPS daemon and set the environment of each tenant")


def _row(of: str, setting: str, value: object, why: str) -> dict[str, Any]:
    return {"for": of, "setting": setting, "value": str(value), "why": why}


def _memory(f: Findings, name: str) -> int:
    """The most memory that a tenant was seen to hold, MiB; 0 if that is not known."""
    held = [t.about.get("memory_mib") or 0 for m in f.gathered.meetings for t in m.tenants if t.name == name]
    return int(max(held, default=0))


def _fits(f: Findings, mode: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """How often the mix fits: by memory with a context for each tenant, and by the clients of an MPS server."""
    held = [_memory(f, name) for name in names]
    card = max((_card_mib(s.about) for s in f.gathered.suites), default=0)
    if all(held) and card:
        needed = sum(held) + CONTEXT * len(names)
        by_memory, by_clients = card // needed, MPS_CLIENTS // len(names)
        limited = mode.startswith("mps") and by_clients < by_memory
        times = count_noun(by_clients if limited else by_memory, "time")
        by = f"at most {MPS_CLIENTS} clients of MPS" if limited else f"by memory, with {CONTEXT} MiB of context each"
        yield _row("GPU", "memory", f"{needed:,} of {card:,} MiB", f"would hold this mix {times}: {by}")
    for row in llm_table(f.gathered).iter_rows(named=True) if len(set(names)) == 1 else ():
        if (row["tenant"], row["mode"], row["servers"]) == (names[0], mode, len(names)):
            yield _within_goals(row)
    for curve in f.scaling_curves:
        if set(names) == {curve.tenant} and curve.largest_good:
            why = f"P{100 * curve.percentile:g} within {f.goal} under {curve.mode}"
            yield _row("GPU", "replicas, at most", curve.largest_good, why)


def _within_goals(row: dict[str, Any]) -> dict[str, Any]:
    """Whether so many servers meet their goals."""
    low, high = row["goodput_low"], row["goodput_high"]
    met = "yes" if low >= ENOUGH else "no" if high < ENOUGH else "not known"
    why = f"{100 * ENOUGH:g} % of requests within the goals; measured {row['goodput']:.2f} ({low:.2f} to {high:.2f})"
    return _row("GPU", f"{row['servers']} servers fit", met, why)


def _card_mib(about: dict[str, Any]) -> int:
    """Memory of the GPU, as a worker saw it."""
    seats = [seat for stage in about.get("stages") or [] for seat in (stage.get("seats") or {}).values()]
    return max((int(seat.get("card_mib") or 0) for seat in seats), default=0)
