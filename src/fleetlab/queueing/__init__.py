"""Queueing models: formulas by name, and a model of a cluster; each name is imported on first use."""

from typing import TYPE_CHECKING

from fleetlab.core.lazy import lazy

if TYPE_CHECKING:
    from fleetlab.queueing.catalogue import QueueSolution as QueueSolution
    from fleetlab.queueing.catalogue import models as models
    from fleetlab.queueing.catalogue import solve as solve
    from fleetlab.queueing.cluster.model import ClusterModel as ClusterModel
    from fleetlab.queueing.cluster.model import model as model
    from fleetlab.queueing.distributions import deterministic as deterministic
    from fleetlab.queueing.distributions import empirical as empirical
    from fleetlab.queueing.distributions import exponential as exponential
    from fleetlab.queueing.distributions import hyperexponential as hyperexponential
    from fleetlab.queueing.distributions import lognormal as lognormal
    from fleetlab.queueing.distributions import mixture as mixture
    from fleetlab.queueing.distributions import moments as moments
    from fleetlab.queueing.distributions import pareto as pareto

lazy(__name__)
