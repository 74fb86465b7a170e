"""Search among settings of a site's Slurm: all combinations on the same jobs, chosen on the first half of them."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Estimate, Figure, PolicyError, Provenance, Scenario, Words, WorkloadError, as_json
from fleetlab.core.catalog import METRICS
from fleetlab.core.files import atomic_write
from fleetlab.core.names import clip, lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import FieldsResult, Finding
from fleetlab.core.scenario import ScenarioLike
from fleetlab.core.schedulers import ConfigChange
from fleetlab.core.words import SITE
from fleetlab.stats import Floats, Interval
from fleetlab.studies.compare.configurations import AS_IS, as_configured, by_whom, with_change
from fleetlab.studies.compare.runs import MEASURES, Runs, not_compared, refused_by_reason
from fleetlab.studies.replicas import Plan
from fleetlab.studies.sentences import sentence
from fleetlab.studies.tune.result import GOALS, RESULT

MOST = 100_000  # combinations
CONF = "tuned.conf"
HEADER = (
    "# Settings of SchedulerParameters stand on lines of their own; lines of QOS and Account are for sacctmgr modify.\n"
)
NOT_RUN = "jobs not run"  # that run as the site is configured
HINT = "bf_interval=10,30,60, or QOS=normal MaxTRESPerUser=gres/gpu=4,gres/gpu=8"


@dataclass(frozen=True, repr=False)
class ConfTuning(FieldsResult):
    """Settings of a site's Slurm by a goal, and the best of them on jobs that it was not chosen by."""

    conf: tuple[str, ...] = ()  # the lines of the best settings; none, where the site's own are best

    def save(self, folder: Path) -> None:
        """Write the lines that change and this result into a folder.

        Parameters
        ----------
        folder
            The folder; it is made where it is not there.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> best = ConfTuning(Provenance("tune", "mine"), conf=("SchedulerParameters=bf_interval=60",))
        >>> with TemporaryDirectory() as folder:
        ...     best.save(Path(folder))
        ...     len(list(Path(folder).iterdir()))
        2
        """
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / CONF, HEADER + "".join(f"{line}\n" for line in self.conf))
        atomic_write(folder / RESULT, as_json(self))


def tune_conf(
    source: ScenarioLike,
    cluster: Cluster | None = None,
    *,
    conf_range: Sequence[str],
    trials: int = 100,
    goal: str = "wait",
    replicas: int | None = None,
    workers: int | None = None,
    progress: Progress = silent,
    **words: Unpack[Words],
) -> ConfTuning:
    """Try combinations of settings of the site's Slurm, and rank them by the mean of a goal.

    The best is chosen by the jobs of the first half and judged by the others, paired with the site as it is configured.

    Parameters
    ----------
    source
        What builds the scenario, as `Scenario.of` takes it; its trace tells the site's configuration.
    cluster
        The nodes, in place of those of the trace.
    **words
        Words of the scenario, such as `order="sjf"` or `load=1.2`.
    conf_range
        Settings and their values, each as KEY=VALUE,VALUE,… (docs/slurm-compare.md).
    trials
        Of more combinations than this, so many are drawn at random (default: 100).
    goal
        The mean to minimize: wait, jct or bounded_slowdown.
    replicas
        Pairs of runs that each number rests on, as `compare` takes them.
    workers
        Processes to run at once (default: one per core, at most 4, for a large workload; 0: none but this one).
    progress
        Called as settings are done.

    Returns
    -------
    ConfTuning
        The settings by rank, and the paired difference of the best from the site as it is configured.

    Raises
    ------
    TraceError
        If the trace does not tell how the site's Slurm is configured.
    WorkloadError
        If a range has no setting or fewer than two values.

    Examples
    --------
    >>> import fleetlab
    >>> fleetlab.tune_conf("builtin:200", conf_range=["bf_interval=1,30"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fleetlab.core.errors.TraceError: ...
    """
    lookup("goal", goal, GOALS, error=WorkloadError)
    base = as_configured(Scenario.of(source, cluster, **words))
    ranges = [values_of(text) for text in conf_range]
    count = math.prod(map(len, ranges))
    if not 1 <= trials <= MOST or not 1 < count <= MOST:
        msg = f"from 2 to {MOST:,} combinations of settings, and trials: {count:,} and {trials:,}"
        raise WorkloadError(msg, hint=HINT)
    numbers = sorted(random.Random(base.seed).sample(range(count), trials)) if count > trials else range(count)
    every = list(product(*ranges))
    changes = _changes(base, [every[k] for k in numbers])
    scenarios = {AS_IS: base} | {name: with_change(base, change) for name, (_, change) in changes.items()}
    runs = Runs.of(scenarios, plan=Plan.of(replicas), workers=workers, progress=progress)
    settings = base.replace(scheduler=SITE).words() | runs.replication.settings()
    settings |= {"conf_range": list(conf_range), "trials": trials, "goal": goal}
    provenance = base.provenance("tune", settings)
    notes = [f"{trials:,} of {count:,} combinations, drawn at random"] if count > trials else []
    return _result(runs, {name: lines for name, (lines, _) in changes.items()}, goal, provenance, notes)


def values_of(text: str) -> list[str]:
    """Return the lines that a range stands for.

    >>> values_of("PartitionName=long MaxTime=60,120")
    ['PartitionName=long MaxTime=60', 'PartitionName=long MaxTime=120']
    """
    key, values = _key_and_value(text.strip())
    parts = [v.strip() for v in values.split("|" if "|" in values else ",") if v.strip()]
    if not key or not parts:
        msg = f"not values of a setting: `{clip(text)}`"
        raise WorkloadError(msg, hint=HINT)
    return [f"{key}={value}" for value in dict.fromkeys(parts)]


def _changes(
    base: Scenario, combinations: Sequence[tuple[str, ...]]
) -> dict[str, tuple[tuple[str, ...], ConfigChange]]:
    """Return the combinations that differ from the site as it is configured, by their names."""
    site = base.scheduler
    assert site is not None  # `as_configured` refuses a policy
    if not site.takes_lines:
        msg = f"the settings of {site.title} are not lines of KEY=VALUE"
        raise PolicyError(msg, hint="`fleetlab compare TRACE --conf FILE` compares configurations in files")
    changes = {}
    for lines in combinations:
        change = site.compare_config("\n".join((*lines, "")), base.data.cluster)
        if change.settings:
            changes[", ".join(lines)] = lines, change
    if not changes:
        msg = "every combination is as the site is configured"
        raise WorkloadError(msg, hint=HINT)
    return changes


# -- the result --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Halves:
    """A goal in the first and in the second half of the jobs, by submission."""

    runs: Runs
    metric: str

    def means(self, name: str, *, early: bool) -> Floats:
        """Return the mean of one half in each replica."""
        half = len(self.runs.jobs) // 2
        part = slice(None, half) if early else slice(half, None)
        values = [sample.values[name][self.metric][part] for sample in self.runs.samples]
        return np.array([float(x.mean()) if len(x) else math.nan for x in values])

    def mean(self, name: str, *, early: bool) -> float:
        return float(self.means(name, early=early).mean())

    def jobs_not_run(self, name: str) -> int:
        there, own = (self.runs.results[k]["job"] for k in (AS_IS, name))
        return len(np.setdiff1d(there, own))

    def change(self, name: str, *, early: bool) -> Interval:
        before, after = (self.means(k, early=early) for k in (AS_IS, name))
        return self.runs.statistic(after - before).interval()

    def finding(self, name: str) -> Finding:
        """Return what the best setting changes for the jobs held out."""
        before, after = (self.means(k, early=False) for k in (AS_IS, name))
        held_out = f"the {len(self.runs.jobs) - len(self.runs.jobs) // 2:,} jobs held out"
        return Finding(
            f"mean {self.metric}", name, float(before.mean()), float(after.mean()),
            *self.change(name, early=False), METRICS[self.metric].unit, held_out,
            self.runs.replication.verdict(after - before, float(before.mean())),
            self.runs.replication.scope, self.runs.replication.count,
        )  # fmt: skip


def _result(
    runs: Runs, lines: Mapping[str, tuple[str, ...]], goal: str, provenance: Provenance, notes: Sequence[str]
) -> ConfTuning:
    metric = next(name for name, column in MEASURES.items() if column == goal)
    halves = _Halves(runs, metric)
    table = _table(halves, lines)
    best = table["settings"][0]
    unit = METRICS[metric].unit
    estimates = tuple(
        Estimate(f"mean {metric}, {best} − {AS_IS}, {of}", *halves.change(best, early=early), unit)
        for of, early in (("jobs held out", False), ("jobs to choose by", True))
    )
    tables, refused = {"settings": table.drop("settings")}, refused_by_reason(runs.results)
    if best != AS_IS:
        tables |= {f"by {kind}": t for kind, t in by_whom(runs.only((AS_IS, best))).items()}
    notes = (
        *runs.replication.notes(1),
        f"chosen by the first {len(runs.jobs) // 2:,} of {len(runs.jobs):,} jobs, judged by the others; each "
        "interval is paired with the site as configured and holds by itself",
        *notes,
    )
    records = () if best == AS_IS else (halves.finding(best),)
    first = _sentence(records, len(runs.scenarios) - 1, metric)
    findings = (first, *_starving(table), *not_compared(runs.base, refused, len(runs.jobs)))
    charts = _figures(table, metric, unit)
    return ConfTuning(
        provenance, findings, estimates, tables, charts, notes, runs.coverage, records, lines.get(best, ())
    )


def _table(halves: _Halves, lines: Mapping[str, tuple[str, ...]]) -> pl.DataFrame:
    """Return all settings, the best for the first half of the jobs first."""
    metric, rows = halves.metric, []
    keys = [_key_and_value(line)[0] for line in next(iter(lines.values()))]
    for name in halves.runs.scenarios:
        own = dict(_key_and_value(line) for line in lines.get(name, ()))
        change = halves.change(name, early=False)
        row: dict[str, Any] = {"settings": name, **{key: own.get(key, AS_IS) for key in keys}}
        row |= {NOT_RUN: halves.jobs_not_run(name)}
        row |= {f"training mean {metric}": halves.mean(name, early=True)}
        row |= {f"mean {metric}": halves.mean(name, early=False)} | change.columns(f"mean {metric} change")
        rows.append(row | {"verdict": halves.finding(name).verdict})
    frame = pl.DataFrame(rows, infer_schema_length=None)
    # Whoever never runs some of the jobs has an easy time with the others.
    ranked = frame.sort(pl.col(NOT_RUN) > 0, f"training mean {metric}", maintain_order=True)
    return ranked.with_row_index("rank", 1)


def _key_and_value(line: str) -> tuple[str, str]:
    whom, space, last = line.rpartition(" ")
    key, _, value = last.partition("=")
    return f"{whom}{space}{key}", value


def _sentence(records: Sequence[Finding], count: int, metric: str) -> str:
    if not records:
        return f"None of {count:,} settings has a lower mean {metric} than the site as it is configured."
    return f"Of {count:,} settings the best for the first half of the jobs, on the others: {sentence(records[0])}"


def _starving(table: pl.DataFrame) -> list[str]:
    count = int((table[NOT_RUN] > 0).sum())
    return (
        [f"{count:,} settings never run some jobs that run as the site is configured: they are last."] if count else []
    )


def _figures(table: pl.DataFrame, metric: str, unit: str) -> dict[str, Figure]:
    name = f"mean {metric} change"
    data = table.select(x="settings", y=name, low=f"{name} low", high=f"{name} high")
    alt = f"{table['settings'][0]} is best for the jobs to choose by"
    in_unit = f", {unit}" if unit else ""
    title = "Each setting minus the site as configured, jobs held out"
    return {"settings": Figure(title, "dots", data, "settings", f"{name}{in_unit}", alt)}
