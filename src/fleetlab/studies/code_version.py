"""The version of the code that decides the result of a simulation."""

from __future__ import annotations

from fleetlab.core.provenance import code_digest

PACKAGES = ("fleetlab.core", "fleetlab.schedulers", "fleetlab.sim", "fleetlab.stats", "fleetlab.traces.synthesize")


def code_version(*modules: str) -> str:
    """Return a digest of the simulator's source text, and of some more modules: one changed line changes it."""
    return code_digest(*PACKAGES, *modules)
