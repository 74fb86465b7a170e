"""Queueing models: formulas by name, and a model of a cluster; each name is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetlab.core.lazy import lazy

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
    )  # fmt: skip
    from fleetlab.queueing.solver import QueueSolution, models, solve

__all__ = [
    "ClusterModel", "QueueSolution", "deterministic", "empirical", "exponential", "hyperexponential", "lognormal",
    "mixture", "model", "models", "moments", "pareto", "solve",
]  # fmt: skip

_MODULE = {"ClusterModel": "cluster.model", "model": "cluster.model"}
_MODULE |= dict.fromkeys(("QueueSolution", "models", "solve"), "solver")
lazy(__name__, {name: f"{__name__}.{_MODULE.get(name, 'distributions')}" for name in __all__})
