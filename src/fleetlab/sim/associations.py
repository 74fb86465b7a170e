"""Associations as arrays: the tree of accounts and users that shares and usage are compared in.

Slurm keeps two parents of an association. Usage is added to every account above it (`parent`). Shares are compared with
those of its siblings below the nearest account that has shares of its own (`level`): an account with `Fairshare=parent`
has no level, and its users stand beside the account itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fleetlab.core.queues import QueueTree
from fleetlab.sim.layout import Floats, Ints

OF_PARENT = -1.0  # shares: those of the parent


class Associations(NamedTuple):
    """The tree, the root first and parents before children; nothing of it changes."""

    parent: Ints  # -1: of the root
    level: Ints  # the account among whose children it is compared; -1: of the root
    user: Ints  # 1: of one user, 0: an account
    shares: Floats  # raw; OF_PARENT
    level_shares: Floats  # of it and its siblings together
    shares_norm: Floats  # sshare's NormShares
    first: Ints  # [associations + 1]: where the children of each begin in `children`
    children: Ints  # by `level`
    users: int  # how many are of a user


def places(queues: QueueTree) -> dict[str, int]:
    """Return the row of each queue; row 0 is the root's, which is made where the tree has several or none."""
    roots = [name for name, queue in queues.items() if queue.parent is None]
    lone = len(roots) == 1 and queues[roots[0]].user is None
    others = [name for name in queues if not (lone and name == roots[0])]
    rows = {name: row for row, name in enumerate(others, start=1)}
    return {roots[0]: 0, **rows} if lone else rows


def associations_of(queues: QueueTree, *, fair_tree: bool = True) -> Associations:
    """Build the tree of a site's accounts; without `fair_tree` normalized shares are of the whole, not of the level."""
    rows = places(queues)
    size = max(rows.values(), default=0) + 1
    parent, user, shares = np.full(size, -1), np.zeros(size, np.int64), np.ones(size)
    for name, row in rows.items():
        queue = queues[name]
        user[row] = queue.user is not None
        shares[row] = OF_PARENT if queue.shares is None else queue.shares
        if row:
            parent[row] = rows.get(queue.parent or "", 0)
    shares[0] = 1.0  # the root is the highest level
    level = _levels(parent, shares)
    children, first = _children(level)
    sums = _level_shares(level, shares)
    norm = _within_level(level, shares, sums) if fair_tree else _down_from_root(parent, level, shares, sums)
    return Associations(parent, level, user, shares, sums, norm, first, children, int(user.sum()))


def usage_of(queues: QueueTree) -> Floats:
    """Return the usage of each association when the log begins; an account has at least that of its children."""
    rows = places(queues)
    own = np.zeros(max(rows.values(), default=0) + 1)
    for name, row in rows.items():
        own[row] = queues[name].usage
    below = _children_sums(rows, queues, own)
    return np.asarray(np.maximum(own, below))


def _children_sums(rows: Mapping[str, int], queues: QueueTree, own: Floats) -> Floats:
    total, below = own.copy(), np.zeros(len(own))
    for name in reversed(list(queues)):
        row = rows[name]
        total[row] = max(own[row], below[row])
        if row:
            below[rows.get(queues[name].parent or "", 0)] += total[row]
    return below


def _levels(parent: Ints, shares: Floats) -> Ints:
    level = np.full(len(parent), -1)
    for row in range(1, len(parent)):
        above = parent[row]
        while shares[above] == OF_PARENT:
            above = parent[above]
        level[row] = above
    return level


def _children(level: Ints) -> tuple[Ints, Ints]:
    children = np.argsort(level[1:], kind="stable").astype(np.int64) + 1
    counts = np.bincount(level[1:], minlength=len(level)) if len(level) > 1 else np.zeros(1, np.int64)
    return children, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _level_shares(level: Ints, shares: Floats) -> Floats:
    sums = np.zeros(len(level))
    for row in range(1, len(level)):
        if shares[row] != OF_PARENT:
            sums[level[row]] += shares[row]
    return np.array([0.0, *sums[level[1:]]])


def _within_level(level: Ints, shares: Floats, sums: Floats) -> Floats:
    norm = np.zeros(len(level))
    for row in range(len(level)):
        of = level[row] if shares[row] == OF_PARENT else row
        norm[row] = shares[of] / sums[of] if sums[of] else 0.0
    return norm


def _down_from_root(parent: Ints, level: Ints, shares: Floats, sums: Floats) -> Floats:
    norm = np.ones(len(level))
    for row in range(1, len(level)):
        if shares[row] == OF_PARENT:
            norm[row] = norm[level[row]]
            continue
        at = row
        while at:
            if shares[at] != OF_PARENT:
                norm[row] = norm[row] * (shares[at] / sums[at]) if sums[at] else 0.0
            at = parent[at]
    return norm
