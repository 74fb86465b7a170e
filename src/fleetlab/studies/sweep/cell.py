"""Run one cell: open its trace, resample it, simulate, and measure. This runs in a worker, here or on another machine.

Everything that decides the numbers is in the question, so the same question has the same answer everywhere, bit for
bit.
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
from numpy.typing import NDArray

from fleetlab.core import FleetlabError, Scenario, Trace, Workload
from fleetlab.core.catalog import ESTIMATES
from fleetlab.core.replicas import perturbed
from fleetlab.sim import simulate

if TYPE_CHECKING:
    from fleetlab.sim import SimResult

Question = Mapping[str, Any]
Sample = tuple[Workload, NDArray[np.int64] | None]  # the jobs of a seed, and the rows of the trace that they are
SAMPLES = 2  # that a worker keeps: cells with the same jobs come one after the other


@dataclass(slots=True)
class CellInputs:
    """What a worker keeps from cell to cell: open traces, estimates, and the latest samples."""

    traces: Mapping[str, Trace]  # by the digest of its source
    folder: TemporaryDirectory[str] | None = None
    estimates: dict[tuple[str, str], Any] = field(default_factory=dict)
    samples: dict[tuple[Any, ...], Sample] = field(default_factory=dict)

    @classmethod
    def with_files(cls, traces: Mapping[str, Trace], texts: Mapping[str, str]) -> CellInputs:
        """Write the files that scenarios name, and modules of own policies, where they are looked for."""
        if not texts:
            return cls(traces)
        folder = TemporaryDirectory(prefix="fleetlab-")
        for name, text in texts.items():
            (Path(folder.name) / name).write_text(text, "utf-8")
        sys.path.append(str(Path.cwd()))  # own policies may import modules beside them
        os.chdir(folder.name)
        return cls(traces, folder)

    def scenario(self, question: Question) -> Scenario:
        """Return the scenario of a cell, with the jobs of its seed."""
        source, seed = question["source"], question["seed"]
        base = question.get("scenario") or Scenario.of(self.traces[source], **question["run"])
        estimate = base.policy.estimate
        if estimate not in ESTIMATES:
            if (source, estimate) not in self.estimates:
                self.estimates[source, estimate] = base.estimate
            base = base.replace(estimate=self.estimates[source, estimate])
        if question["resample"] == "none":
            return base.replace(seed=seed)
        if question["resample"] == "nudge":
            return perturbed(base, seed + 1)
        return base.on(*self._sample(question)).replace(load=base.load, seed=seed, censored=base.censored)

    def _sample(self, question: Question) -> Sample:
        name = (question["source"], question["resample"], question["seed"])
        if name not in self.samples:
            while len(self.samples) >= SAMPLES:
                del self.samples[next(iter(self.samples))]
            self.samples[name] = _sample(self.traces[question["source"]].workload, question)
        return self.samples[name]


@dataclass(frozen=True, slots=True)
class CellService:
    """What a worker of a sweep does: it answers with the numbers of one cell after the other."""

    traces: Mapping[str, Trace]  # by the digest of their source
    texts: Mapping[str, str]  # of files that scenarios name; none in the process that has the files

    def open(self) -> Callable[[Question], dict[str, Any]]:
        """Load the simulator, and write the files."""
        inputs = CellInputs.with_files(self.traces, self.texts)
        return lambda question: run_cell(question, inputs)


def _sample(jobs: Workload, question: Question) -> Sample:
    if question["resample"] == "synthesize":
        from fleetlab.traces import synthesize

        return synthesize("pai2020", jobs=question["jobs"], seed=question["seed"]).workload, None
    rows, submit = jobs.resampled_rows(question["seed"])
    return jobs.take(rows, submit, f"resampled with seed {question['seed']}"), rows


def run_cell(question: Question, inputs: CellInputs) -> dict[str, Any]:
    """Answer one question; a mistake of the user is an answer too."""
    begin = perf_counter()
    try:
        return _run(question, inputs, begin)
    except (MemoryError, OSError):
        raise  # a problem of the machine, not of the cell: another worker may try again
    except FleetlabError as e:
        return {"failed": str(e), "hint": e.hint, "seconds": {"sample": 0.0, "all": perf_counter() - begin}}
    except Exception as e:
        # An own policy may raise anything: one cell that fails must not end the others.
        reason = f"{type(e).__name__}: {e}".splitlines()[0]
        return {"failed": reason, "hint": None, "seconds": {"sample": 0.0, "all": perf_counter() - begin}}


def _run(question: Question, inputs: CellInputs, begin: float) -> dict[str, Any]:
    cpu = process_time()
    scenario = inputs.scenario(question)
    sampled = perf_counter()
    result = simulate(scenario.replace(min_coverage=0.0))  # what is left out is a metric
    simulated = perf_counter()
    metrics = metrics_of(result)
    times = result.jobs.select("job", "start", "end").fill_null(-1.0)
    schedule = sha256(b"".join(c.to_numpy().tobytes() for c in times.get_columns())).hexdigest()[:32]
    end = perf_counter()
    seconds = {"sample": sampled - begin, "simulate": simulated - sampled, "measure": end - simulated}
    return {
        "metrics": {name: value for name, (value, _) in metrics.items()},
        "units": {name: unit for name, (_, unit) in metrics.items()},
        "schedule": schedule,
        "seconds": seconds | {"all": end - begin, "cpu": process_time() - cpu},
    }


def metrics_of(result: SimResult) -> dict[str, tuple[float | None, str]]:
    """Return the numbers that are kept of a run, with their units: its summary, and the mean wait by reason."""
    metrics = {e.metric: (float(e.value) if math.isfinite(e.value) else None, e.unit) for e in result.summary()}
    metrics["jobs left out"] = (float(result.refused.height), "")
    if jobs := result.ledger.height:
        reasons = [name for name in result.ledger.columns if name != "job"]
        metrics |= {f"mean wait for {r}": (float(result.ledger[r].sum()) / jobs, "s") for r in reasons}
    return metrics
