"""Commands that simulate: replay a workload, compare policies, pack a cluster until it is full."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

import fleetlab
from fleetlab.commands import screen
from fleetlab.commands.options import (
    DEFAULTS,
    Json,
    Replicas,
    ScenarioOptions,
    Scope,
    TraceName,
    Workers,
    examples,
    scenario_of,
    seeds_of,
    split,
    talk,
)

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.sim.result import SimResult

app = App()
TIMELINE = ".perfetto-trace"
RULE_COLUMNS = ("rule", "who", "before", "after", "worse by", "verdict", "setting", "was", "becomes")
# Of the table of policies, those that fit on a terminal.
COLUMNS = (
    "policy", "configuration", "setting", "was", "becomes", "reason", "class", "team", "partition", "size", "QOS",
    "jobs", "jobs that cannot run",
    "configured mean wait", "mean wait", "mean wait change",
    "mean wait change low", "mean wait change high", "median wait",
    "P95 wait", "mean JCT", "mean JCT change", "mean JCT change low", "mean JCT change high", "mean bounded slowdown",
    "GPU allocation, %", "preemptions", "energy per day, kWh", "cost per day, GPU-h",
    "cost per day, (currency of the prices)", "other", "metric", "difference", "low", "high", "unit", "verdict",
    "P(first)",
)  # fmt: skip


@app.command(
    help_epilogue=examples(
        "fleetlab simulate builtin:20000 --order sjf",
        "fleetlab simulate my-trace --backfill easy --placement worst_fit --cluster bigger.toml",
        "fleetlab simulate my-trace --order my_module:mine --estimate group --load 1.2",
        "fleetlab simulate my-trace --events faults.toml --sharing time-slicing --seed 3",
        "fleetlab simulate my-trace --backfill easy --out schedule.parquet",
        "fleetlab simulate my-trace --preempt --order las --out run.perfetto-trace",
        "fleetlab simulate my-trace --backfill easy --out report.html",
    )
)
def simulate(
    trace: TraceName, *, options: ScenarioOptions = DEFAULTS, out: Path | None = None, json: Json = False
) -> None:
    """Replay a workload on a cluster: when and where each job runs, and why it waited.

    Parameters
    ----------
    out
        Write the schedule to this file. .csv or .parquet: one row per job, with the log's own name of it, its start,
        end, nodes and wait by reason. .html: a report with a timeline of the whole cluster. .perfetto-trace: a timeline
        for ui.perfetto.dev, with nodes as processes, GPUs as threads, jobs as slices, and waiting jobs by reason as
        counters.
    """
    _check_out(out)
    with screen.progress("jobs") as bar:
        result = fleetlab.simulate(scenario_of(trace, options, bar), progress=bar)
    try:
        if out is not None:
            _save(out, result)
    finally:  # the answer is shown even if the file cannot be written
        screen.show(
            result,
            json=json,
            only=("by GPUs per instance", "by partition", "by queue", "waiting", "left out"),
            short=True,
        )
    if out is not None:
        talk(f"\nwritten to {out}")


@app.command(
    help_epilogue=examples(
        "fleetlab compare builtin:20000",
        "fleetlab compare my-trace --policies fifo,sjf/easy/estimate=group,fifo/easy --load 1.2",
        "fleetlab compare my-trace --conf new-slurm.conf --conf bf_interval=60",
        "fleetlab compare my-trace --scheduler queues.yaml --conf new-queues.yaml",
        "fleetlab compare my-trace --policies fifo,las/preemption=true,my_module:mine --json > compared.json",
    )
)
def compare(
    trace: TraceName,
    *,
    policies: str = "",
    conf: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    options: ScenarioOptions = DEFAULTS,
    replicas: Replicas = None,
    scope: Scope = "log",
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Compare policies on the same arrivals: wait, JCT and slowdown under each, with paired 95 % intervals.

    Parameters
    ----------
    policies
        Policies separated by commas; the first is the baseline. A policy is ORDER/BACKFILL/PLACEMENT/ESTIMATE/SHARING,
        of which the last parts may be left out, or WORD=VALUE for any option below (default: fifo, fifo/easy,
        smallest, sjf with group estimates, sjf; fifo without sharing of GPUs). The options below hold for all of them.
    conf
        Instead of policies: a new slurm.conf, a file of the lines that change, or one such line (bf_interval=60); under
        Kueue, a file of all its objects; repeatable. The baseline is the site as it is configured.
    """
    with screen.progress("policies") as bar:
        scenario = scenario_of(trace, options, bar)
        result = fleetlab.compare(
            scenario, policies=split(policies) or None, conf=conf, replicas=replicas, scope=scope, workers=workers,
            progress=bar,
        )  # fmt: skip
    screen.show(
        result,
        json=json,
        columns=[{"P95 wait": "P90 wait"}.get(name, name) if conf else name for name in COLUMNS],
        short=True,
    )


@app.command(
    help_epilogue=examples(
        "fleetlab check my-trace --conf new-slurm.conf",
        "fleetlab check my-trace --conf bf_interval=60 --rules rules.toml --junit check.xml --markdown check.md",
        "fleetlab check my-trace --scheduler queues.yaml --conf new-queues.yaml",
    )
)
def check(
    trace: TraceName,
    *,
    conf: str,
    rules: Path | None = None,
    markdown: Path | None = None,
    junit: Path | None = None,
    options: ScenarioOptions = DEFAULTS,
    replicas: Replicas = None,
    scope: Scope = "log",
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Test a new configuration of the scheduler against rules before it is deployed; status 1 where one breaks.

    Parameters
    ----------
    conf
        A new slurm.conf, a file of the lines that change, or one such line (bf_interval=60); or objects of Kueue,
        Volcano, KAI or kube-scheduler, with --scheduler for those of today.
    rules
        A TOML file of rules (default: no team's P90 wait worsens by more than 20 %, GPU allocation does not fall by
        more than 1 %, no job becomes unschedulable).
    markdown
        Write a comment for a pull request to this file, and the picture that it shows beside it.
    junit
        Write the verdicts as JUnit XML to this file.
    """
    for out in (markdown, junit):
        screen.may_write(out)
    with screen.progress("configurations") as bar:
        result = fleetlab.check(
            scenario_of(trace, options, bar), conf=conf, rules=rules, replicas=replicas, scope=scope, workers=workers,
            progress=bar,
        )  # fmt: skip
    result.write(markdown, junit)
    screen.show(result, json=json, only=("rules", "changes"), columns=RULE_COLUMNS)
    if not result.passed:
        sys.exit(1)


@app.command(
    help_epilogue=examples(
        "fleetlab pack my-trace --placements fgd,best_fit,random --seeds 42-51", "fleetlab pack builtin:20000 --json"
    )
)
def pack(
    trace: TraceName,
    *,
    placements: str = "fgd,best_fit",
    seeds: str = "42-51",
    cluster: Annotated[str | None, Parameter(help="A TOML file of [[node]] entries (default: the trace's).")] = None,
    nodes: Annotated[str | None, Parameter(help="Nodes to add or remove, such as `T4 +20`.")] = None,
    json: Json = False,
) -> None:
    """Fill a cluster with jobs sampled from a trace until no more fit: GPU allocation and fragmentation by placement.

    Parameters
    ----------
    placements
        Placement policies separated by commas: fgd, best_fit, dot_product, gpu_packing, gpu_clustering, random,
        first_fit, worst_fit.
    seeds
        One run of each per seed: FIRST-LAST, or a list separated by commas.
    """
    with screen.progress("runs") as bar:
        scenario = scenario_of(trace, ScenarioOptions(cluster=cluster, nodes=nodes), bar)
        result = fleetlab.pack(scenario, placements=split(placements), seeds=seeds_of(seeds), progress=bar)
    screen.show(result, json=json, only=("summary",))


def _check_out(out: Path | None) -> None:

    if out is not None and out.suffix not in (".csv", ".parquet", ".html", TIMELINE):
        msg = f"a schedule is written as .csv, .parquet or {TIMELINE}, a report as .html, not: {out.name}"
        raise fleetlab.WorkloadError(msg, hint=f"--out schedule.csv, --out report.html, or --out run{TIMELINE}")
    screen.may_write(out)


def _save(out: Path, result: "SimResult") -> None:

    if out.suffix == TIMELINE:
        with screen.progress("slices") as bar:
            result.write_perfetto(out, bar)
    elif out.suffix == ".html":
        fleetlab.report(result, out)
    else:
        _write(out, result.schedule())


def _write(out: Path, table: "pl.DataFrame") -> None:
    """Write a table atomically; CSV has no lists, so a list is one text joined by `;`."""
    from polars import List, String
    from polars.selectors import list as lists

    from fleetlab.core.files import csv_text

    if out.suffix == ".csv":
        screen.atomic_write(out, csv_text(table.with_columns(lists().cast(List(String)).list.join(";"))))
    else:
        screen.atomic_write(out, table.write_parquet)
