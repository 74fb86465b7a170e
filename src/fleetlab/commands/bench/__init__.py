"""`fleetlab bench …`: measure GPU sharing, serve and load, monitor."""

from __future__ import annotations

from cyclopts import App

from fleetlab.commands.bench import measure, predict, results
from fleetlab.commands.options import add_commands, examples, version

bench = App(
    name="bench",
    help="Measure how workloads share a GPU: alone, and beside each other.",
    help_epilogue=examples("fleetlab bench suite pairs-ts --out pairs", "fleetlab bench show pairs"),
    help_format="plaintext",
    version=version,
)
for group in (measure, results, predict):
    add_commands(bench, group.app)
