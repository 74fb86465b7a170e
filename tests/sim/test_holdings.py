"""Tables of what runs held: usage between any edges of time is that of the schedule."""

import numpy as np
import pytest

from fleetlab import simulate
from fleetlab.sim.ledger.waits import seconds_between

SCENARIOS = {
    "plain": {},
    "crowded": {"nodes": "-80%", "order": "sjf"},
    "preempted": {"nodes": "-80%", "order": "srpt", "preemption": True},
    "failing": {"events": [{"event": "faults", "mtbf": 86400, "mttr": 6000}]},
    "stopped": {"until": 6000.0},
}


@pytest.fixture(scope="module", params=SCENARIOS)
def run(request):
    return simulate("builtin:1500", **SCENARIOS[request.param])


def test_usage_between_any_edges_is_that_of_the_schedule(run):
    edges = np.array([0.0, 500.5, 3000.0, 3000.25, 5900.0])
    ours, theirs = run.holdings.usage(edges), run.usage_over_time(edges)
    assert ours.types == theirs.types
    for mine, other in zip(ours.both, theirs.both, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose([ours.nodes, ours.cores], [theirs.nodes, theirs.cores], rtol=1e-9)


def test_a_run_of_no_time_holds_nothing():
    assert seconds_between(np.array([5.0]), np.array([5.0]), np.array([0.0, 10.0])).sum() == 0
