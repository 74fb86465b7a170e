"""`fleetlab bench …`: measure GPU sharing, serve and load, monitor."""

from __future__ import annotations

from cyclopts import App

from fleetlab.commands.bench import measure, monitor, predict, results, serving, slices
from fleetlab.commands.words import examples, open_desk, version

bench = App(
    name="bench",
    help="Measure how workloads share a GPU: alone, and beside each other.",
    help_epilogue=examples("fleetlab bench suite pairs-ts --out pairs", "fleetlab bench show pairs"),
    help_format="plaintext",
    version=version,
)
for room in (measure, serving, results, monitor, predict, slices):
    open_desk(bench, room.desk)
