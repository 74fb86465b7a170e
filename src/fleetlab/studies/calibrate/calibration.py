"""Calibrate a scenario: what a log recorded against what is simulated, and what closes the gap."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Estimate, Figure, Provenance, Scenario, TraceError, Words, WorkloadError, toml
from fleetlab.core.censoring import COMPLETE
from fleetlab.core.coverage import Coverage
from fleetlab.core.files import atomic_write
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import FieldsResult
from fleetlab.core.scenario import ScenarioLike
from fleetlab.core.words import BUILTIN, EVENT, WORDS
from fleetlab.sim import simulate
from fleetlab.stats import Floats
from fleetlab.studies.calibrate.findings import findings, first_line, statement
from fleetlab.studies.calibrate.fit import simulated_starts, starts_of
from fleetlab.studies.calibrate.gaps import AFTER, BEFORE, Gaps
from fleetlab.studies.calibrate.hidden import LONG
from fleetlab.studies.calibrate.identifiable import Evidence, identifiable
from fleetlab.studies.calibrate.recorded import Recorded
from fleetlab.studies.calibrate.search import Fitted, fit_scenario

FIT = 0.6  # of the jobs
LEAST = 20  # jobs of a part
FILES = {"trace", "cluster"}  # words that name files
FITTED, HELD_OUT = "fitted", "held out"
BY_SLURM = "as given, the site's Slurm is simulated; what is fitted are the event-driven rules that are closest to it"


@dataclass(frozen=True, repr=False)
class Calibration(FieldsResult):
    """Recorded against simulated waits before and after calibration, and the calibrated scenario.

    `scenario` is None where the log has nothing to calibrate by; its findings then say why.
    """

    scenario: Scenario | None = None

    def save(self, path: Path | str) -> Path:
        """Write the calibrated scenario to a TOML file, which `Scenario.of` and every command take like a trace.

        Parameters
        ----------
        path
            The file.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        WorkloadError
            If there is no calibrated scenario: the findings say why.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> calibrated = Calibration(Provenance("calibrate", "mine"), scenario=Scenario.of("builtin:200", latency=5))
        >>> with TemporaryDirectory() as folder:
        ...     Scenario.of(calibrated.save(f"{folder}/mine.toml"))
        <Scenario builtin:200: fifo/greedy, latency 5>

        """
        path = Path(path)
        if self.scenario is None:
            msg = f"no calibrated scenario to save: {self.findings[1]}"
            raise WorkloadError(msg)
        words = tomllib.loads(self.scenario.to_toml())
        for name in FILES & words.keys():
            if words[name].split(":")[0] != BUILTIN:  # files are looked for beside the scenario
                words[name] = os.path.relpath(words[name], path.parent)
        atomic_write(path, toml.dumps(words))
        return path


def calibrate(
    source: ScenarioLike,
    cluster: Cluster | None = None,
    *,
    fit: float = FIT,
    progress: Progress = silent,
    **words: Unpack[Words],
) -> Calibration:
    """Compare simulated starts with those that the log recorded, and fit what closes the gap.

    Parameters
    ----------
    source
        What builds the scenario, as `Scenario.of` takes it.
    cluster
        The nodes, in place of those of the trace.
    **words
        Words of the scenario, such as `order="sjf"` or `load=1.2`.
    fit
        The share of the jobs, by submission, on which latency, policy, hidden nodes and quota are fitted; the others
        judge them (default: 0.6).
    progress
        Called as simulations are done.

    Returns
    -------
    Calibration
        Findings, the error of simulated waits before and after, and the calibrated `scenario` (None: the findings
        say why there is none).

    Raises
    ------
    TraceError
        If the trace cannot be opened, or has no cluster.
    WorkloadError
        If `fit` is not between 0 and 1, or a load, window, latency or end is given: a log is calibrated as recorded.

    Examples
    --------
    >>> import fleetlab
    >>> fleetlab.calibrate("builtin:200").findings[0]
    '181 of 200 jobs are compared, 99 % of the GPU-hours (19 without a run time, 1 without a start).'

    """
    scenario = given = Scenario.of(source, cluster, **words)
    if scenario.trace.scheduler is not None:  # which rules are closest is asked of the event-driven ones
        scenario = scenario.replace(scheduler=EVENT)
    _check(scenario, fit)
    log, nodes = Recorded(scenario.workload, _told(scenario)), _cluster(scenario)
    evidence = Evidence.of(log, nodes)
    settings = scenario.words() if nodes else {"trace": scenario.data.name or scenario.workload.source}
    provenance = Provenance("calibrate", scenario.workload.source, settings | {"fit": fit}, scenario.seed)
    jobs = int(fit * len(log))
    if evidence.obstacle() or min(log.known[:jobs].sum(), log.known[jobs:].sum()) < LEAST:
        return _statement(provenance, log, evidence, scenario.coverage)
    progress("simulating the log under other settings", 0, 0.0)
    as_given = simulate(given)
    before = starts_of(as_given.world, as_given.played, len(log))
    evidence = replace(evidence, simulated=int((before - log.submit > LONG).sum()))
    scarce, roomy = evidence.idle() is None, evidence.roomy()
    fitted = fit_scenario(scenario, log, jobs, progress, scarce=scarce, roomy=roomy)
    calibrated = scenario.replace(**fitted.words)
    starts = {BEFORE: before, AFTER: simulated_starts(calibrated)}
    result = _calibration(provenance, log, evidence, fitted, starts, calibrated)
    return replace(result, coverage=as_given.coverage)


def _check(scenario: Scenario, fit: float) -> None:
    if not 0 < fit < 1:
        msg = f"the share of the jobs to fit on is between 0 and 1: {fit:g}"
        raise WorkloadError(msg, hint="fit=0.6")
    for name in ("load", "until", "window", "latency"):
        if getattr(scenario, name) != WORDS[name].default:
            msg = f"a log is calibrated as it was recorded: leave `{name}` out"
            raise WorkloadError(msg, hint="change it in the calibrated scenario")


def _told(scenario: Scenario) -> NDArray[np.bool_]:
    """Return of which jobs the log tells the run time; those of others are held or drawn."""
    return (scenario.run_times.origin == COMPLETE).to_numpy()


def _partitions(scenario: Scenario) -> pl.Series | None:
    """Return the partition of each job, where the log tells them."""
    series = scenario.trace.series.get("partition")
    if series is None:
        return None
    jobs = scenario.workload.frame.select("job")
    return jobs.join(series.collect(), on="job", how="left", maintain_order="left")["partition"].fill_null("")


def _cluster(scenario: Scenario) -> Cluster | None:
    try:
        return scenario.cluster
    except TraceError:  # the log has none, and none was given
        return None


def _statement(provenance: Provenance, log: Recorded, evidence: Evidence, covered: Coverage) -> Calibration:
    """Say why there is nothing to calibrate by."""
    why = evidence.obstacle() or f"fewer than {LEAST} jobs to fit on, or to judge by, have a start and a run time"
    estimates = (Estimate.exact("jobs with a recorded start and a run time", evidence.compared),)
    frames = {"what this log can tell": identifiable(evidence, None)}
    return Calibration(
        provenance, (first_line(log, log.known), *statement(why, log)), estimates, frames, coverage=covered
    )


def _calibration(
    provenance: Provenance,
    log: Recorded,
    evidence: Evidence,
    fitted: Fitted,
    starts: Mapping[str, Floats],
    scenario: Scenario,
) -> Calibration:
    held_out = np.arange(len(log)) >= fitted.jobs
    parts = {HELD_OUT: Gaps.of(log, held_out, starts), FITTED: Gaps.of(log, ~held_out, starts)}
    judged = parts[HELD_OUT]
    questions = identifiable(evidence, fitted)
    frames = {
        "waits": pl.concat([gaps.overall(part) for part, gaps in parts.items()], how="vertical_relaxed"),
        "policies": fitted.identification.table,
        "start-up latency": fitted.latency,
        "nodes": fitted.pools.table.with_columns(
            pl.Series("hidden nodes", [fitted.nodes[t] for t in fitted.pools.table["gpu_type"]], dtype=pl.Int64)
        ).rename({"gpu_type": "GPU type", "gpus": "GPUs"}),
        "limits of users": fitted.limits,
        **judged.by_class(_partitions(scenario)),
        "what this log can tell": questions,
    }
    sentences = findings(log, evidence, fitted, judged, questions)
    estimates = [
        *(Estimate(f"{side} mean wait, held out", *mean, "s") for side, mean in judged.means().items()),
        *(Estimate(f"error of the {side} mean wait", *judged.error(side), "s") for side in (BEFORE, AFTER)),
        Estimate.exact("jobs held out", len(judged.rows)),
    ]
    notes = (
        *((BY_SLURM,) if scenario.trace.slurm is not None else ()),
        "GPUs are held during the start-up latency, and the job still waits: both are in the simulated waits",
        "log-likelihood: errors of logarithms of waits follow a Laplace law; choices: at each recorded start, whether "
        "the job was the first in the order among those that would have fitted in its place",
        "random placement is not tried: its starts depend on a seed that no log has",
    )
    return Calibration(provenance, sentences, estimates, frames, _figures(judged), notes, scenario=scenario)


def _figures(judged: Gaps) -> dict[str, Figure]:
    means = judged.means()
    rows = [(side, *mean) for side, mean in means.items()]
    frame = pl.DataFrame(rows, schema=["x", "y", "low", "high"], orient="row")
    alt = "; ".join(f"{side}: {mean.value:.0f} s" for side, mean in means.items())
    bars = Figure("Mean wait of the held-out jobs", "bar", frame, "", "mean wait, s", alt)
    waits = {"recorded": judged.recorded} | dict(judged.waits)
    return {"mean wait, recorded and simulated": bars, "waits, recorded and simulated": _distribution(waits)}


def _distribution(waits: Mapping[str, Floats]) -> Figure:
    longest = max(float(w.max(initial=10.0)) for w in waits.values())
    at = np.geomspace(1.0, max(longest, 10.0), 200)
    parts = [
        pl.DataFrame({"x": at, "y": np.searchsorted(np.sort(w), at, side="right") / max(len(w), 1)}).with_columns(
            series=pl.lit(side)
        )
        for side, w in waits.items()
    ]
    alt = "; ".join(f"{side}: {np.mean(w <= 60):.0%} wait at most 1 min" for side, w in waits.items())
    return Figure(
        "Waits of the held-out jobs", "line", pl.concat(parts), "wait, s", "fraction of jobs", alt, log_x=True
    )
