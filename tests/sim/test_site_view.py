"""What policies of one's own see of a site: usage that decays, shares, classes of service, partitions, limits."""

import math

import numpy as np
import polars as pl
import pytest

from fleetlab import check_order, order, simulate
from fleetlab.core import Cluster, Scenario, Workload
from fleetlab.core.queues import Qos, Queue, QueueTree
from fleetlab.schedulers.slurm.config import Priority, Slurm
from fleetlab.sim.layout import table
from fleetlab.sim.simulate import world_of
from fleetlab.sim.site_view import ACCOUNT, SiteView, charge_accounts, update_accounts

HOUR = 3600.0


@order
def least_used(s, job, now):
    """Whose account used least lately goes first; then whose user did."""
    user = s.account[job]
    return s.decayed[s.parent[user]] + 1e-6 * s.decayed[user]


@order
def fair(s, job, now):
    """The highest fair-share factor first."""
    return -s.fair_share[s.account[job]]


@order
def urgent(s, job, now):
    """The highest QOS first; of those, the shortest time limit."""
    return -1e9 * s.qos_priority[s.qos[job]] + s.limit[job]


@order
def by_partition(s, job, now):
    """Jobs of the second partition first, then of deeper accounts."""
    return -10.0 * s.partition_id[job] - s.level[s.account[job]]


def log(*rows, **columns):
    """(submit, runtime, user, account): jobs that take all eight GPUs."""
    submit, runtime, user, account = zip(*rows, strict=True)
    frame = pl.DataFrame({"submit": submit, "runtime": runtime, "user": user, "queue": account, **columns})
    return Workload.of(frame.with_columns(gpu_milli=8000), source="by hand")


def starts(workload, policy, **words):
    return simulate(workload, Cluster.uniform(1, 8), order=policy, **words).jobs.sort("job")["start"].to_list()


TWO_TEAMS = (
    (0.0, HOUR, "ann", "vision"), (1.0, HOUR, "bob", "speech"), (2.0, HOUR, "ann", "vision"),
    (3.0, HOUR, "cid", "vision"), (4.0, HOUR, "bob", "speech"),
)  # fmt: skip


@pytest.mark.parametrize("policy", [least_used, fair, urgent, by_partition])
def test_policies_that_read_the_site_are_pure(policy):
    check_order(policy)


def test_who_used_less_lately_goes_first():
    found = starts(log(*TWO_TEAMS), least_used)
    # After ann: bob, whose account has used nothing; then cid, whose account has used as much as bob's, a little longer
    # ago; then bob's account has used less than that of ann and cid.
    assert np.argsort(found).tolist() == [0, 1, 3, 4, 2]


def test_a_class_of_service_that_is_known_at_arrival_is_ranked_by_the_quick_loop():
    assert not urgent.moves
    assert least_used.moves
    assert fair.moves
    assert not by_partition.moves


def test_classes_of_service_have_the_priorities_of_the_site():
    rows = log(*TWO_TEAMS, qos=["low", "low", "low", "high", None], limit=[9e3, 9e3, 5e3, 9e3, 9e3])
    site = Slurm(qos=(Qos("low", priority=1), Qos("high", priority=7)))
    view = SiteView.of(world_of(Scenario.of(rows, Cluster.uniform(1, 8))), site.accounts())
    assert view.qos_priority[view.qos].tolist() == [1, 1, 1, 7, 0]
    assert view.limit.tolist() == [9e3, 9e3, 5e3, 9e3, 9e3]


def test_accounts_are_those_of_the_site_with_its_shares_and_half_life():
    queues = QueueTree(
        [Queue("root"), Queue("vision", "root", shares=3.0), Queue("speech", "root"),
         Queue("vision/ann", "vision", user="ann"), Queue("vision/cid", "vision", user="cid"),
         Queue("speech/bob", "speech", user="bob")]
    )  # fmt: skip
    site = Slurm(queues=queues, priority=Priority(half_life=HOUR))
    view = SiteView.of(world_of(Scenario.of(log(*TWO_TEAMS), Cluster.uniform(1, 8))), site.accounts())
    assert view.accounts.shares[view.account].tolist() == [0.375, 0.25, 0.375, 0.375, 0.25]
    assert view.accounts.level[view.account].tolist() == [2] * 5
    assert view.decay == pytest.approx(math.log(2) / HOUR)


def test_usage_halves_in_a_half_life_and_grows_with_what_jobs_hold():
    accounts, decay = table(2, ACCOUNT, parent=[-1, 0], shares=[1.0, 0.5]), math.log(2) / HOUR
    charge_accounts(accounts, 1, 4.0, decay, 0.0)
    charge_accounts(accounts, 1, -4.0, decay, HOUR)
    # Of 4 GPUs held for one half-life, the integral of the decay is left.
    held = 4.0 * HOUR / math.log(2) * 0.5
    assert accounts.used.tolist() == pytest.approx([held, held])
    update_accounts(accounts, decay, 2 * HOUR)
    assert accounts.used.tolist() == pytest.approx([held / 2, held / 2])
    assert accounts.factor.tolist() == pytest.approx([0.5, 0.25])
