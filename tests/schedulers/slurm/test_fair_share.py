"""Laws of shares, usage and Fair Tree, on trees of any form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlab.core.queues import Qos, Queue, QueueTree
from fleetlab.schedulers.slurm.config import Priority
from fleetlab.schedulers.slurm.fair_share import begin_fair_share, end_fair_share, fair_share
from fleetlab.schedulers.slurm.usage import Charge, charge, charge_start, decay_usage, new_usage, usage_rules
from fleetlab.sim.associations import OF_PARENT, associations_of, places, usage_of

NO_AMOUNTS = np.zeros(0)


@st.composite
def trees(draw, parent_shares=True):
    """Draw accounts below accounts, and users in them with some usage."""
    shares = st.one_of(st.integers(0, 5).map(float), st.none()) if parent_shares else st.integers(1, 5).map(float)
    accounts = ["root"]
    queues = [Queue("root")]
    for k in range(draw(st.integers(0, 6))):
        above = draw(st.sampled_from(accounts))
        accounts.append(f"a{k}")
        queues.append(Queue(f"a{k}", above, shares=draw(shares)))
    for k in range(draw(st.integers(1, 10))):
        above = draw(st.sampled_from(accounts))
        usage = draw(st.sampled_from([0.0, 1.0, 2.0, 7.5, 1000.0]))
        queues.append(Queue(f"{above}/u{k}", above, f"u{k}", shares=draw(shares), usage=usage))
    return QueueTree(queues)


def ranked(queues):
    tree, rules = associations_of(queues), usage_rules(Priority(), ())
    usage = new_usage(tree, (), 0, usage_of(queues))
    end_fair_share(tree, usage, rules, 0.0)
    return tree, usage


def below(tree, row):
    """Return the users below an account, by the level they are compared in."""
    if tree.user[row]:
        return [row]
    children = tree.children[tree.first[row] : tree.first[row + 1]]
    return [user for child in children for user in below(tree, child)]


@given(trees())
def test_normalized_shares_of_a_level_sum_to_one(queues):
    tree = associations_of(queues)
    for row in range(len(tree.parent)):
        siblings = tree.children[tree.first[row] : tree.first[row + 1]]
        own = [k for k in siblings if tree.shares[k] not in (OF_PARENT, 0.0)]
        assert not own or sum(tree.shares_norm[k] for k in own) == pytest.approx(1.0)


@given(trees(parent_shares=False))
def test_without_fair_tree_shares_of_all_leaves_sum_to_one(queues):
    tree = associations_of(queues, fair_tree=False)
    leaves = [row for row in range(1, len(tree.parent)) if tree.first[row] == tree.first[row + 1]]

    assert sum(tree.shares_norm[row] for row in leaves) == pytest.approx(1.0)


@given(trees())
def test_an_account_has_used_what_its_users_have(queues):
    tree, usage = ranked(queues)
    users = [row for row in range(len(tree.parent)) if tree.user[row]]

    assert usage.billing[0] == pytest.approx(sum(usage.billing[row] for row in users))
    assert sum(usage.norm[row] for row in users) == pytest.approx(1.0 if usage.billing[0] else 0.0)


@given(trees())
def test_whoever_is_below_a_higher_level_fs_is_not_ranked_lower(queues):
    tree, usage = ranked(queues)
    for row in range(len(tree.parent)):
        siblings = tree.children[tree.first[row] : tree.first[row + 1]]
        for a in siblings:
            for b in siblings:
                if usage.level_fs[a] > usage.level_fs[b]:
                    high, low = below(tree, a), below(tree, b)
                    assert not high or not low or min(usage.factor[high]) >= max(usage.factor[low])


@given(trees())
def test_siblings_that_tie_have_the_same_factor(queues):
    tree, usage = ranked(queues)
    for a in range(1, len(tree.parent)):
        for b in range(1, len(tree.parent)):
            if tree.level[a] == tree.level[b] and tree.user[a] and tree.user[b]:
                assert (usage.level_fs[a] == usage.level_fs[b]) == (usage.factor[a] == usage.factor[b])


@given(trees())
def test_factors_are_ranks_over_the_number_of_users(queues):
    tree, usage = ranked(queues)
    users = tree.user == 1
    ranks = usage.factor[users] * tree.users

    assert np.array_equal(ranks, np.round(ranks))
    assert ranks.max() == tree.users
    assert ranks.min() >= 1


@given(trees(), st.sampled_from([0.5, 2.0, 1024.0]))
def test_usage_in_another_unit_ranks_the_same(queues, unit):
    tree, usage = ranked(queues)
    before = usage.factor.copy()
    usage.billing[:] *= unit
    end_fair_share(tree, usage, usage_rules(Priority(), ()), 0.0)

    assert np.array_equal(usage.factor, before)


@given(trees(), st.integers(0, 9), st.floats(1.0, 1e4))
def test_who_uses_more_is_not_ranked_higher(queues, which, more):
    tree, usage = ranked(queues)
    users = np.flatnonzero(tree.user)
    row = users[which % len(users)]
    before = usage.factor[row]
    at = row
    while at >= 0:
        usage.billing[at] += more
        at = tree.parent[at]
    end_fair_share(tree, usage, usage_rules(Priority(), ()), 0.0)

    assert usage.factor[row] <= before


def test_accounts_that_tie_are_not_merged_as_in_the_source_of_slurm():
    # Shares of 0 make two accounts tie at a LevelFS of 0 whatever they have used. The documentation of Fair Tree would
    # rank their users together (1, 1, 0.5, 0.5); the source ranks one account after the other.
    users = {"a/1": 1.0, "a/2": 9.0, "b/3": 1.0, "b/4": 9.0}
    queues = [Queue("root"), *(Queue(name, "root", shares=0.0) for name in "ab")]
    queues += [Queue(name, name[0], name[2], usage=amount) for name, amount in users.items()]
    tree = QueueTree(queues)
    _, usage = ranked(tree)

    assert [float(usage.factor[places(tree)[name]]) for name in users] == [1.0, 0.75, 0.75, 0.25]


def test_a_user_with_the_shares_of_the_parent_ranks_first_in_its_account():
    queues = QueueTree(
        [Queue("root"), Queue("root/a", "root", "a", usage=5.0), Queue("root/b", "root", "b", None, 5.0)]
    )
    _, usage = ranked(queues)

    assert usage.factor.tolist() == [0.0, 0.5, 1.0]


def test_the_classic_factor_is_a_half_for_whoever_has_used_its_share():
    queues = QueueTree([Queue("root"), *(Queue(f"root/{u}", "root", u, usage=10.0) for u in "ab")])
    tree, rules = associations_of(queues, fair_tree=False), usage_rules(Priority(flags=("NO_FAIR_TREE",)), ())
    usage = new_usage(tree, (), 0, usage_of(queues))
    begin_fair_share(tree, usage, rules)

    assert fair_share(tree, usage, rules, 1.0, 1) == 0.5
    assert fair_share(tree, usage, rules, 5.0, 1) == 2.0**-0.2  # FairShareDampeningFactor


def test_the_classic_usage_of_a_user_is_between_its_own_and_its_account_s():
    users = [Queue("a/x", "a", "x", usage=30.0), Queue("a/y", "a", "y"), Queue("b/z", "b", "z", usage=10.0)]
    queues = QueueTree([Queue("root"), Queue("a", "root"), Queue("b", "root"), *users])
    tree, rules = associations_of(queues, fair_tree=False), usage_rules(Priority(flags=("NO_FAIR_TREE",)), ())
    usage = new_usage(tree, (), 0, usage_of(queues))
    begin_fair_share(tree, usage, rules)
    idle = places(queues)["a/y"]

    # y used nothing of 3/4 that its account used, and has half of its shares: 0 + (3/4 - 0) × 1/2, of a share of 1/4
    assert fair_share(tree, usage, rules, 1.0, idle) == 2.0**-1.5


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_decay_over_two_passes_is_that_over_one(a, b):
    queues = QueueTree([Queue("root"), Queue("root/a", "root", "a", usage=1e6)])
    tree, rules = associations_of(queues), usage_rules(Priority(half_life=604_800.0), ())
    once, twice = (new_usage(tree, (), 0, usage_of(queues)) for _ in range(2))
    for usage, passes in ((once, (0.0, a + b)), (twice, (0.0, a, a + b))):
        for now in passes:
            decay_usage(usage, rules, float(now))
            end_fair_share(tree, usage, rules, float(now))

    assert once.billing[1] == pytest.approx(twice.billing[1], rel=1e-12)
    assert once.billing[0] == once.billing[1]


def test_half_of_usage_is_left_after_a_half_life():
    queues = QueueTree([Queue("root"), Queue("root/a", "root", "a", usage=1000.0)])
    tree, rules = associations_of(queues), usage_rules(Priority(half_life=604_800.0), ())
    usage = new_usage(tree, (Qos("kept", flags=("NoDecay",)),), 0, usage_of(queues))
    usage.billing[2] = 1000.0
    usage.clock[0] = 0.0
    decay_usage(usage, rules, 604_800.0)

    assert usage.billing[1] == pytest.approx(500.0, rel=2e-4)  # Slurm takes 0.693 for ln 2
    assert usage.billing[2] == 1000.0


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=6), st.integers(1, 90))
def test_without_decay_usage_is_billing_times_runtime_whenever_passes_are(runs, period):
    """Whatever is charged by passes and at the end adds up, and what is ahead returns to nothing."""
    queues = QueueTree([Queue("root"), Queue("a", "root"), Queue("a/x", "a", "x")])
    tree, rules = associations_of(queues), usage_rules(Priority(half_life=0.0), ("limits",))
    usage, amounts = new_usage(tree, (Qos("q", usage_factor=2.0),), 1, usage_of(queues)), np.array([3.0])
    jobs = [Charge(2, 3, -1, 4.0, 2.0, float(start), 600.0) for start, _ in runs]
    ends = [start + runtime for start, runtime in runs]
    running = set()
    for now in range(1100):
        for k, (start, _) in enumerate(runs):
            if start == now:
                charge_start(tree, usage, rules, jobs[k], amounts)
                running.add(k)
            if ends[k] == now:
                charge(tree, usage, rules, jobs[k], amounts, float(now), 1)
                running.discard(k)
        if now % period == 0:
            begin_fair_share(tree, usage, rules)
            decay_usage(usage, rules, float(now))
            for k in running:
                charge(tree, usage, rules, jobs[k], amounts, float(now), 0)
            end_fair_share(tree, usage, rules, float(now))
    seconds = sum(runtime for _, runtime in runs)

    assert usage.billing.tolist() == [8.0 * seconds] * 4
    assert usage.amounts[:, 0].tolist() == [6.0 * seconds] * 4
    assert usage.wall.tolist() == [2.0 * seconds] * 4
    assert not usage.ahead.any()


def test_where_no_limits_are_enforced_the_end_of_a_job_is_not_charged():
    queues = QueueTree([Queue("root"), Queue("root/a", "root", "a")])
    tree, rules = associations_of(queues), usage_rules(Priority(), ("associations",))
    usage = new_usage(tree, (), 0, usage_of(queues))
    charge(tree, usage, rules, Charge(1, -1, -1, 1.0, 1.0, 0.0, 60.0), NO_AMOUNTS, 50.0, 1)

    assert not usage.billing.any()
