"""`fleetlab bench …`: words to a plan or a folder, one verb, print."""

from __future__ import annotations

from cyclopts import App

from fleetlab.commands.bench import foretell, measure, measured, serve, watch
from fleetlab.commands.words import examples, open_desk, version

bench = App(
    name="bench",
    help="Measure how work shares a GPU: real tenants, alone and beside each other.",
    help_epilogue=examples("fleetlab bench suite pairs-ts --out pairs", "fleetlab bench show pairs"),
    help_format="plaintext",
    version=version,
)
for room in (measure, serve, measured, watch, foretell):
    open_desk(bench, room.desk)
