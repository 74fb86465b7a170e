"""Emit a spec in the format of a stack, and list what the stack cannot express."""

from __future__ import annotations

from dataclasses import dataclass, fields

import polars as pl

from fleetlab.core import Estimate, Provenance, Result
from fleetlab.devices.errors import BenchError
from fleetlab.sharing.modes import Share
from fleetlab.stacks.formats import BY_NAME
from fleetlab.stacks.guarantees import Guarantee, guarantees_of
from fleetlab.stacks.spec import Spec

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
        lost = {"part": pl.String, "requested": pl.String, "kept": pl.String, "why": pl.String}
        rows = [
            {
                "guarantee": one.guarantee,
                "requested": one.requested,
                "kept": one.kept,
                "lost": one.lost,
                "why": one.why or None,
                "measured": one.measured,
            }
            for one in self.guarantees
        ]
        return {
            "lost": pl.DataFrame(
                [(x.part, x.requested, x.kept, x.why) for x in self.losses], schema=lost, orient="row"
            ),
            "guarantees": pl.DataFrame(rows, schema_overrides={"why": pl.String}),
            "file": pl.DataFrame({"stack": [self.stack], "text": [self.text]}),
        }


def emit(spec: Spec, *, to: str, source: str = "spec") -> EmitResult:
    """Write `spec` in the format of the stack `to`."""
    if to not in BY_NAME:
        msg = f"unknown format: `{to}`"
        raise BenchError(msg, hint=f"there are {', '.join(sorted(BY_NAME))}")
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
    why = BY_NAME[to].why
    lost = []
    if len(spec.tenants) != len(held.tenants):
        lost.append(Loss("tenants", str(len(spec.tenants)), str(len(held.tenants)), why.get("tenants", "")))
    for limit, part in LIMITS.items():
        asked, kept = _limit_text(spec.tenants, limit), _limit_text(held.tenants, limit)
        if asked != kept:
            lost.append(Loss(limit, asked, kept, why.get(part, "")))
    ordered = sorted((f.name for f in fields(Spec) if f.name != "tenants"), key=lambda name: name in NAMES)
    for name in ordered:
        asked, kept = _word(getattr(spec, name)), _word(getattr(held, name))
        if asked != kept:
            lost.append(Loss(name, asked, kept, why.get(name, "")))
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
