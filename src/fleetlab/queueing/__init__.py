"""Queueing models: what theory says of a queue, and of a cluster.

Each name is imported when first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetlab.queueing.cluster.model import ClusterModel, model
    from fleetlab.queueing.distributions import (
        deterministic,
        empirical,
        exponential,
        hyperexponential,
        lognormal,
        mixture,
        moments,
        pareto,
    )
    from fleetlab.queueing.solver import Queue, models, solve

_MODULE = {
    "ClusterModel": "cluster.model",
    "Queue": "solver",
    "deterministic": "distributions",
    "empirical": "distributions",
    "exponential": "distributions",
    "hyperexponential": "distributions",
    "lognormal": "distributions",
    "mixture": "distributions",
    "model": "cluster.model",
    "models": "solver",
    "moments": "distributions",
    "pareto": "distributions",
    "solve": "solver",
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
