"""`fleetlab share …`: how the tenants of a card share it, seen, switched on and put back."""

from __future__ import annotations

from cyclopts import App

from fleetlab._words import examples

share = App(
    name="share",
    help="How tenants share a GPU: see it, switch MPS on and off, look at MIG layouts.",
    help_epilogue=examples("fleetlab share status"),
    help_format="plaintext",
)
