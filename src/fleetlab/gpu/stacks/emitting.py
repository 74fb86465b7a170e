"""Emit a spec in the format of a stack, and list what the stack cannot express.

What was measured, by mode and guarantee, is in `isolation.json`. `python -m benchmarks.isolation FOLDER` writes it from
the folder of `fleetlab bench isolation`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

import polars as pl

from fleetlab.core import Estimate, Provenance, Result
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing.modes import Share
from fleetlab.gpu.stacks.formats import BY_NAME
from fleetlab.gpu.stacks.formats.format import about_stack
from fleetlab.gpu.stacks.spec import Spec

PAGE = "docs/isolation.md"


@cache
def isolation_records() -> dict[tuple[str, str], dict[str, Any]]:
    """How modes kept guarantees, by mode and guarantee: verdict, numbers and the cells behind them."""
    about = json.loads(files("fleetlab.gpu.stacks").joinpath("isolation.json").read_text("utf-8"))
    return {(record["mode"], record["guarantee"]): record for record in about["records"]}


def measured_mode(spec: Spec) -> str:
    """The measured mode that a spec corresponds to: MPS with limits for every tenant is one of its own."""
    limited = bool(spec.tenants) and all(share.percent or share.memory_mib for share in spec.tenants)
    return "mps-limited" if spec.mode == "mps" and limited else spec.mode


# --- what a spec guarantees to its tenants ---------------------------------------------------------------------------


MEASUREMENTS = "docs/measurements/sharing.md"
# In order of strength; a stack that gives less than requested loses the guarantee.
STRENGTHS = (
    "none",
    "by consent",
    "by placement",
    "on average",
    "by a library",
    "by the driver",
    "by the hardware",
    "own GPU",
)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One guarantee: how strongly it was requested, and how strongly it is kept."""

    guarantee: str
    requested: str
    kept: str
    why: str
    measured: str  # where, or "not measured"

    @property
    def lost(self) -> bool:
        """Whether it is kept less strongly than requested."""
        return STRENGTHS.index(self.kept) < STRENGTHS.index(self.requested)


def guarantees_of(spec: Spec, held: Spec, stack: str) -> list[Guarantee]:
    """Each guarantee, as the spec requests it and as the stack keeps it."""
    guarantees = []
    for guarantee, strength in GUARANTEES.items():
        kept, why = _strength_kept(held, stack, guarantee)
        requested = strength(spec)
        if not why and STRENGTHS.index(kept) < STRENGTHS.index(requested):
            why = "this stack cannot express it"
        guarantees.append(Guarantee(guarantee, requested, kept, why, _measured(held, guarantee)))
    return guarantees


def _measured(held: Spec, guarantee: str) -> str:
    """Where it was measured: by a probe of isolation, or in a suite."""
    if (measured_mode(held), guarantee) in isolation_records():
        return f"{PAGE}#{guarantee.replace(' ', '-')}"
    return MEASURED.get((guarantee, held.mode), "not measured")


def _strength_kept(held: Spec, stack: str, guarantee: str) -> tuple[str, str]:
    """How strongly it is kept, and why if that is not obvious."""
    strength = GUARANTEES[guarantee](held)
    if stack in ("device-plugin", "gpu-operator") and held.mode == "mps" and guarantee == "memory cap":
        return "by the driver", EVEN
    if stack == "kueue" and held.mode == "mig":
        return "by placement", UNCUT
    weaker = about_stack(stack).get("weaker", {}).get(guarantee)
    if stack == "dra" and held.mode == "mps" and not held.equal and guarantee != "fault isolation":
        weaker = ("by consent", LARGEST)
    shared = held.mode in ("mps", "time-slicing")
    if weaker and shared and STRENGTHS.index(strength) > STRENGTHS.index(weaker[0]):
        return weaker[0], weaker[1]
    return strength, ""


# --- strength of a spec without any stack ----------------------------------------------------------------------------


def _by_mode(spec: Spec) -> str | None:
    if spec.mode == "exclusive":
        return "own GPU"
    return "by the hardware" if spec.mode == "mig" and spec.turns == 1 else None


def _memory(spec: Spec) -> str:
    every = bool(spec.tenants) and all(share.memory_mib for share in spec.tenants)
    return _by_mode(spec) or ("by the driver" if every else "none")


def _compute(spec: Spec) -> str:
    every = bool(spec.tenants) and all(share.percent for share in spec.tenants)
    return _by_mode(spec) or ("by the driver" if every else "none")


def _faults(spec: Spec) -> str:
    # Under time slicing each tenant has its own context; under MPS a fatal fault of one client ends all of its server.
    return _by_mode(spec) or ("none" if spec.mode == "mps" else "by the driver")


def _fairness(spec: Spec) -> str:
    # Time slicing is fair; MPS is so only with limits.
    return _by_mode(spec) or (_compute(spec) if spec.mode == "mps" else "by the driver")


GUARANTEES = {"memory cap": _memory, "compute cap": _compute, "fault isolation": _faults, "fairness": _fairness}

# Where a stack keeps a guarantee in another way than its record in `stacks.toml` says.
EVEN = "the plugin's daemon gives each client total/replicas, whatever was asked for"
LARGEST = "the daemon holds all to the largest limit; a tenant's own is in its environment, and it may change that"
UNCUT = "a quota counts instances, and cuts no GPU: they hold where mig-parted or the operator has cut one so"
MEASURED = {
    ("compute cap", "mps"): f"{MEASUREMENTS}#parts-of-the-sms",
    ("compute cap", "mig"): "docs/measurements/slowdown.md#slices-mig-predicted",
    ("fairness", "time-slicing"): f"{MEASUREMENTS}#time-slicing",
    ("fairness", "mps"): f"{MEASUREMENTS}#mps-5050",
    ("fairness", "mig"): "docs/measurements/slowdown.md#slices-mig-predicted",
}


LIMITS = {"percent": "percent", "memory_mib": "memory", "priority": "priority"}
# Names of objects are no loss of a limit.
NAMES = ("name", "namespace", "image", "queue", "node", "gpu")


@dataclass(frozen=True, slots=True)
class Loss:
    """A part of a spec that the stack does not keep as requested."""

    part: str
    requested: str
    kept: str
    why: str


@dataclass(frozen=True, slots=True, repr=False)
class EmitResult(Result):
    """A file for a stack, the spec that it keeps, and what is lost."""

    stack: str
    text: str
    spec: Spec
    kept: Spec
    losses: tuple[Loss, ...]
    guarantees: tuple[Guarantee, ...]
    provenance: Provenance

    def summary(self) -> list[Estimate]:
        """Number of losses."""
        lost = sum(one.lost for one in self.guarantees)
        return [Estimate.exact("parts lost", len(self.losses)), Estimate.exact("guarantees lost", lost)]

    def tables(self) -> dict[str, pl.DataFrame]:
        """Lost parts, guarantees, and the file."""
        lost = dict.fromkeys(("part", "requested", "kept", "why"), pl.String)
        rows = [asdict(one) | {"lost": one.lost, "why": one.why or None} for one in self.guarantees]
        columns = ("guarantee", "requested", "kept", "lost", "why", "measured")
        return {
            "lost": pl.DataFrame([asdict(one) for one in self.losses], schema=lost),
            "guarantees": pl.DataFrame(rows, schema_overrides={"why": pl.String}).select(columns),
            "file": pl.DataFrame({"stack": [self.stack], "text": [self.text]}),
        }


def emit(spec: Spec, *, to: str, source: str = "spec") -> EmitResult:
    """Write `spec` in the format of the stack `to`."""
    if to not in BY_NAME:
        raise BenchError(f"unknown format: `{to}`", hint=f"there are {', '.join(sorted(BY_NAME))}")
    stack = BY_NAME[to]
    kept = stack.hold(spec)
    return EmitResult(
        to,
        stack.write(kept),
        spec,
        kept,
        losses(spec, kept, to),
        tuple(guarantees_of(spec, kept, to)),
        Provenance("share emit", source, {"to": to}),
    )


def losses(spec: Spec, held: Spec, to: str) -> tuple[Loss, ...]:
    """Parts in which the kept spec differs from the requested one; names come last."""
    why = about_stack(to)
    lost = []
    if len(spec.tenants) != len(held.tenants):
        lost.append(Loss("tenants", str(len(spec.tenants)), str(len(held.tenants)), why.get("tenants", "")))
    for limit, part in LIMITS.items():
        requested, kept = _limit_text(spec.tenants, limit), _limit_text(held.tenants, limit)
        if requested != kept:
            lost.append(Loss(limit, requested, kept, why.get(part, "")))
    ordered = sorted((f.name for f in fields(Spec) if f.name != "tenants"), key=lambda name: name in NAMES)
    for name in ordered:
        requested, kept = _word(getattr(spec, name)), _word(getattr(held, name))
        if requested != kept:
            lost.append(Loss(name, requested, kept, why.get(name, "")))
    return tuple(lost)


def _limit_text(tenants: tuple[Share, ...], limit: str) -> str:
    values = [getattr(share, limit) for share in tenants]
    texts = ["none" if value is None else str(value) for value in (values[:1] if len(set(values)) == 1 else values)]
    return ", ".join(texts) or "none"


def _word(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return ", ".join("=".join(one) if isinstance(one, tuple) else str(one) for one in value)
    return str(value)
