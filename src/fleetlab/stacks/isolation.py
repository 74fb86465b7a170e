"""What was measured of isolation, by mode and guarantee; the file is made from the probes' cells, never by hand.

`python -m benchmarks.isolation FOLDER` writes it from the folder of `fleetlab bench isolation`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fleetlab.stacks.spec import Spec

PAGE = "docs/isolation.md"


@dataclass(frozen=True, slots=True)
class IsolationRecord:
    """How a mode kept a guarantee: kept, partly or lost, with the numbers and the cells behind them."""

    mode: str
    guarantee: str
    verdict: str
    says: str
    cells: tuple[str, ...]

    @property
    def link(self) -> str:
        """Where the measurement is described."""
        return f"{PAGE}#{self.guarantee.replace(' ', '-')}"


@cache
def isolation_records() -> dict[tuple[str, str], IsolationRecord]:
    """All records, by mode and guarantee."""
    about = json.loads(files("fleetlab.stacks").joinpath("isolation.json").read_text("utf-8"))
    records = [IsolationRecord(**one | {"cells": tuple(one["cells"])}) for one in about["records"]]
    return {(record.mode, record.guarantee): record for record in records}


def measured_mode(spec: Spec) -> str:
    """The measured mode that a spec corresponds to: MPS with limits for every tenant is one of its own."""
    limited = bool(spec.tenants) and all(share.percent or share.memory_mib for share in spec.tenants)
    return "mps-limited" if spec.mode == "mps" and limited else spec.mode
