"""The simulator's room: what would happen to these tasks on that cluster.

So far it holds the packing study; the compiled loops are imported when a verb is called, not before.
"""

from __future__ import annotations

from typing import Any

__all__ = ["pack"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name != "pack":
        msg = f"module 'fleetlab.sim' has no attribute {name!r}"
        raise AttributeError(msg)
    from fleetlab.sim.packing import pack

    return pack
