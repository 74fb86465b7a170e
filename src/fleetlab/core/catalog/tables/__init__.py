"""Tables of every result, and of the files that commands write: what a row is, and what each column means."""

from fleetlab.core.catalog.tables import (
    bench,
    bench_choices,
    bench_probes,
    describe,
    planning,
    questions,
    queueing,
    sharing,
    simulation,
    studies,
    sweeps,
    traces,
)
from fleetlab.core.catalog.tables.files import FILES
from fleetlab.core.catalog.tables.shared import SHARED
from fleetlab.core.catalog.tables.table import Described, Table, without_mark

ROOMS = (
    traces, describe, simulation, questions, studies, sweeps, planning, queueing, sharing, bench, bench_choices,
    bench_probes,
)  # fmt: skip
RESULTS = tuple(one for room in ROOMS for one in room.RESULTS)

__all__ = ["FILES", "RESULTS", "SHARED", "Described", "Table", "without_mark"]
