"""A process that compiles the rules of the simulator before somebody asks for them, one after the other.

Compiled code is kept on disk, so that the processes which work for visitors load it. It prints a line of JSON for each
rule that is left, and ends. Where all were compiled before, it says so at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from fleetlab.core.catalog import BACKFILLS, ORDERS, SHARINGS

LATER = 5  # added to its niceness: visitors come first, but they may wait for what it compiles


def rules() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rules by name, each with the words that use it: the most common first.

    >>> [name for name, _ in rules()][:3]
    ['backfill greedy', 'backfill easy', 'backfill none']
    """
    for name in sorted(BACKFILLS.names, key=lambda name: (name == "conservative", name not in ("greedy", "easy"))):
        yield f"backfill {name}", {"backfill": name}
    dynamic = [order.name for order in ORDERS if order.dynamic]
    for name in sorted(ORDERS.names, key=lambda name: (name != "fair", name not in dynamic)):
        yield f"order {name}", {"order": name}
    for backfill in ("easy", "none"):
        yield f"order fair with backfill {backfill}", {"order": "fair", "backfill": backfill}
    for sharing in SHARINGS:
        yield f"sharing {sharing.name}", {"sharing": sharing.name}
    yield "preemption", {"preemption": True}
    yield "quota", {"quota": 16}
    yield "node events", {"events": '[{"event":"faults","mtbf":86400,"mttr":600}]'}


def main() -> None:
    """Compile what was not compiled yet."""
    mark = _mark()
    if mark.exists():
        _print([])
        return
    os.nice(LATER)
    waiting = dict(rules())
    while waiting:
        _print(list(waiting))
        simulate_two_jobs(waiting.pop(next(iter(waiting))))
    mark.touch()
    _print([])


def _print(names: list[str]) -> None:
    print(json.dumps({"left": names}), flush=True)


def simulate_two_jobs(words: dict[str, Any]) -> None:
    """Simulate two jobs by some rules, with the tables that the page shows: what that takes is compiled then."""
    import polars as pl

    from fleetlab.core import Cluster, FleetlabError, Workload
    from fleetlab.sim import simulate

    jobs = pl.DataFrame({"submit": [0.0, 1.0], "runtime": 1.0, "gpu_milli": 1000, "user": ["a", "b"]})
    two = Workload.of(jobs, source="warm")
    with suppress(FleetlabError):  # a rule that these two jobs cannot use: whoever asks for it compiles it
        simulate(two, Cluster.uniform(1, 1), **words).tables()


def _mark() -> Path:
    """Return the file that says that these sources are compiled."""
    import numba

    from fleetlab.sim.jit import PACKAGES, ROOT, cache_folder

    root = ROOT.parent
    files = sorted(chain(*((root / name).rglob("*.py") for name in (*PACKAGES, "core/catalog"))))
    text = b"".join(path.read_bytes() for path in files) + numba.__version__.encode()
    return cache_folder("sim.heap") / f"rules-{sha256(text).hexdigest()[:12]}"


if __name__ == "__main__":
    main()
