"""Compare configurations of a site's scheduler on its own jobs: who gains, who loses, and which settings differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Provenance, Scenario, WorkloadError
from fleetlab.core.durations import duration
from fleetlab.core.job_classes import job_size, partitions, queue
from fleetlab.core.kueue import Kueue
from fleetlab.core.progress import Progress, silent
from fleetlab.core.words import SITE
from fleetlab.sim.kueue.submissions import queues_of
from fleetlab.stats import Interval
from fleetlab.studies.compare.profiles import ProfileChange, change_profile
from fleetlab.studies.compare.runs import Comparison, Runs, difference_of, figures_of, refused_by_reason
from fleetlab.studies.sentences import change_of_mean
from fleetlab.traces.kubernetes.kueue_change import KueueChange, change_kueue
from fleetlab.traces.slurm.conf_change import ConfChange, change_conf

Change: TypeAlias = ConfChange | KueueChange | ProfileChange

AS_IS = "as configured"
# Whom a configuration may treat differently, and how a job tells it.
WHOM = {
    "team": queue(),
    "partition": partitions(),
    "size": job_size(),
    "QOS": pl.col("qos").cast(pl.String).fill_null("none"),
}
GAINS = {"lower": "gains", "higher": "loses", "unknown": "too few jobs"}
MOST = 4  # named in a sentence


def compare_conf(
    scenario: Scenario, conf: Sequence[Path | str], *, workers: int | None = None, progress: Progress = silent
) -> Comparison:
    """Compare the site as it is configured with other configurations of it."""
    base = as_configured(scenario)
    changes = changes_of(base, conf)
    if not any(change.settings for change in changes.values()):
        notes = "; ".join(note for change in changes.values() for note in change.notes)
        msg = f"nothing changes how the site schedules: {', '.join(changes)}"
        raise WorkloadError(msg, hint=notes or "every line is as the site has it already")
    scenarios = {AS_IS: base, **{name: with_change(base, change) for name, change in changes.items()}}
    runs = Runs.of(scenarios, workers=workers, progress=progress)
    settings = scenario.replace(scheduler=scenario.policy.scheduler or SITE).words()
    provenance = Provenance("compare", base.workload.source, settings | {"conf": [str(c) for c in conf]}, base.seed)
    return _comparison(runs, changes, provenance)


def as_configured(scenario: Scenario) -> Scenario:
    """Return the scenario under the scheduler given, or the site's own, which a trace without one is refused for."""
    site = scenario if scenario.policy.scheduler is not None else scenario.replace(scheduler=SITE)
    return site.replace(scheduler=site.scheduler)


def changes_of(base: Scenario, conf: Iterable[Path | str]) -> dict[str, Change]:
    """Read configurations; each has a name of its own."""
    changes: dict[str, Change] = {}
    for entry in conf:
        change = _change(base, entry)
        name = change.name if change.name not in changes else f"{change.name} ({len(changes) + 1})"
        changes[name] = change
    return changes


def _change(base: Scenario, entry: Path | str) -> Change:
    if base.slurm is not None:
        return change_conf(base.slurm, base.data.cluster, entry)
    own = base.scheduler
    assert own is not None  # `as_configured` refuses a policy
    return change_kueue(own, entry) if isinstance(own, Kueue) else change_profile(own, entry)


def with_change(base: Scenario, change: Change) -> Scenario:
    """Return the scenario with another configuration."""
    if isinstance(change, KueueChange):
        return base.replace(scheduler=change.kueue)
    if isinstance(change, ProfileChange):
        return base.replace(scheduler=change.scheduler)
    moved = {} if change.cluster is base.data.cluster else {"cluster": change.cluster}
    return base.replace(scheduler=change.slurm, **moved)


def _comparison(runs: Runs, changes: Mapping[str, Change], provenance: Provenance) -> Comparison:
    rows, whom = runs.rows(), by_whom(runs)
    sentences = [_sentence(row, len(runs.jobs)) for row in rows[1:].iter_rows(named=True)]
    first, *others = [line for name, s in zip(changes, sentences, strict=True) for line in (s, _who(name, whom))]
    settings = [{"configuration": name} | asdict(s) for name, change in changes.items() for s in change.settings]
    tables = {
        "configurations": rows.rename({"policy": "configuration"}),
        "changes": pl.DataFrame(settings).rename({"name": "setting"}),
        **{f"by {kind}": table for kind, table in whom.items()},
        "left out": refused_by_reason(runs.results),
    }
    together = "the intervals of a table by team, partition, size or QOS hold together with 95 % confidence"
    notes = (together, *(f"{name}: {note}" for name, change in changes.items() for note in change.notes))
    charts = figures_of(runs.values, rows)
    return Comparison(
        provenance, (first, *runs.of_whom(), *others), runs.summary(), tables, charts, notes, runs.coverage
    )


def by_whom(runs: Runs) -> dict[str, pl.DataFrame]:
    """Return how waits differ by team, partition, size and QOS, where there are several."""
    frame, tables = runs.frame, {}
    first = next(iter(runs.values.values()))["wait"]
    for kind, expression in _whom(runs).items():
        classes = _classes(frame.select(expression).to_series())
        if len(classes) < 2:
            continue
        before = pl.DataFrame(
            {"class": list(classes), "configured mean wait": [first[c].mean() for c in classes.values()]}
        )
        table = runs.by_class(classes).join(before, on="class", how="left", maintain_order="left")
        tables[kind] = table.select(
            pl.col("policy").alias("configuration"), pl.col("class").alias(kind), "jobs", "configured mean wait",
            pl.exclude("policy", "class", "jobs", "configured mean wait", "verdict"),
            pl.col("verdict").replace(GAINS),
        )  # fmt: skip
    return tables


def _whom(runs: Runs) -> dict[str, pl.Expr | pl.Series]:
    """Return how a job tells its team: under Kueue, by the ClusterQueue that it comes to."""
    site = runs.base.scheduler
    if not isinstance(site, Kueue):
        return dict(WHOM)
    queues = pl.Series("team", queues_of(site, runs.frame), dtype=pl.String).fill_null("none")
    return {**WHOM, "team": queues}


def _classes(names: pl.Series) -> dict[str, NDArray[np.bool_]]:
    """Return which jobs are in each class, the largest class first."""
    counts = names.value_counts(sort=True)[names.name].to_list()
    return {str(name): (names == name).to_numpy() for name in counts}


# -- sentences -------------------------------------------------------------------------------------------------------


def _sentence(row: Mapping[str, Any], jobs: int) -> str:
    before = row["mean wait"] - row["mean wait change"]
    change = change_of_mean("wait", before, difference_of(row, "wait"))
    sure = ", not significantly" if Interval(*difference_of(row, "wait")).change() == "not significant" else ""
    return f"{change} with {row['policy']}{sure}, of the {jobs:,} jobs that completed under every configuration."


def _who(name: str, whom: Mapping[str, pl.DataFrame]) -> str:
    """Return who gains and who loses by a configuration."""
    rows = [row | {"who": f"{kind} {row[kind]}"} for kind, table in whom.items() for row in table.rows(named=True)]
    own = [row for row in rows if row["configuration"] == name]
    gain, loss = (_named([row for row in own if row["verdict"] == side]) for side in ("gains", "loses"))
    if not gain and not loss:
        return f"With {name}, no team, partition, size or QOS waits significantly longer or shorter."
    return f"With {name}, these wait significantly shorter: {gain or 'none'}; longer: {loss or 'none'}."


def _named(rows: Sequence[Mapping[str, Any]]) -> str:
    """Name those whose jobs together gain or lose most."""
    largest = sorted(rows, key=lambda row: -abs(row["mean wait change"]) * row["jobs"])
    parts = [
        f"{r['who']} (mean wait {'+' if r['mean wait change'] > 0 else ''}{duration(r['mean wait change'])}, "
        f"{r['jobs']:,} jobs)"
        for r in largest[:MOST]
    ]
    return ", ".join(parts) + (f" and {len(rows) - MOST} more" if len(rows) > MOST else "")
