"""What pods and nodes say of themselves besides amounts, as series of the trace: pods that say the same have one spec.

Of a pod's labels those are kept that some pod or budget selects by: others decide nothing, and tell every pod apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import polars as pl

from fleetlab.core.admission import CreatedPod
from fleetlab.core.kubernetes import CONTROLLER, DisruptionBudget, SchedulingNode, SchedulingPod, Selector
from fleetlab.core.pod_specs import NODES, PODS, SPECS
from fleetlab.traces.kubernetes.gangs import Row
from fleetlab.traces.kubernetes.nodes import passes
from fleetlab.traces.kubernetes.objects import Object
from fleetlab.traces.kubernetes.scheduling import scheduling_node

Spec = tuple[SchedulingPod, CreatedPod]


def node_spec(item: Object) -> SchedulingNode:
    """Read a node without its amounts, but for how many pods it takes, and without what comes and goes."""
    node = scheduling_node(item)
    pods = {"pods": node.allocatable["pods"]} if "pods" in node.allocatable else {}
    taints = tuple(taint for taint in node.taints if not passes(taint.key))
    return replace(node, allocatable=pods, taints=taints, cordoned=False)


def spec_series(
    gangs: list[list[Row]],
    jobs: pl.DataFrame,
    specs: Mapping[str, Spec],
    nodes: Iterable[SchedulingNode],
    budgets: Iterable[DisruptionBudget],
) -> dict[str, pl.LazyFrame]:
    """Return the series; `jobs` says which number each gang has got."""
    keys = {CONTROLLER, *(one.key for selector in _selectors(specs.values(), budgets) for one in selector.labels)}
    numbers: dict[tuple[str, str], int] = {}
    rows = [(at, _number(_of_gang(gang, specs), keys, numbers)) for at, gang in enumerate(gangs)]
    frame = pl.DataFrame(rows, schema={"at": pl.Int64, "spec": pl.Int64}, orient="row")
    texts = [(number, pod, created) for (pod, created), number in numbers.items()]
    of_nodes = [(node.name, _text(node.to_values())) for node in nodes]
    return {
        PODS: frame.join(jobs.select("at", "job"), on="at").sort("job").select("job", "spec").lazy(),
        SPECS: pl.LazyFrame(texts, schema={"spec": pl.Int64, "pod": pl.String, "created": pl.String}, orient="row"),
        NODES: pl.LazyFrame(of_nodes, schema={"node": pl.String, "spec": pl.String}, orient="row"),
    }


def _of_gang(gang: list[Row], specs: Mapping[str, Spec]) -> Spec:
    """What its first pod says; a gang has left when the last of its pods has."""
    pod, created = specs[gang[0]["key"]]
    return replace(pod, grace=max(specs[row["key"]][0].grace for row in gang)), created


def _number(spec: Spec, keys: set[str], numbers: dict[tuple[str, str], int]) -> int:
    pod, created = spec
    labels = {key: value for key, value in pod.labels.items() if key in keys}
    plain = replace(pod, name="", requests={}, priority=0, labels=labels)
    return numbers.setdefault((_text(plain.to_values()), _text(created.to_values())), len(numbers))


def _selectors(specs: Iterable[Spec], budgets: Iterable[DisruptionBudget]) -> Iterator[Selector]:
    yield from (budget.selector for budget in budgets)
    for pod, _ in specs:
        yield from (one.selector for one in pod.spread)
        terms = (*pod.affinity, *pod.anti_affinity, *(term for _, term in pod.preferred_affinity))
        yield from (term.selector for term in terms if term.selector is not None)


def _text(values: object) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"))
