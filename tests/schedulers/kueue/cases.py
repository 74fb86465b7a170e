"""Short spellings for Kueue's objects in tables of cases."""

from fleetlab.schedulers.kueue.candidates import Need
from fleetlab.schedulers.kueue.config import (
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    Kueue,
    PreemptionPolicies,
    ResourceGroup,
    ResourceQuota,
)
from fleetlab.schedulers.kueue.preemption import targets_of
from fleetlab.schedulers.kueue.state import Admitted, Snapshot
from fleetlab.schedulers.kueue.workload import KueueWorkload, PodSet

GPU = "nvidia.com/gpu"
NEVER, ANY, LOWER, NEWER = "Never", "Any", "LowerPriority", "LowerOrNewerEqualPriority"


def quota(amount):
    """A nominal quota, or (nominal, borrowing limit, lending limit); in thousandths, so that half a core is whole."""
    given = amount if isinstance(amount, tuple) else (amount,)
    return ResourceQuota(*(None if one is None else round(one * 1000) for one in given))


def group(**flavors):
    """A resource group: quotas by resource, by flavor in order."""
    made = {name.replace("__", "-"): {r: quota(a) for r, a in resources.items()} for name, resources in flavors.items()}
    covered = tuple(dict.fromkeys(resource for resources in made.values() for resource in resources))
    return ResourceGroup(covered, made)


def cq(name, cohort=None, *groups, within=NEVER, reclaim=NEVER, borrow=None, **words):
    """A ClusterQueue; `borrow` is the threshold of borrowWithinCohort, `cpu` its quota of flavor default."""
    cpu = words.pop("cpu", None)
    if cpu is not None:
        groups = (group(default={"cpu": cpu}), *groups)
    rule = BorrowWithinCohort() if borrow is None else BorrowWithinCohort(LOWER, borrow)
    return ClusterQueue(name, groups, cohort, preemption=PreemptionPolicies(within, reclaim, rule), **words)


def cohort(name, parent=None, cpu=None, weight=1.0, **more):
    """A cohort with quota of its own."""
    resources = {} if cpu is None else {"cpu": cpu, **more}
    return Cohort(name, parent, (group(default=resources),) if resources else (), weight)


def workload(name, queue, priority=0, created=0.0, **resources):
    """A workload of one pod."""
    requests = {resource: round(amount * 1000) for resource, amount in resources.items()}
    return KueueWorkload(name, queue, (PodSet(requests=requests),), priority, created)


def admitted(name, queue, priority=0, since=0.0, created=0.0, evicted=False, flavor="default", **resources):
    """A workload that has quota in one flavor."""
    one = workload(name, queue, priority, created, **resources)
    usage = {(flavor, resource): amount for resource, amount in one.pod_sets[0].requests.items()}
    return Admitted(one, usage, since, created, evicted)


def preempted(objects, running, incoming, flavor="default", short=None, sharing=None):
    """Who is preempted for a workload, and why; the state must be left as it was."""
    state = Snapshot.of(Kueue.of(*objects, *([sharing] if sharing else [])), running)
    amounts = {(flavor, resource): amount for resource, amount in incoming.pod_sets[0].requests.items()}
    needed = frozenset((flavor, resource) for resource in short or incoming.pod_sets[0].requests)
    before = {name: dict(node.usage) for name, node in state.nodes.items()}
    found = targets_of(state, Need(incoming, amounts, needed, incoming.created))
    assert {name: {k: v for k, v in node.usage.items() if v} for name, node in state.nodes.items()} == {
        name: {k: v for k, v in usage.items() if v} for name, usage in before.items()
    }
    return {target.one.name: target.reason for target in found}
