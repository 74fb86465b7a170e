"""What each column of a trace and of a schedule means: jobs, nodes, other tables."""

from __future__ import annotations

from dataclasses import dataclass

from fleetlab.core.catalog import REASONS, RESOURCES, Catalog


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    meaning: str
    unit: str = ""


def _columns(kind: str, *columns: tuple[str, ...]) -> Catalog[Column]:
    return Catalog(f"column of {kind}", tuple(Column(*column) for column in columns))


def _amount(meaning: str, unit: str, scale: int) -> tuple[str, str]:
    return meaning, unit if scale == 1 else f"1/{scale:,} {unit}"


def _capacities(*, divisible: bool) -> list[tuple[str, str, str]]:
    """Return what a node has: GPUs are counted, the rest are amounts."""
    resources = [r for r in RESOURCES if r.divisible == divisible]
    counted = ("gpus", "number of GPUs", "")
    return [counted if r.capacity == "gpus" else (r.capacity, *_amount(r.meaning, r.unit, r.scale)) for r in resources]


JOBS = _columns(
    "jobs",
    ("job", "number of the job: its row, in the order of submission"),
    ("parent", "number shared by jobs that the log groups; without groups, each job's own"),
    ("user", "who submitted it"),
    ("group", "what the log groups jobs of a user by: account, job name, project"),
    ("app", "which program or service it is"),
    ("submit", "submission, from the first one of the trace on", "s"),
    ("eligible", "earliest start that begin times and holds allow; null: at once", "s"),
    ("runtime", "how long it runs on GPUs of its own; null: unknown", "s"),
    ("runtime_at_least", "how long a job of unknown runtime was seen to run", "s"),
    ("instances", "identical pieces, which start together"),
    *((r.request, *_amount(f"request of each instance: {r.meaning}", r.unit, r.scale)) for r in RESOURCES),
    ("gpu_types", "GPU types that it may use; empty: any"),
    ("partitions", "partitions that it may use; empty: any"),
    ("constraint", "features that its nodes must have: names with &, | and parentheses"),
    ("reservation", "advance reservation that it runs in"),
    ("max_per_node", "most instances of its app on one node; 0: no limit"),
    ("distinct_nodes", "whether each instance needs a node of its own"),
    ("exclusive", "whether it takes whole nodes"),
    ("requeue", "whether it runs again after a failed node or a preemption; null: as the scheduler decides"),
    ("queue", "queue or account that it is charged to"),
    ("qos", "quality of service"),
    ("priority", "priority: higher goes first"),
    ("nice", "what the user takes off its priority"),
    ("limit", "walltime limit; null: none", "s"),
    ("depends_on", "jobs that it waits for"),
    ("dependency", "for each of those, what it waits for: after, afterany, afterok, afternotok"),
    ("gang", "number shared by jobs that start together"),
    ("array", "number shared by the jobs of an array"),
    ("array_limit", "most jobs of the array that run at once; 0: no limit"),
    ("status", "how it ended in the log: completed, failed, cancelled, running, waiting"),
    ("start", "start that the log recorded", "s"),
    ("end", "end that the log recorded", "s"),
    ("initial", "whether it was there when the log began"),
)
NODES = _columns(
    "nodes",
    ("node", "its name, which no other node has"),
    ("pool", "what nodes alike are called"),
    ("gpu_type", "type of its GPUs"),
    *_capacities(divisible=False),
    *_capacities(divisible=True),
    ("partitions", "partitions that it is in"),
    ("features", "features that a constraint may ask for"),
    ("weight", "Slurm takes nodes of a low weight first"),
)  # fmt: skip
INSTANCES = _columns(
    "instances",
    ("job", "number of the job"),
    ("worker", "number of the instance in this trace: joins the table `usage`"),
    ("node", "where the log saw it run"),
    ("status", "how it ended in the log"),
    ("start", "start that the log recorded", "s"),
    ("end", "end that the log recorded", "s"),
)
REJECTS = _columns(
    "rejects",
    ("table", "which table of the log"),
    ("file", "file of the row"),
    ("line", "line in that file"),
    ("reason", "why the row cannot be kept"),
)
COUNTS = _columns(
    "counts",
    ("table", "which table of the log"),
    ("rows", "rows that were read"),
    ("kept", "rows that became jobs, instances or nodes"),
    ("rejected", "rows in `rejects`: kept and rejected sum to rows"),
)
SCHEDULE = _columns(
    "a schedule",
    ("job", "number of the job"),
    ("name", "the log's own id of the job"),
    *((c, JOBS[c].meaning, JOBS[c].unit) for c in (
        "submit", "runtime", "instances", "gpu_milli", "gpu_types", "partitions", "user", "group", "app", "queue",
        "initial",
    )),
    ("start", "simulated start; null: it did not start", "s"),
    ("end", "simulated end; null: it did not end", "s"),
    ("wait", "all its waiting, also after a preemption", "s"),
    ("jct", "job completion time: submission to end", "s"),
    ("slowdown", "jct over runtime; null where runtime is 0"),
    ("bounded_slowdown", "the same with a runtime of at least 10 s, at least 1"),
    ("preemptions", "how often it was preempted"),
    ("failures", "how often it lost a node"),
    ("lost", "runtime lost to failures, or spent on checkpoints and restarts", "s"),
    ("status", "done, running, waiting, or cut short: ended for good by a preemption, a failed node or a limit"),
    *((f"wait_{r.name}", f"waiting because {r.meaning}", "s") for r in REASONS),
    ("nodes", "nodes that it ran on (at last)"),
    ("gpus", "GPUs of each of them that it ran on: a bit for each, 1 for the first"),
    ("left_out", "why it was not simulated; null: it was"),
)  # fmt: skip
