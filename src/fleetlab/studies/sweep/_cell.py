"""One cell, played: jobs drawn, nodes edited, simulated, measured. This runs in a worker, on this machine or another.

Whatever decides the numbers is in the question, so that the same question has the same answer everywhere, bit for bit.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, FleetlabError, Slowdown, Workload
from fleetlab.studies.believed import apart
from fleetlab.studies.sweep._draw import redrawn
from fleetlab.studies.sweep._nodes import edited
from fleetlab.studies.sweep._packed import Packed

if TYPE_CHECKING:
    from fleetlab.sim import SimResult

Tables = Mapping[str, Packed]  # of a source
JOBS, NODES = "jobs", "nodes"
KEPT = 2  # draws that a worker keeps: cells of one draw come in a row


@dataclass(slots=True)
class Desk:
    """What a worker has at hand: files that rules name, the tables of sources, and the draws it made last."""

    fetch: Callable[[str], Tables]  # the tables of a source, by its digest
    folder: TemporaryDirectory[str] | None = None
    sources: dict[str, Tables] = field(default_factory=dict)
    draws: dict[tuple[Any, ...], pl.DataFrame] = field(default_factory=dict)

    @classmethod
    def laid(cls, fetch: Callable[[str], Tables], texts: Mapping[str, str]) -> Desk:
        """With the files that the study names, and the modules of own policies where they are imported from."""
        if not texts:
            return cls(fetch)
        folder = TemporaryDirectory(prefix="fleetlab-")
        for name, text in texts.items():
            (Path(folder.name) / name).write_text(text, "utf-8")
        sys.path.append(str(Path.cwd()))  # own policies may import what lies beside them
        os.chdir(folder.name)
        return cls(fetch, folder)

    def tables(self, digest: str) -> Tables:
        """Of a source, fetched once."""
        if digest not in self.sources:
            self.sources[digest] = self.fetch(digest)
        return self.sources[digest]

    def jobs(self, ask: Mapping[str, Any]) -> pl.DataFrame:
        """The jobs of a source as a seed draws them."""
        name = (ask["source"], ask["draw"], ask["seed"])
        if name not in self.draws:
            while len(self.draws) >= KEPT:
                del self.draws[next(iter(self.draws))]
            self.draws[name] = _drawn(self.tables(ask["source"]), ask)
        return self.draws[name]


def _drawn(tables: Tables, ask: Mapping[str, Any]) -> pl.DataFrame:
    if ask["draw"] == "new":
        from fleetlab.traces import synthesize

        made = synthesize("pai2020", jobs=ask["fresh"], seed=ask["seed"])
        return made.workload.frame.drop("job", "start", "end")
    if ask["draw"] == "none":
        return tables[JOBS].frame()
    rows, submit = redrawn(np.asarray(tables[JOBS].columns["submit"]), ask["seed"])
    return tables[JOBS].frame(rows).with_columns(submit=pl.Series(submit))


def play(ask: Mapping[str, Any], desk: Desk) -> dict[str, Any]:
    """Answer one question; what a user can mend is an answer too."""
    begin = perf_counter()
    try:
        return _played(ask, desk, begin)
    except (MemoryError, OSError):
        raise  # says more about the machine than about the cell: somebody else may try again
    except FleetlabError as e:
        return {"failed": str(e), "hint": e.hint, "seconds": {"draw": 0.0, "all": perf_counter() - begin}}
    except Exception as e:
        # A policy of one's own may do anything: one cell that fails must not end the others.
        said = f"{type(e).__name__}: {e}".splitlines()[0]
        return {"failed": said, "hint": None, "seconds": {"draw": 0.0, "all": perf_counter() - begin}}


def _played(ask: Mapping[str, Any], desk: Desk, begin: float) -> dict[str, Any]:
    from fleetlab.sim import simulate

    cpu = process_time()
    # At a load of 2 the same jobs come in half the time.
    jobs = desk.jobs(ask).with_columns(pl.col("submit") / ask["load"])
    nodes = edited(desk.tables(ask["source"])[NODES].frame(), ask["nodes"])
    drawn = perf_counter()
    rules = opened(ask["rules"], jobs, lambda word: Path(filed(word, ask["texts"][word])))
    work = Workload.of(apart(jobs, {})[0], source=ask["trace"])
    run = simulate(work, Cluster.of(nodes, source=ask["nodes"]), **rules, seed=ask["seed"])
    simulated = perf_counter()
    found = measured(run)
    times = run.jobs.select("job", "start", "end").fill_null(-1.0)
    schedule = sha256(b"".join(c.to_numpy().tobytes() for c in times.get_columns())).hexdigest()[:32]
    ended = perf_counter()
    seconds = {"draw": drawn - begin, "simulate": simulated - drawn, "measure": ended - simulated, "all": ended - begin}
    return {
        "metrics": {name: value for name, (value, _) in found.items()},
        "units": {name: unit for name, (_, unit) in found.items()},
        "schedule": schedule,
        "seconds": seconds | {"cpu": process_time() - cpu},
    }


def measured(run: SimResult) -> dict[str, tuple[float | None, str]]:
    """The numbers that are kept of a run, with their units: its summary, and what jobs waited for."""
    found = {e.metric: (float(e.value) if math.isfinite(e.value) else None, e.unit) for e in run.summary()}
    found["jobs refused"] = (float(run.refused.height), "")
    if ran := run.ledger.height:
        reasons = [name for name in run.ledger.columns if name != "job"]
        found |= {f"mean wait for {r}": (float(run.ledger[r].sum()) / ran, "s") for r in reasons}
    return found


def filed(word: str, digest: str) -> str:
    """The name under which a worker has a file that a rule names.

    >>> filed("my/faults.toml", "ab12")
    'ab12.toml'
    """
    return f"{digest}{Path(word).suffix}"


def opened(told: Mapping[str, Any], jobs: pl.DataFrame, file: Callable[[str], Path]) -> dict[str, Any]:
    """The words of a case as `simulate` takes them: files are opened, a series of the trace becomes a column."""
    from fleetlab.core.events import from_toml

    rules = dict(told)
    events, speed = rules.pop("events"), rules.pop("speed")
    if events is not None:
        rules["events"], rules["recovery"] = from_toml(file(events))
    if speed is not None:
        rules["speed"] = Slowdown.load(file(speed)) if speed.endswith(".json") else Slowdown.named(speed)
    return apart(jobs, rules)[1]
