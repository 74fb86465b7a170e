"""Compare configurations of a site's scheduler on its own jobs: who gains, who loses, and which settings differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Provenance, Scenario, WorkloadError
from fleetlab.core.durations import duration
from fleetlab.core.job_classes import job_size, partitions, queue
from fleetlab.core.progress import Progress, silent
from fleetlab.core.schedulers import ConfigChange
from fleetlab.core.words import SITE
from fleetlab.stats import BETTER, NOT_DECIDED, WORSE
from fleetlab.studies.compare.runs import Comparison, Runs, figures_of, records_of, refused_by_reason
from fleetlab.studies.replicas import Plan
from fleetlab.studies.runner import Workers
from fleetlab.studies.sentences import sentence

AS_IS = "as configured"
# Whom a configuration may treat differently, and how a job tells it.
WHOM = {
    "team": queue(),
    "partition": partitions(),
    "size": job_size(),
    "QOS": pl.col("qos").cast(pl.String).fill_null("none"),
}
GAINS = {BETTER: "gains", WORSE: "loses"}
MOST = 4  # named in a sentence
NOTABLE = 0.1  # of a mean wait


def compare_conf(
    scenario: Scenario, conf: Sequence[Path | str], *, plan: Plan, workers: Workers = None, progress: Progress = silent
) -> Comparison:
    """Compare the site as it is configured with other configurations of it."""
    base = as_configured(scenario)
    changes = changes_of(base, conf)
    if not any(change.settings for change in changes.values()):
        notes = "; ".join(note for change in changes.values() for note in change.notes)
        msg = f"nothing changes how the site schedules: {', '.join(changes)}"
        raise WorkloadError(msg, hint=notes or "every line is as the site has it already")
    scenarios = {AS_IS: base, **{name: with_change(base, change) for name, change in changes.items()}}
    runs = Runs.of(scenarios, plan=plan, workers=workers, progress=progress)
    settings = scenario.replace(scheduler=scenario.policy.scheduler or SITE).words() | runs.replication.settings()
    provenance = base.provenance("compare", settings | {"conf": [str(c) for c in conf]})
    return _comparison(runs, changes, provenance)


def as_configured(scenario: Scenario) -> Scenario:
    """Return the scenario under the scheduler given, or the site's own, which a trace without one is refused for."""
    site = scenario if scenario.policy.scheduler is not None else scenario.replace(scheduler=SITE)
    return site.replace(scheduler=site.scheduler)


def changes_of(base: Scenario, conf: Iterable[Path | str]) -> dict[str, ConfigChange]:
    """Read configurations; each has a name of its own."""
    changes: dict[str, ConfigChange] = {}
    for entry in conf:
        change = _change(base, entry)
        name = change.name if change.name not in changes else f"{change.name} ({len(changes) + 1})"
        changes[name] = change
    return changes


def _change(base: Scenario, entry: Path | str) -> ConfigChange:
    assert base.scheduler is not None  # `as_configured` refuses a policy
    return base.scheduler.compare_config(entry, base.data.cluster)


def with_change(base: Scenario, change: ConfigChange) -> Scenario:
    """Return the scenario with another configuration."""
    moved = {} if change.cluster is None else {"cluster": change.cluster}
    return base.replace(scheduler=change.scheduler, **moved)


def _comparison(runs: Runs, changes: Mapping[str, ConfigChange], provenance: Provenance) -> Comparison:
    rows, whom = runs.rows(), by_whom(runs)
    records = records_of(runs, "under every configuration")
    sentences = [sentence(f) for f in records if f.metric == "mean wait"]
    first, *others = [line for name, s in zip(changes, sentences, strict=True) for line in (s, who(name, whom))]
    settings = [{"configuration": name} | asdict(s) for name, change in changes.items() for s in change.settings]
    tables = {
        "configurations": rows.rename({"policy": "configuration"}),
        "changes": pl.DataFrame(settings).rename({"name": "setting"}),
        **{f"by {kind}": table for kind, table in whom.items()},
        **{name: table.rename({"policy": "configuration"}) for name, table in runs.pairs().items()},
        "left out": refused_by_reason(runs.results),
        **runs.without_model_error(),
    }
    together = "the intervals of a table by team, partition, size or QOS hold together with 95 % confidence"
    notes = (
        *runs.notes(), f"means are of {records[0].population}", together,
        *(f"{name}: {note}" for name, change in changes.items() for note in change.notes),
    )  # fmt: skip
    findings = (first, *runs.of_whom(), *others)
    parts = (findings, runs.summary(), tables, figures_of(runs, rows), notes, runs.coverage, records, runs.scenarios)
    return Comparison(provenance, *parts)


def by_whom(runs: Runs) -> dict[str, pl.DataFrame]:
    """Return how waits differ by team, partition, size and QOS, where there are several."""
    tables = {}
    for kind in WHOM:
        own = partial(classes_of, kind, runs.base)
        if len(own(runs.frames[0])) < 2:
            continue
        tables[kind] = runs.by_class(own).select(
            pl.col("policy").alias("configuration"), pl.col("class").alias(kind), "jobs",
            pl.col("mean wait before").alias("configured mean wait"),
            pl.exclude("policy", "class", "jobs", "mean wait before", "verdict"), pl.col("verdict").replace(GAINS),
        )  # fmt: skip
    return tables


def classes_of(kind: str, base: Scenario, jobs: pl.DataFrame) -> dict[str, NDArray[np.bool_]]:
    """Return which jobs are of each team, partition, size or QOS, the largest class first.

    A job tells its team by its queue, unless the scheduler's configuration tells it.
    """
    teams = None if kind != "team" or base.scheduler is None else base.scheduler.teams(jobs)
    names = jobs.select(WHOM[kind] if teams is None else teams).to_series()
    counts = names.value_counts(sort=True)[names.name].to_list()
    return {str(name): (names == name).to_numpy() for name in counts}


# -- sentences -------------------------------------------------------------------------------------------------------


def who(name: str, whom: Mapping[str, pl.DataFrame]) -> str:
    """Return who gains and who loses by a configuration, and for whom a loss is likely but not decided."""
    rows = [row | {"who": f"{kind} {row[kind]}"} for kind, table in whom.items() for row in table.rows(named=True)]
    own = [row for row in rows if row["configuration"] == name]
    gain, loss = (_named([row for row in own if row["verdict"] == side]) for side in ("gains", "loses"))
    open_ = [row for row in own if row["verdict"] == NOT_DECIDED and row["mean wait change"] > _notable(row)]
    likely = f" Longer on average, but not decided: {_named(open_)}." if open_ else ""
    if not gain and not loss:
        return f"With {name}, no team, partition, size or QOS is known to wait longer or shorter.{likely}"
    return f"With {name}, these wait shorter: {gain or 'none'}; longer: {loss or 'none'}.{likely}"


def _notable(row: Mapping[str, Any]) -> float:
    """Return from how many seconds on a longer wait is told although it is not decided."""
    return max(NOTABLE * float(row["configured mean wait"]), 1.0)


def _named(rows: Sequence[Mapping[str, Any]]) -> str:
    """Name those whose jobs together gain or lose most."""
    largest = sorted(rows, key=lambda row: -abs(row["mean wait change"]) * row["jobs"])
    parts = [
        f"{r['who']} (mean wait {'+' if r['mean wait change'] > 0 else ''}{duration(r['mean wait change'])}, "
        f"{r['jobs']:,} jobs)"
        for r in largest[:MOST]
    ]
    return ", ".join(parts) + (f" and {len(rows) - MOST} more" if len(rows) > MOST else "")
