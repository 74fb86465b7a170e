"""What a user's policies see of a site: time limits, classes of service, partitions, and the accounts.

Accounts are a tree: the root, accounts below it, and a leaf for each user in an account, which its jobs belong to. What
they use decays with the site's half-life (PriorityDecayHalfLife), or with 7 days where the trace does not tell one.
Usage is GPU-seconds since the simulation began, of an account with all below it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core.queues import Queue, QueueTree
from fleetlab.core.schedulers import Accounts
from fleetlab.sim.associations import associations_of, places
from fleetlab.sim.jit import inner, step
from fleetlab.sim.layout import Floats, Ints, Records, record, table
from fleetlab.sim.world import World

ACCOUNT = record("parent level shares:f factor:f used:f rate:f since:f")
#   parent: -1 for the root; level: 0 for the root; shares: its part of all; used: GPU-seconds, decayed to the time
#   `since`; rate: GPUs that its jobs hold
ROOT, NO_ACCOUNT = "root", "(none)"


@dataclass(frozen=True, slots=True, eq=False)
class SiteView:
    """Columns of jobs and of classes of service, and the table of accounts, which a loop updates."""

    limit: Floats  # [jobs]
    qos: Ints  # [jobs]
    partition: Ints  # [jobs]
    account: Ints  # [jobs]: row of `accounts`
    qos_priority: Ints  # [classes of service + 1]: the last is for jobs without one
    accounts: Records  # ACCOUNT
    decay: float  # of usage: 1/s

    @classmethod
    def of(cls, world: World, accounts: Accounts | None = None) -> SiteView:
        """Return what a scheduler of a site could know beside the requests of its jobs."""
        frame = world.frame
        names = frame.select(pl.col("queue", "user", "qos").cast(pl.String))
        site = accounts or Accounts()
        tree = site.tree if len(site.tree) else _tree(names)
        qos, priority = _classes(names["qos"], accounts)
        return cls(
            limit=frame["limit"].cast(pl.Float64).fill_null(math.inf).to_numpy().copy(), qos=qos,
            partition=_partitions(world), account=_leaves(names, tree), qos_priority=priority, accounts=_accounts(tree),
            decay=math.log(2.0) / site.half_life if site.half_life > 0 else 0.0,
        )  # fmt: skip

    @classmethod
    def blank(cls, jobs: int) -> SiteView:
        """Return columns for loops that ask no policy."""
        zeros = np.zeros(jobs, dtype=np.int64)
        return cls(np.zeros(jobs), zeros, zeros, zeros, zeros[:1], table(1, ACCOUNT), 0.0)


def _tree(names: pl.DataFrame) -> QueueTree:
    """Return the accounts that jobs name, all with the same shares."""
    queues = {ROOT: Queue(ROOT)}
    for account, user in names.select("queue", "user").unique().sort("queue", "user").iter_rows():
        above = account or NO_ACCOUNT
        queues.setdefault(above, Queue(above, ROOT))
        queues.setdefault(f"{account}/{user}", Queue(f"{account}/{user}", above, user=user or ""))
    return QueueTree(queues.values())


def _leaves(names: pl.DataFrame, tree: QueueTree) -> Ints:
    rows = places(tree)
    pairs = names.select("queue", "user").unique()
    queues = [tree.of(account, user) for account, user in pairs.iter_rows()]
    pairs = pairs.with_columns(row=pl.Series([rows[q.name] if q else 0 for q in queues], dtype=pl.Int64))
    joined = names.join(pairs, on=["queue", "user"], how="left", nulls_equal=True, maintain_order="left")
    return joined["row"].to_numpy().copy()


def _accounts(tree: QueueTree) -> Records:
    associations = associations_of(tree, fair_tree=False)
    level = np.zeros(len(associations.parent), dtype=np.int64)
    for row in range(1, len(level)):
        level[row] = level[associations.parent[row]] + 1
    return table(
        len(level), ACCOUNT, parent=associations.parent, level=level, shares=associations.shares_norm, factor=1.0
    )


def _classes(names: pl.Series, site: Accounts | None) -> tuple[Ints, Ints]:
    classes = [q.name for q in site.qos] if site is not None else names.drop_nulls().unique().sort().to_list()
    priority = [q.priority for q in site.qos] if site is not None else [0] * len(classes)
    number = {name: k for k, name in enumerate(classes)}
    qos = [number.get(name, len(classes)) for name in names.to_list()]
    return np.array(qos, dtype=np.int64), np.array([*priority, 0], dtype=np.int64)


def _partitions(world: World) -> Ints:
    """Return the first partition that each job names, -1: none."""
    number = {name: k for k, name in enumerate(world.partitions)}
    first = [number[names[0]] if names else -1 for names in world.queues]
    return np.array(first, dtype=np.int64)[world.queue]


@inner
def bring_to(accounts: Records, row: int, decay: float, now: float) -> None:
    """Let the usage of an account be that of now."""
    account = accounts[row]
    seconds = now - account.since
    if seconds > 0.0:
        if decay > 0.0:
            remaining = math.exp(-decay * seconds)
            account.used = account.used * remaining + account.rate * (1.0 - remaining) / decay
        else:
            account.used += account.rate * seconds
    account.since = now


@step
def charge_accounts(accounts: Records, row: int, gpus: float, decay: float, now: float) -> None:
    """Let a job that starts count in its account and all above; with negative `gpus` one that ends."""
    while row >= 0:
        bring_to(accounts, row, decay, now)
        accounts[row].rate += gpus
        row = accounts[row].parent


@step
def update_accounts(accounts: Records, decay: float, now: float) -> None:
    """Bring all usage to now, and compute fair-share factors: 2 to the power of -(part of usage / part of shares)."""
    for row in range(len(accounts)):
        bring_to(accounts, row, decay, now)
    for row in range(len(accounts)):
        account = accounts[row]
        if account.shares <= 0.0:
            account.factor = 0.0
        elif accounts[0].used <= 0.0:
            account.factor = 1.0
        else:
            account.factor = 2.0 ** -(account.used / accounts[0].used / account.shares)
