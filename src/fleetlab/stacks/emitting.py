"""A spec in the words of a stack, and what of it is lost there."""

from __future__ import annotations

from dataclasses import dataclass, fields

import polars as pl

from fleetlab.core import Estimate, Provenance, Result
from fleetlab.devices.errors import BenchError
from fleetlab.sharing.modes import Share
from fleetlab.stacks.formats import BY_NAME
from fleetlab.stacks.guarantees import Promise, promises
from fleetlab.stacks.spec import Spec

LIMITS = {"percent": "percent", "memory_mib": "memory", "priority": "priority"}
# What only names things is no loss of anything that was asked for.
NAMES = ("name", "namespace", "image", "queue", "node", "card")


@dataclass(frozen=True, slots=True)
class Loss:
    """A part of a spec that comes back otherwise than it was asked for."""

    part: str
    asked: str
    kept: str
    why: str


@dataclass(frozen=True, slots=True)
class Emitted(Result):
    """A file for a stack, what it holds of the spec, and what it does not."""

    stack: str
    text: str
    spec: Spec
    held: Spec
    losses: tuple[Loss, ...]
    promises: tuple[Promise, ...]
    provenance: Provenance

    def summary(self) -> list[Estimate]:
        """How much was lost."""
        lost = sum(one.lost for one in self.promises)
        return [Estimate.exact("parts lost", len(self.losses)), Estimate.exact("guarantees lost", lost)]

    def tables(self) -> dict[str, pl.DataFrame]:
        """What was lost of the spec, what is left of its guarantees, and the file."""
        lost = {"part": pl.String, "asked": pl.String, "kept": pl.String, "why": pl.String}
        rows = [
            {
                "guarantee": one.guarantee,
                "asked": one.asked,
                "kept": one.kept,
                "lost": one.lost,
                "why": one.why or None,
                "measured": one.measured,
            }
            for one in self.promises
        ]
        return {
            "lost": pl.DataFrame([(x.part, x.asked, x.kept, x.why) for x in self.losses], schema=lost, orient="row"),
            "guarantees": pl.DataFrame(rows, schema_overrides={"why": pl.String}),
            "file": pl.DataFrame({"stack": [self.stack], "text": [self.text]}),
        }

    def __repr__(self) -> str:
        return f"<Emitted {self.stack}: {len(self.text.splitlines())} lines, {len(self.losses)} parts lost>"


def emit(spec: Spec, *, to: str, source: str = "spec") -> Emitted:
    """Write `spec` in the format of the stack `to`."""
    if to not in BY_NAME:
        msg = f"no format by that name: `{to}`"
        raise BenchError(msg, hint=f"there are {', '.join(sorted(BY_NAME))}")
    stack = BY_NAME[to]
    held = stack.hold(spec)
    return Emitted(
        to,
        stack.write(held),
        spec,
        held,
        losses(spec, held, to),
        tuple(promises(spec, held, to)),
        Provenance("share emit", source, {"to": to}),
    )


def losses(spec: Spec, held: Spec, to: str) -> tuple[Loss, ...]:
    """Where what is held differs from what was asked; names come last."""
    why = BY_NAME[to].why
    found = []
    if len(spec.tenants) != len(held.tenants):
        found.append(Loss("tenants", str(len(spec.tenants)), str(len(held.tenants)), why.get("tenants", "")))
    for limit, part in LIMITS.items():
        asked, kept = _said(spec.tenants, limit), _said(held.tenants, limit)
        if asked != kept:
            found.append(Loss(limit, asked, kept, why.get(part, "")))
    ordered = sorted((f.name for f in fields(Spec) if f.name != "tenants"), key=lambda name: name in NAMES)
    for name in ordered:
        asked, kept = _word(getattr(spec, name)), _word(getattr(held, name))
        if asked != kept:
            found.append(Loss(name, asked, kept, why.get(name, "")))
    return tuple(found)


def _said(tenants: tuple[Share, ...], limit: str) -> str:
    values = [getattr(share, limit) for share in tenants]
    told = ["none" if value is None else str(value) for value in (values[:1] if len(set(values)) == 1 else values)]
    return ", ".join(told) or "none"


def _word(value: object) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return ", ".join("=".join(one) if isinstance(one, tuple) else str(one) for one in value)
    return str(value)
