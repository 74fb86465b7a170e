"""The tree of queues as arrays: quotas, what is kept from lending, the most that may be held, and shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleetlab.core.catalog import PREEMPTS, QueueRule
from fleetlab.core.queue_rules import Queues
from fleetlab.core.queues import Amounts, Queue, QueueTree
from fleetlab.sim.layout import Floats, Ints, Records, table
from fleetlab.sim.quota import NO_LIMIT, QUEUE_ROW, UNBOUND

ROOT = "(all queues)"  # made where whatever is idle may be borrowed, and the queues have no root in common
CODES = tuple(PREEMPTS)


@dataclass(frozen=True, slots=True, eq=False)
class TreeTables:
    """Rows are the queues of a tree, parents before children; the last is of jobs in no queue."""

    rows: Mapping[str, int]
    queues: Records  # QUEUE_ROW
    amounts: Ints  # [queues, 4, resources]: QUOTA, KEPT, MOST, USED
    shares: Floats  # [queues, 2, resources]: BASE, SCALE
    potential: Floats  # [queues, resources]: the most that one may hold if nobody else holds anything


def tree_tables(queues: Queues, units: Mapping[str, int], totals: Mapping[str, float]) -> TreeTables:
    """Return the tables of a tree; `units` has the resources, `totals` what the cluster has of them, in units."""
    rule, tree = queues.rule, _with_root(queues.tree) if queues.rule.idle else queues.tree
    rows = {name: row for row, name in enumerate(tree)}
    members = [*tree.values(), Queue("")]
    parent = np.array([rows.get(queue.parent or "", -1) for queue in members], dtype=np.int64)
    guaranteed, lending, borrowing = (
        _amounts([getattr(queue, name) for queue in members], units) for name in ("guaranteed", "lending", "borrowing")
    )
    root = _roots(parent)
    bounded = np.zeros(guaranteed.shape, dtype=bool)
    for row in range(len(members)):
        bounded[row] = (guaranteed[root == root[row]] >= 0).any(axis=0)
    quota, unlent = _quotas(parent, np.maximum(guaranteed, 0), lending)
    quota, unlent = np.where(bounded, quota, UNBOUND), np.where(bounded, unlent, 0)
    most = np.where(bounded & (borrowing >= 0), quota + borrowing, NO_LIMIT)
    top = NO_LIMIT if rule.idle else quota
    most = np.where(parent[:, None] < 0, np.where(bounded, top, NO_LIMIT), most)
    shares = _shares(rule, members, quota, bounded, root, np.array([totals.get(name, 0.0) for name in units]))
    return TreeTables(
        rows, _rows(rule, members, parent), np.stack([quota, unlent, most, np.zeros_like(quota)], axis=1), shares,
        _potential(parent, unlent, most),
    )  # fmt: skip


def _with_root(tree: QueueTree) -> QueueTree:
    tops = [queue for queue in tree.values() if queue.parent is None]
    if len(tops) < 2:
        return tree
    below = [replace(queue, parent=queue.parent or ROOT) for queue in tree.values()]
    return QueueTree([Queue(ROOT), *below])


def _amounts(stated: Sequence[Amounts], units: Mapping[str, int]) -> Ints:
    rows = [[round(of[name] * unit) if name in of else -1 for name, unit in units.items()] for of in stated]
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(units))


def _roots(parent: Ints) -> Ints:
    root = np.arange(len(parent))
    for row in range(len(parent)):
        if parent[row] >= 0:
            root[row] = root[parent[row]]
    return root


def _quotas(parent: Ints, own: Ints, lending: Ints) -> tuple[Ints, Ints]:
    """Return the quota of each queue, with what those below lend, and the part of it that it keeps for itself."""
    quota, unlent = own.copy(), np.zeros_like(own)
    for row in range(len(parent) - 1, -1, -1):
        unlent[row] = np.where(lending[row] >= 0, np.maximum(0, quota[row] - lending[row]), 0)
        if parent[row] >= 0:
            quota[parent[row]] += quota[row] - unlent[row]
    return quota, unlent


def _potential(parent: Ints, unlent: Ints, most: Ints) -> Floats:
    potential = np.where(most >= 0, most, np.inf)
    for row in range(len(parent)):
        if parent[row] >= 0:
            potential[row] = np.minimum(potential[row], unlent[row] + potential[parent[row]])
    return potential


def _rows(rule: QueueRule, members: Sequence[Queue], parent: Ints) -> Records:
    depth = np.zeros(len(parent), dtype=np.int64)
    for row in range(len(parent)):
        depth[row] = depth[parent[row]] + 1 if parent[row] >= 0 else 0
    codes = {
        name: [CODES.index(getattr(queue, name) or getattr(rule, name)) for queue in members]
        for name in ("reclaim", "within", "borrow")
    }
    strict = [rule.strict if queue.strict is None else queue.strict for queue in members]
    strict[-1] = False
    shown = [queue.shares is not None for queue in members]
    return table(len(parent), QUEUE_ROW, parent=parent, depth=depth, shown=shown, strict=strict, **codes)


def _shares(
    rule: QueueRule, members: Sequence[Queue], quota: Ints, bounded: Ints, root: Ints, totals: Floats
) -> Floats:  # fmt: skip
    """Return what a queue may hold before it counts, and what the rest is divided by: infinity where nothing counts."""
    weight = np.array([1.0 if queue.shares is None else queue.shares for queue in members])[:, None]
    base, scale = np.zeros(quota.shape), np.full(quota.shape, np.inf)
    if rule.share == "used":
        scale = np.where(totals > 0, totals * weight, np.inf)
    elif rule.share == "guaranteed":
        scale = np.where(bounded, quota * weight, np.inf)
    elif rule.share == "borrowed":
        base, scale = quota.astype(np.float64), np.where(bounded, quota[root] * weight, np.inf)
    return np.stack([base, scale], axis=1)
