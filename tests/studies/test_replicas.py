"""How many replicas a study runs, and which."""

import numpy as np
import pytest

from fleetlab.core import Scenario, WorkloadError
from fleetlab.sim import simulate
from fleetlab.stats import is_decided
from fleetlab.studies.replicas import DECIDED, ENOUGH, FIXED, SPENT, Plan, Replicator

BASE = Scenario.of("builtin:200", load=20)
BOTH = {"fifo": BASE, "sjf": BASE.replace(order="sjf")}


def waits(scenario):
    return {"wait": simulate(scenario).completed.sort("job")["wait"].to_numpy()}


def run(undecided, plan=None, **options):
    return Replicator(waits, BOTH, plan or Plan(), workers=0, **options).run(undecided)


def never(results):
    return False


def always(results):
    return True


def test_a_study_stops_after_five_replicas_where_all_is_decided():
    runs = run(never)
    assert (runs.count, runs.stopped) == (5, DECIDED)


def test_a_study_goes_on_until_twenty_where_something_is_not():
    runs = run(always)
    assert (runs.count, runs.stopped) == (20, ENOUGH)


def test_a_large_study_ends_with_its_budget_whatever_the_clock_says():
    assert Plan().looks(10**7) == (3,)
    assert Plan().looks(10_000)[-1] == 13


def test_so_many_replicas_as_asked_for_are_run():
    runs = run(always, Plan(2))
    assert (runs.count, runs.stopped) == (2, FIXED)
    assert list(runs.numbers) == [1, 2]


def test_one_replica_is_the_log_as_it_is():
    assert np.array_equal(run(always, Plan(1)).results[0]["fifo"]["wait"], waits(BASE)["wait"])


def test_both_sides_of_a_pair_are_nudged_alike():
    same = Replicator(waits, {"a": BASE, "b": BASE}, Plan(3), workers=0).run(never)
    assert all(np.array_equal(replica["a"]["wait"], replica["b"]["wait"]) for replica in same.results)


def test_a_study_gives_the_same_numbers_again():
    one, two = run(never, Plan(3)), run(never, Plan(3))
    assert all(
        np.array_equal(a["sjf"]["wait"], b["sjf"]["wait"]) for a, b in zip(one.results, two.results, strict=True)
    )


def test_verdicts_decide_when_a_study_ends():
    def undecided(replication):
        fifo, sjf = (np.array([r[name]["wait"].mean() for r in replication.results]) for name in BOTH)
        return not is_decided(sjf - fifo, fifo.mean())

    assert run(undecided).stopped in {DECIDED, ENOUGH, SPENT}


@pytest.mark.parametrize("words", [{"replicas": 0}, {"replicas": 10_000}, {"scope": "others"}])
def test_what_cannot_be_planned_is_refused(words):
    with pytest.raises(WorkloadError):
        Plan.of(**words)
