"""The nouns that every package shares, each checked once when it is built.

Names are imported on first use, so that help and catalogs need no data frames.
"""

from typing import TYPE_CHECKING

from fleetlab.core.lazy import lazy

if TYPE_CHECKING:
    from fleetlab.core.cluster import Cluster as Cluster
    from fleetlab.core.errors import DeviceError as DeviceError
    from fleetlab.core.errors import FleetlabError as FleetlabError
    from fleetlab.core.errors import PolicyError as PolicyError
    from fleetlab.core.errors import TraceError as TraceError
    from fleetlab.core.errors import WorkloadError as WorkloadError
    from fleetlab.core.estimate import Estimate as Estimate
    from fleetlab.core.estimate import say as say
    from fleetlab.core.events import Drain as Drain
    from fleetlab.core.events import Elastic as Elastic
    from fleetlab.core.events import Faults as Faults
    from fleetlab.core.events import Outage as Outage
    from fleetlab.core.events import Recovery as Recovery
    from fleetlab.core.events import Spot as Spot
    from fleetlab.core.figure import Figure as Figure
    from fleetlab.core.policy import Policy as Policy
    from fleetlab.core.prices import Prices as Prices
    from fleetlab.core.progress import Progress as Progress
    from fleetlab.core.provenance import Provenance as Provenance
    from fleetlab.core.result import Result as Result
    from fleetlab.core.result import SavedResult as SavedResult
    from fleetlab.core.result import as_json as as_json
    from fleetlab.core.scenario import Scenario as Scenario
    from fleetlab.core.schedulers import Feature as Feature
    from fleetlab.core.schedulers import Scheduler as Scheduler
    from fleetlab.core.speed import Speed as Speed
    from fleetlab.core.trace import Trace as Trace
    from fleetlab.core.words import Words as Words
    from fleetlab.core.workload import Workload as Workload

lazy(__name__)
