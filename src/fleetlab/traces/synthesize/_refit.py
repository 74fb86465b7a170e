"""Look again for the multipliers of every law, after one was changed: `python -m fleetlab.traces.synthesize._refit`."""

from __future__ import annotations

import json
from pathlib import Path

from fleetlab.traces.synthesize._joint import multipliers
from fleetlab.traces.synthesize._requests import shapes
from fleetlab.traces.synthesize._runtimes import run_times
from fleetlab.traces.synthesize._usage import ASKED, usage_law
from fleetlab.traces.synthesize._waits import wait_law


def refit() -> dict[str, list[float]]:
    """Fit every law from nothing, and once more from there, so that a look at them gains nothing."""
    multipliers().clear()
    for _ in range(2):
        for law in (shapes, run_times, wait_law, usage_law):
            law.cache_clear()
        shapes()
        run_times()
        wait_law()
        for what in ASKED:
            usage_law(what)
    return multipliers()


if __name__ == "__main__":
    there = Path(__file__).with_name("_multipliers.json")
    there.write_text(json.dumps(refit(), indent=0) + "\n", "utf-8")
