"""May these numbers be believed? Each gate says what was checked, and what broke it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fleetlab.bench.results.cells import Cell, grouped, timed
from fleetlab.bench.results.latency import LAG, lag_p99
from fleetlab.devices.nvml import BAD_REASONS

ANCHOR, CPU = 0.03, 0.8
Checks = Iterable[tuple[str, float, bool]]  # what, how far, and whether that is too far


def rows_gates(about: dict[str, Any], cells: Sequence[Cell]) -> Iterable[dict[str, Any]]:
    """One row a gate; `worst` is what came nearest to breaking it, or broke it most."""
    gates: dict[str, Checks] = {
        f"alone within {ANCHOR:.0%} in every block": _anchors(cells),
        "proved to be attached to MPS": _attached(cells),
        "clocks not held down by power or heat": _held_down(cells),
        f"sent within {1000 * LAG:g} ms at P99": _lags(cells),
        f"CPU below {CPU:.0%}": _cpu(cells, about.get("machine", {}).get("cores")),
    }
    says: dict[str, Callable[[float], str]] = {
        f"alone within {ANCHOR:.0%} in every block": lambda far: f"{far:.1%}",
        f"sent within {1000 * LAG:g} ms at P99": lambda far: f"{1000 * far:.3g} ms",
        f"CPU below {CPU:.0%}": lambda far: f"{far:.0%}",
    }
    for gate, checks in gates.items():
        yield _row(gate, list(checks), says.get(gate, lambda _: ""))


def _row(gate: str, checks: list[tuple[str, float, bool]], say: Callable[[float], str]) -> dict[str, Any]:
    broken = [check for check in checks if check[2]]
    what, far, _ = max(broken or checks, key=lambda check: check[1], default=("", 0.0, False))
    return {
        "gate": gate,
        "checked": len(checks),
        "broken": len(broken),
        "holds": None if not checks else not broken,
        "worst": f"{what} {say(far)}".strip() if checks and (broken or say(far)) else "",
    }


def _anchors(cells: Sequence[Cell]) -> Checks:
    """Each tenant alone, in every block of a stage, against its mean: what drifts more may have drifted in between."""
    alone = (c for c in cells if len(c["tenants"]) == 1 and not timed(c["tenants"][0]))
    for (stage, seat), blocks in grouped((c["stage"], c["tenants"][0]["seat"], c) for c in alone).items():
        rates = [c["tenants"][0]["rate"] for c in blocks]
        middle = sum(rates) / len(rates)
        if len(rates) > 1 and middle > 0:
            far = max(abs(rate / middle - 1) for rate in rates)
            yield f"{stage}/{seat}", far, far > ANCHOR


def _attached(cells: Sequence[Cell]) -> Checks:
    for c in cells:
        if c["mode"] == "mps" and c["tenants"] and all("attached" in t for t in c["tenants"]):
            apart = sum(not t["attached"] for t in c["tenants"])
            yield c["cell"], apart, apart > 0


def _held_down(cells: Sequence[Cell]) -> Checks:
    for c in cells:
        if c["gpu"]:
            yield c["cell"], c["gpu"].get("watts", 0.0), bool(c["gpu"]["reasons"] & BAD_REASONS)


def _lags(cells: Sequence[Cell]) -> Checks:
    for c in cells:
        if (lag := lag_p99(t for t in c["tenants"] if timed(t))) is not None:
            yield c["cell"], lag, lag >= LAG


def _cpu(cells: Sequence[Cell], cores: int | None) -> Checks:
    """All tenants together, of all cores; on an unknown number of cores nothing can be said."""
    for c in cells if cores else ():
        if c["tenants"]:
            used = sum(t.get("cpu", 0.0) for t in c["tenants"]) / (cores or 1)
            yield c["cell"], used, used >= CPU
