"""Queueing models: what theory says of a queue, and of a cluster.

Each name is imported when first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetlab.queueing.answer import Queue, models, solve
    from fleetlab.queueing.fitting import ClusterModel, model
    from fleetlab.queueing.service import (
        deterministic,
        empirical,
        exponential,
        hyperexponential,
        lognormal,
        mixture,
        moments,
        pareto,
    )

_MODULE = {
    "ClusterModel": "fitting",
    "Queue": "answer",
    "deterministic": "service",
    "empirical": "service",
    "exponential": "service",
    "hyperexponential": "service",
    "lognormal": "service",
    "mixture": "service",
    "model": "fitting",
    "models": "answer",
    "moments": "service",
    "pareto": "service",
    "solve": "answer",
}

__all__ = [
    "ClusterModel",
    "Queue",
    "deterministic",
    "empirical",
    "exponential",
    "hyperexponential",
    "lognormal",
    "mixture",
    "model",
    "models",
    "moments",
    "pareto",
    "solve",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _MODULE:
        msg = f"module 'fleetlab.queueing' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"fleetlab.queueing.{_MODULE[name]}"), name)
