"""Tables of traces: read, made, downloaded, shown; and of a running cluster."""

from __future__ import annotations

from fleetlab.core.catalog.tables.table import described

TRACE = described(
    "read, synthesize, show",
    {
        "rows": ("a table of the log", "table | rows | kept | rejected"),
        "rejects": ("a reason", "table | reason | rows | first"),
        "status": ("how jobs ended", "status | jobs | instances"),
        "nodes": ("a GPU type", "gpu_type | nodes | gpus | cpu_milli | memory_mib"),
    },
    {
        "table": "table of the log",
        "rows": "rows of it; of a reason, rows that were rejected for it",
        "kept": "rows that became jobs, instances or nodes",
        "rejected": "rows that could not be kept: kept and rejected sum to rows",
        "reason": "why rows cannot be kept",
        "first": "file and line of the first",
        "status": "how they ended in the log: completed, failed, cancelled, running, waiting",
        "gpus": "GPUs of all these nodes",
        "cpu_milli": ("CPU cores of all these nodes", "1/1,000 cores"),
        "memory_mib": ("memory of all these nodes", "MiB"),
    },
)
FETCH = described(
    "fetch",
    {"files": ("a file", "file | bytes | state | check | sha256")},
    {
        "file": "its name",
        "bytes": ("its size", "bytes"),
        "state": "fetched, already there, or replaced",
        "check": "whether its checksum was verified, and against what",
        "sha256": "its SHA-256 digest",
    },
)
FORMATS = described(
    "traces",
    {"formats": ("a format", "format | title | expects | licence | origin | options | fetch")},
    {
        "format": "what `fleetlab read` takes",
        "title": "what it is",
        "expects": "files and columns that it reads",
        "licence": "license of the public trace, if it is one",
        "origin": "where the data or the format comes from",
        "options": "options of `read` that it takes; null: none",
        "fetch": "the command that downloads it; null: it cannot be",
    },
)
WATCH = described(
    "watch",
    {
        "waiting": ("a queue and a reason", "queue | reason | jobs | GPUs | longest wait, s"),
        "running": ("a queue", "queue | jobs | GPUs"),
        "gpus": ("a GPU type", "gpu_type | GPUs | allocated | free | fragmented | unavailable"),
    },
    {
        "queue": "partition, queue or namespace of the jobs",
        "reason": "why they wait, as the scheduler says",
        "longest wait, s": ("how long the first of them has waited", "s"),
        "allocated": "GPUs given to jobs",
        "free": "GPUs on nodes that are up and free",
        "fragmented": "free GPUs that the jobs at hand cannot use, weighed by how frequent these are",
        "unavailable": "GPUs on nodes that are down or drained",
    },
)
RESULTS = (TRACE, FETCH, FORMATS, WATCH)
