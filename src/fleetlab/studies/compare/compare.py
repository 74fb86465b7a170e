"""Compare policies, or any scenarios, on the same jobs: wait, JCT and slowdown, with paired differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Policy, PolicyError, Provenance, Scenario, Words, WorkloadError
from fleetlab.core.catalog import BACKFILLS, ORDERS
from fleetlab.core.durations import duration
from fleetlab.core.job_classes import GPU_REQUESTS, gpu_request
from fleetlab.core.names import clip
from fleetlab.core.policy import RULES, title
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import Finding
from fleetlab.core.scenario import ScenarioLike
from fleetlab.core.words import EVENT, SITE, shorthand
from fleetlab.sim.load import reads_estimates
from fleetlab.stats import BETTER, NOT_DECIDED, WORSE
from fleetlab.studies.compare.configurations import compare_conf
from fleetlab.studies.compare.runs import Comparison, Runs, figures_of, records_of, refused_by_reason
from fleetlab.studies.replicas import Plan
from fleetlab.studies.runner import Workers
from fleetlab.studies.sentences import sentence, who_is_first

PolicyLike = str | Policy | Mapping[str, Any] | Scenario

FIVE = ("fifo", "fifo/easy", "smallest", "sjf/estimate=group", "sjf")
WITHOUT_SHARING = "fifo/sharing=exclusive"
LITTLE = 0.01  # of the JCT
HARDLY = "This cluster has almost no queue, so no policy can help: jobs wait for less than 1 % of their JCT."
SHORT, LONG = "runtime up to the median", "runtime above the median"


def compare(
    source: ScenarioLike | Sequence[Scenario],
    cluster: Cluster | None = None,
    *,
    policies: Sequence[PolicyLike] | None = None,
    conf: Sequence[Path | str] = (),
    replicas: int | None = None,
    scope: str = "log",
    workers: Workers = None,
    progress: Progress = silent,
    **words: Unpack[Words],
) -> Comparison:
    """Compare policies on the same jobs; the first is the baseline.

    Parameters
    ----------
    source
        What builds a scenario, as `Scenario.of` takes it; or several scenarios with the same jobs, as `Scenario.vary`
        returns them.
    cluster
        The nodes, in place of those of the trace.
    **words
        Words of the scenario, such as `order="sjf"` or `load=1.2`.
    policies
        Changes of the scenario, each as ORDER/BACKFILL/PLACEMENT/ESTIMATE/SHARING (the last may be left out, WORD=VALUE
        for other words), a `Policy`, a mapping of words, or a `Scenario` (default: fifo, fifo/easy, smallest, sjf with
        estimates by group and with true runtimes; fifo without sharing, where jobs request fractions of a GPU).
    conf
        Instead of policies: other configurations of the site's Slurm, each a slurm.conf, a file of the lines that
        change, or one such line; or of its Kueue, each a file of all objects. The baseline is the site as configured.
    replicas
        Pairs of runs that each number rests on (default: from 5 on as many as decide, at most 20; fewer of a large
        workload; 1: the log as it is, without intervals).
    scope
        What intervals speak of: `log`, this log with times nudged, or `like`, logs like it, with other jobs.
    workers
        Processes to run at once (default: one per core, at most 4, for a large workload; 0: none but this one); or
        `ray`, or the address of a Ray cluster.
    progress
        Called as policies are done.

    Returns
    -------
    Comparison
        Findings, and a table `policies` with each metric, its paired difference from the baseline, and a verdict:
        better, worse, no difference or not decided. Of more than two policies, `pairs` has that of every two of them.
        `jobs` has the wait and JCT of each job under each policy in the log as it is, simulated when it is first read.

    Raises
    ------
    WorkloadError
        If there is nothing to compare, or scenarios have different jobs.
    PolicyError
        If a policy is not known, or does not rank.
    TraceError
        If the trace cannot be opened, or `conf` is given for a site whose configuration it does not tell.

    Examples
    --------
    >>> import fleetlab
    >>> scenario = fleetlab.Scenario.of("builtin:200", load=20)
    >>> result = fleetlab.compare(scenario.vary(order=["fifo", "sjf"]), workers=0)
    >>> result.to_polars("policies")["policy"].to_list()
    ['fifo/greedy', 'sjf/greedy']
    """
    plan = Plan.of(replicas, scope)
    if conf:
        base = _one_scenario(source, cluster, policies, words)
        return compare_conf(base, conf, plan=plan, workers=workers, progress=progress)
    scenarios = _scenarios(source, cluster, policies, words)
    runs = Runs.of(scenarios, plan=plan, workers=workers, progress=progress)
    settings = runs.base.words() | {"policies": _spellings(scenarios)} | runs.replication.settings()
    return _comparison(runs, runs.base.provenance("compare", settings))


# -- what is compared ------------------------------------------------------------------------------------------------


def _one_scenario(
    source: ScenarioLike | Sequence[Scenario],
    cluster: Cluster | None,
    policies: Sequence[PolicyLike] | None,
    words: Words,
) -> Scenario:
    if policies is not None or (isinstance(source, Sequence) and not isinstance(source, str)):
        msg = "configurations of one site are compared with it: leave `policies` out"
        raise WorkloadError(msg, hint="one scenario, and `conf`")
    return Scenario.of(source, cluster, **words)


def _scenarios(
    source: ScenarioLike | Sequence[Scenario],
    cluster: Cluster | None,
    policies: Sequence[PolicyLike] | None,
    words: Words,
) -> dict[str, Scenario]:
    """Return the scenarios by a name each, the baseline first."""
    if isinstance(source, Sequence) and not isinstance(source, str):
        if policies is not None:
            msg = "several scenarios are compared as they are: leave `policies` out"
            raise WorkloadError(msg, hint="or pass one scenario and `policies`")
        entries: Sequence[PolicyLike] = [Scenario.of(s, cluster, **words) for s in source]
        base = None
    else:
        base = Scenario.of(source, cluster, **words)
        entries = _usual(base) if policies is None else policies
        if not isinstance(entries, Sequence):
            entries = [entries]
    distinct = list(dict.fromkeys(entries)) if all(isinstance(e, str) for e in entries) else entries
    named = _by_name([_scenario(entry, base) for entry in distinct])
    if len(named) < 2:
        msg = f"at least two different policies are needed to compare: {', '.join(named) or 'none'}"
        raise WorkloadError(msg, hint="fifo,sjf,fifo/easy,sjf/estimate=group")
    _check_same_jobs(named)
    return named


def _usual(base: Scenario) -> Sequence[str]:
    """Return the policies that are compared by default: a site as it is configured first, where the trace tells that.

    Without sharing too, where jobs request fractions of a GPU.
    """
    if base.trace.scheduler is not None:
        return (f"scheduler={SITE}", *five(base))
    fractions = base.trace.workload.frame["gpu_milli"].is_between(1, 999).any()
    return (*five(base), *([WITHOUT_SHARING] if fractions and base.policy.sharing == "fractional" else []))


def five(base: Scenario) -> list[str]:
    """Return the policies of `FIVE` that can be simulated: estimates by group need jobs that name one, or a user."""
    return [policy for policy in FIVE if "estimate=" not in policy or base.trace.workload.names_owners]


def _scenario(entry: PolicyLike, base: Scenario | None) -> Scenario:
    if isinstance(entry, Scenario):
        return entry
    assert base is not None
    if isinstance(entry, Policy):
        return base.replace(policy=entry)
    if not isinstance(entry, str | Mapping):  # a scheduler of one's own by itself is not taken for an order
        what = "scheduler" if hasattr(entry, "decide") else "order"
        msg = f"not a policy to compare: {clip(repr(entry))}"
        raise PolicyError(msg, hint=f'policies=["fifo", {{"{what}": {getattr(entry, "__name__", "mine")}}}]')
    words = shorthand(entry) if isinstance(entry, str) else dict(entry)
    if base.trace.scheduler is not None and base.policy.scheduler is None:
        words.setdefault("scheduler", EVENT)  # else the default policy would be the site as it is configured
    return base.replace(**words)


def _by_name(scenarios: Sequence[Scenario]) -> dict[str, Scenario]:
    """Return the scenarios by order/backfill, and whatever else is not the same in all of them."""
    changes = [_changes(scenario) for scenario in scenarios]
    if any("placement" in c for c in changes):  # the default is named too, beside others
        changes = [{"placement": s.policy.placement} | c for s, c in zip(scenarios, changes, strict=True)]
    names = [title({k: v for k, v in c.items() if any(o.get(k) != v for o in changes) or k in RULES}) for c in changes]
    unique = [f"{name} ({k})" if name in names[: k - 1] else name for k, name in enumerate(names, 1)]
    return dict(zip(unique, scenarios, strict=True))


def _changes(scenario: Scenario) -> dict[str, Any]:
    """Return the words that differ from their defaults; `scheduler=site` by what that is."""
    changes = scenario.changes()
    if (name := scenario.data.cluster_name) is not None:
        changes["cluster"] = name
    if changes.get("scheduler") == SITE and (site := scenario.scheduler) is not None:
        changes["scheduler"] = site.name
    return changes


def _check_same_jobs(scenarios: Mapping[str, Scenario]) -> None:
    frames = [scenario.trace.workload.frame for scenario in scenarios.values()]
    if not all(frame is frames[0] or frame.equals(frames[0]) for frame in frames):
        msg = f"scenarios of different jobs cannot be compared: {', '.join(scenarios)}"
        raise WorkloadError(msg, hint="`sweep` compares workloads with each other")
    split = [scenario.split_instances is not None for scenario in scenarios.values()]
    if any(split) and not all(split):
        msg = "some split the instances of a job and others do not: their jobs cannot be compared one by one"
        raise PolicyError(msg, hint="compare schedulers of one kind, or a trace in which jobs have one instance")


def _spellings(scenarios: Mapping[str, Scenario]) -> list[dict[str, Any]]:
    """Return the words of each scenario that differ from the baseline's."""
    words = [scenario.words() for scenario in scenarios.values()]
    return [{k: v for k, v in w.items() if v != words[0].get(k)} for w in words]


# -- the comparison --------------------------------------------------------------------------------------------------


def _comparison(runs: Runs, provenance: Provenance) -> Comparison:
    rows, classes = runs.rows(), runs.by_class(_classes)
    records = records_of(runs, "under every policy", {name: _title(name, runs.scenarios) for name in runs.scenarios})
    first, *others = _findings(records, rows, runs.scenarios)
    findings = (first, *runs.of_whom(), *others, _for_whom(rows, classes, runs.scenarios))
    tables = {"policies": rows, "by class": classes, **runs.pairs(), "left out": refused_by_reason(runs.results)}
    tables |= runs.without_model_error()
    notes = (
        *runs.notes(),
        f"means are of {records[0].population}; a policy is better or worse than the first",
        "`by class`: the intervals of all classes of a policy hold together with 95 % confidence",
        *(["`pairs`: each interval holds by itself with 95 % confidence"] if "pairs" in tables else []),
    )
    parts = (findings, runs.summary(), tables, figures_of(runs, rows), notes, runs.coverage, records, runs.scenarios)
    return Comparison(provenance, *parts)


def _classes(jobs: pl.DataFrame) -> dict[str, NDArray[np.bool_]]:
    """Return which jobs are in each class by GPU request, and in each by runtime."""
    long = jobs["runtime"] > jobs["runtime"].median()
    request = jobs.select(gpu_request()).to_series()
    classes = {name: request == name for name in GPU_REQUESTS} | {SHORT: ~long, LONG: long}
    return {name: rows.to_numpy() for name, rows in classes.items() if rows.any()}


# -- sentences -------------------------------------------------------------------------------------------------------


def _findings(records: Sequence[Finding], rows: pl.DataFrame, scenarios: Mapping[str, Scenario]) -> list[str]:
    """Return the best policy by mean wait with its JCT, how sure it is the best, and what is worse or not decided."""
    base = rows.row(0, named=True)
    waits = [f for f in records if f.metric == "mean wait"]
    better = sorted((f for f in waits if f.verdict == BETTER), key=lambda f: f.after)
    others = [sentence(f, "under") for f in waits if f.verdict in (WORSE, NOT_DECIDED)]
    if not better:
        none = f"No policy is known to have a lower mean wait than {_title(base['policy'], scenarios)}"
        idle = [HARDLY] if base["mean wait"] < LITTLE * base["mean JCT"] else []
        return [f"{none} ({duration(base['mean wait'])}).", *idle, *others]
    jct = [sentence(f, "under") for f in records if f.metric == "mean JCT" and f.subject == better[0].subject]
    chances = dict(rows.select("policy", "P(first)").iter_rows())
    which = [who_is_first({_title(k, scenarios): p for k, p in chances.items()})] if len(chances) > 2 else []
    return [sentence(better[0], "under"), *which, *jct, *others]


def _title(name: str, scenarios: Mapping[str, Scenario]) -> str:
    """Return the name of a policy, and whether it knows true runtimes, which no scheduler does."""
    policy = scenarios[name].policy
    built_in = isinstance(policy.order, str) and policy.order in ORDERS
    ranks = ORDERS[policy.order].needs_estimate if built_in else reads_estimates(policy.order)
    needs = ranks or BACKFILLS[policy.backfill].reserves
    oracle = isinstance(policy.estimate, str) and policy.estimate == "oracle"
    return f"{name} (true runtimes known in advance)" if needs and oracle else name


def _for_whom(rows: pl.DataFrame, classes: pl.DataFrame, scenarios: Mapping[str, Scenario]) -> str:
    """Return for whom the best policy but the first is better, and at whose cost."""
    base = _title(rows["policy"][0], scenarios)
    name = rows[1:].sort("mean wait", maintain_order=True)["policy"][0]
    best, own = _title(name, scenarios), classes.filter(pl.col("policy") == name).rows(named=True)
    gain, loss = (", ".join(row["class"] for row in own if row["verdict"] == side) for side in (BETTER, WORSE))
    if not gain and not loss:
        none = "No class of jobs by GPU request or runtime is known to wait longer or shorter"
        return f"{none} under {best} than under {base}."
    shorter = f"Jobs of {gain} wait less" if gain else "No class of jobs is known to wait less"
    longer = f"Jobs of {loss} wait longer" if loss else "No class of jobs is known to wait longer"
    return f"{shorter} under {best} than under {base}. {longer}."
