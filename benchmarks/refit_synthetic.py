"""Look again for the multipliers of every law, after one was changed: `python -m benchmarks.refit_synthetic`."""

from __future__ import annotations

import json
from pathlib import Path

import fleetlab.traces.synthesize
from fleetlab.traces.synthesize.joint_law import multipliers
from fleetlab.traces.synthesize.requests import shapes
from fleetlab.traces.synthesize.run_times import held_a_job, pooled, run_times
from fleetlab.traces.synthesize.usage import REQUESTED, usage_law
from fleetlab.traces.synthesize.wait_sampling import margins, tilts
from fleetlab.traces.synthesize.waits import wait_law


def refit() -> dict[str, list[float]]:
    """Fit every law from nothing, and once more from there, so that a look at them gains nothing."""
    multipliers().clear()
    for _ in range(2):
        _forget()
        shapes()
        run_times()
        wait_law()
        tilts()
        for what in REQUESTED:
            usage_law(what)
    return multipliers()


def restore() -> None:
    """Go back to the multipliers on disk, and to the laws that they make."""
    multipliers.cache_clear()
    _forget()


def _forget() -> None:
    for law in (shapes, pooled, run_times, held_a_job, wait_law, margins, tilts, usage_law):
        law.cache_clear()


if __name__ == "__main__":
    there = Path(fleetlab.traces.synthesize.__path__[0], "multipliers.json")
    there.write_text(json.dumps(refit(), indent=0) + "\n", "utf-8")
