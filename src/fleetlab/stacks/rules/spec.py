"""Traps of a spec itself: it is possible, and may still not be what is meant."""

from __future__ import annotations

from collections.abc import Iterator

from fleetlab.stacks.gpu_models import Model
from fleetlab.stacks.rules.finding import Finding
from fleetlab.stacks.spec import Spec


def check(spec: Spec, card: Model | None) -> Iterator[Finding]:
    """What its parts make together."""
    model = card or spec.model
    memories = [share.memory_mib for share in spec.tenants if share.memory_mib]
    if model is not None and sum(memories) > model.memory_mib:
        what = f"limits of {sum(memories)} MiB together, and a {model.name} has {model.memory_mib}"
        yield Finding(
            "SP01", "warning", "memory_mib", what, "less each, or fewer tenants: else some fail when it is full"
        )
    percents = [share.percent for share in spec.tenants if share.percent]
    if spec.mode == "mps" and sum(percents) > 100:
        what = f"{sum(percents)} % of the SMs together: tenants meet on some, and which is not said"
        yield Finding("SP02", "note", "percent", what, "at most 100 % together keeps them from waiting on each other")
    if spec.mode == "mps" and len(percents) < len(spec.tenants) > 1:
        what = "MPS without percent: whoever has more blocks wins; single images beside a training kept 0.26"
        yield Finding("SP03", "note", "percent", what, "percent for each (docs/measurements/sharing.md#mps-5050)")
    if spec.mode == "time-slicing" and (memories or percents):
        what = "time slicing itself has no limits: hami, volcano and kai hold some, the others none"
        yield Finding("SP04", "note", "mode", what, "`fleetlab share emit` says what is lost on the way")
