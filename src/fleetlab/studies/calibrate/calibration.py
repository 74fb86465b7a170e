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
from fleetlab.core.words import SHIPPED, WORDS
from fleetlab.sim import simulate
from fleetlab.stats import Floats
from fleetlab.studies.calibrate.choice import CHOSEN_ON, FIT, HELD_OUT, Choice, Parts, choose
from fleetlab.studies.calibrate.findings import Evidence, findings, first_line, identifiable, statement
from fleetlab.studies.calibrate.hidden import LONG
from fleetlab.studies.calibrate.likelihood import starts_of
from fleetlab.studies.calibrate.recorded import AFTER, BEFORE, RecordedJobs, WaitErrors
from fleetlab.studies.calibrate.search import FitResult, fit_policy, fit_settings
from fleetlab.studies.eta.snapshot import estimate_note

SHARE = 0.6  # of the jobs, to fit on
LEAST = 20  # jobs of a part
FILES = {"trace", "cluster"}  # words that name files


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
            raise WorkloadError(f"no calibrated scenario to save: {self.findings[1]}")
        words = tomllib.loads(self.scenario.to_toml())
        for name in FILES & words.keys():
            if words[name].split(":")[0] not in SHIPPED:  # files are looked for beside the scenario
                words[name] = os.path.relpath(words[name], path.parent)
        atomic_write(path, toml.dumps(words))
        return path


def calibrate(
    source: ScenarioLike,
    cluster: Cluster | None = None,
    *,
    fit: float = SHARE,
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
        The share of the jobs, by submission, on which latency, policy, hidden nodes and quota are fitted, or settings
        of the site's scheduler; half of the others choose between what is fitted and the scenario as configured, and
        the last half judges the choice (default: 0.6).
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
    scenario = Scenario.of(source, cluster, **words)
    _check(scenario, fit)
    log, nodes = RecordedJobs(scenario.workload, _have_runtimes(scenario)), _cluster(scenario)
    evidence = Evidence.of(log, nodes)
    settings = scenario.words() if nodes else {"trace": scenario.data.name or scenario.workload.source}
    provenance = scenario.provenance("calibrate", settings | {"fit": fit})
    parts = Parts.of(len(log), fit)
    if evidence.obstacle() or min(log.compared[parts.rows(part)].sum() for part in (FIT, CHOSEN_ON, HELD_OUT)) < LEAST:
        return _statement(provenance, log, evidence, scenario.coverage)
    progress("simulating the log under other settings", 0, 0.0)
    configured = simulate(scenario)
    before = starts_of(configured.world, configured.played, len(log))
    evidence = replace(evidence, simulated=int((before - log.submit > LONG).sum()))
    if scenario.scheduler is not None:
        fitted = fit_settings(scenario, log, parts.fitted, progress)
    else:
        scarce, spare = evidence.idle() is None, evidence.has_spare_gpus()
        fitted = fit_policy(scenario, log, parts.fitted, progress, scarce=scarce, spare=spare)
    choice = choose(scenario, before, fitted.candidates, log, parts.rows(CHOSEN_ON))
    result = _calibration(provenance, log, evidence, fitted, choice, before, parts)
    return replace(result, coverage=configured.coverage, notes=(*estimate_note(scenario), *result.notes))


def _check(scenario: Scenario, fit: float) -> None:
    if not 0 < fit < 1:
        raise WorkloadError(f"the share of the jobs to fit on is between 0 and 1: {fit:g}", hint="fit=0.6")
    for name in ("load", "until", "window", "latency"):
        if getattr(scenario, name) != WORDS[name].default:
            msg = f"a log is calibrated as it was recorded: leave `{name}` out"
            raise WorkloadError(msg, hint="change it in the calibrated scenario")


def _have_runtimes(scenario: Scenario) -> NDArray[np.bool_]:
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


def _statement(provenance: Provenance, log: RecordedJobs, evidence: Evidence, covered: Coverage) -> Calibration:
    """Say why there is nothing to calibrate by."""
    why = evidence.obstacle() or f"fewer than {LEAST} jobs to fit on, or to judge by, have a start and a run time"
    estimates = (Estimate.exact("jobs with a recorded start and a run time", evidence.compared),)
    frames = {"what this log can tell": identifiable(evidence, None)}
    return Calibration(
        provenance, (first_line(log, log.compared), *statement(why, log)), estimates, frames, coverage=covered
    )


def _calibration(
    provenance: Provenance,
    log: RecordedJobs,
    evidence: Evidence,
    fitted: FitResult,
    choice: Choice,
    before: Floats,
    parts: Parts,
) -> Calibration:
    starts = {BEFORE: before, AFTER: choice.starts}
    errors = {part: WaitErrors.of(log, parts.rows(part), starts) for part in (HELD_OUT, CHOSEN_ON, FIT)}
    judged = errors[HELD_OUT]
    questions = identifiable(evidence, fitted)
    frames = {
        "waits": pl.concat([gaps.overall(part) for part, gaps in errors.items()], how="vertical_relaxed"),
        "candidates": choice.table,
        "start-up latency": fitted.latency,
        "nodes": fitted.pools.table.with_columns(
            pl.Series("hidden nodes", [fitted.nodes.get(t, 0) for t in fitted.pools.table["gpu_type"]], dtype=pl.Int64)
        ).rename({"gpu_type": "GPU type", "gpus": "GPUs"}),
        "limits of users": fitted.limits,
        **judged.by_class(_partitions(choice.scenario)),
        "what this log can tell": questions,
    }
    if fitted.identification is not None:
        frames["policies"] = fitted.identification.table
    sentences = findings(log, evidence, fitted, choice, judged, questions)
    estimates = [
        *(Estimate(f"{side} mean wait, held out", *mean, "s") for side, mean in judged.means().items()),
        *(Estimate(f"error of the {side} mean wait", *judged.error(side), "s") for side in (BEFORE, AFTER)),
        Estimate.exact("jobs held out", len(judged.rows)),
    ]
    notes = (
        "GPUs are held during the start-up latency, and the job still waits: both are in the simulated waits",
        *((f"candidates: {choice.note}",) if fitted.candidates else ()),
        "log-likelihood: errors of logarithms of waits follow a Laplace law; choices: at each recorded start, whether "
        "the job was the first in the order among those that would have fitted in its place",
        *(("random placement is not tried: its starts depend on a seed that no log has",) * bool(fitted.nodes)),
    )
    return Calibration(provenance, sentences, estimates, frames, _figures(judged), notes, scenario=choice.scenario)


def _figures(judged: WaitErrors) -> dict[str, Figure]:
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
