"""Rules for a spec itself: valid, but perhaps not intended."""

from __future__ import annotations

from collections.abc import Iterator

from fleetlab.stacks.gpu_models import GpuModel
from fleetlab.stacks.rules.finding import Finding
from fleetlab.stacks.spec import Spec


def check(spec: Spec, gpu: GpuModel | None) -> Iterator[Finding]:
    """Check the sums of its limits."""
    model = gpu or spec.model
    memories = [share.memory_mib for share in spec.tenants if share.memory_mib]
    if model is not None and sum(memories) > model.memory_mib:
        what = f"limits of {sum(memories)} MiB in total, but {model.name} has {model.memory_mib}"
        yield Finding(
            "SP01", "warning", "memory_mib", what, "less each, or fewer tenants: else some fail when it is full"
        )
    percents = [share.percent for share in spec.tenants if share.percent]
    if spec.mode == "mps" and sum(percents) > 100:
        what = f"{sum(percents)} % of the SMs in total: tenants overlap on some SMs"
        yield Finding("SP02", "note", "percent", what, "at most 100 % in total avoids interference on SMs")
    if spec.mode == "mps" and len(percents) < len(spec.tenants) > 1:
        what = "MPS without percent: the tenant with more thread blocks wins; inference beside a training kept 0.26"
        yield Finding("SP03", "note", "percent", what, "percent for each (docs/measurements/sharing.md#mps-5050)")
    if spec.mode == "time-slicing" and (memories or percents):
        what = "time slicing has no limits: hami, volcano and kai enforce some, the others none"
        yield Finding("SP04", "note", "mode", what, "`fleetlab share emit` lists what is lost")
