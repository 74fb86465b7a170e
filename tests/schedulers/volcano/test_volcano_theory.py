"""What theory says of Volcano's shares: water-filling by weight, and dominant resource fairness."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schedulers.volcano.volcano_cases import GI, Case, amounts, plugin, queue

from fleetlab.core.errors import PolicyError
from fleetlab.schedulers.volcano.config import Plugin, Volcano, VolcanoQueue
from fleetlab.schedulers.volcano.queues import QueueState, proportion

GPU = "nvidia.com/gpu"


def divide(total, asked):
    """What each queue deserves of one resource; `asked` are (weight, request, limit)."""
    states = {
        f"q{k}": QueueState(VolcanoQueue(f"q{k}", weight=w), request={GPU: float(r)}, limit={GPU: float(limit)})
        for k, (w, r, limit) in enumerate(asked)
    }
    proportion(states, {GPU: float(total)})
    return [state.deserved.get(GPU, 0.0) for state in states.values()]


ASKED = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=6)


@given(st.integers(1, 100), ASKED)
def test_no_queue_deserves_more_than_it_asks_for_or_may_have(total, asked):
    assert all(d <= min(r, limit) + 1e-6 for d, (_, r, limit) in zip(divide(total, asked), asked, strict=True))


@given(st.integers(1, 100), ASKED)
def test_all_is_divided_unless_all_queues_have_enough(total, asked):
    could = sum(min(r, limit) for _, r, limit in asked)
    assert sum(divide(total, asked)) == pytest.approx(min(total, could), abs=0.2)


@given(st.integers(1, 100), ASKED)
def test_queues_that_want_more_have_shares_in_proportion_to_their_weights(total, asked):
    """Water-filling: whoever has less per weight than another has all it asks for or may have."""
    shares = divide(total, asked)
    level = max(d / w for d, (w, _, _) in zip(shares, asked, strict=True))
    short = [d / w for d, (w, r, limit) in zip(shares, asked, strict=True) if d < min(r, limit) - 0.2]
    assert all(level - one < 0.2 for one in short)


def test_weights_divide_as_in_volcanos_guide_to_queues():
    """Queues of weight 1 and 3 that want all of a cluster deserve a quarter and three quarters of it."""
    assert divide(16, [(1, 16, 99), (3, 16, 99)]) == [4, 12]


def test_drf_divides_nine_cpus_and_eighteen_gigabytes_as_in_the_paper():
    """Ghodsi et al., Dominant Resource Fairness, NSDI 2011, section 4.1: A starts three tasks, B two."""
    pods = {f"a{k}": ("A", amounts(1, 4 * GI)) for k in range(9)} | {f"b{k}": ("B", amounts(3, GI)) for k in range(9)}
    tiers = [[plugin("gang", "jobReady"), plugin("drf", "jobOrder")]]
    case = Case({"n": amounts(9, 18 * GI) | {"pods": 99}}, [queue("q")], {"A": ("q", 1), "B": ("q", 1)}, pods)
    bound = case.run(["allocate"], tiers)[0]
    assert [sum(name[0] == letter for name in bound) for letter in "ab"] == [3, 2]


def test_a_gang_that_does_not_fit_whole_gets_no_node():
    tiers = [[plugin("gang", "jobReady", "jobPipelined")]]
    pods = {f"p{k}": ("g", amounts(1)) for k in range(3)}
    assert Case({"n": amounts(2)}, [queue("q")], {"g": ("q", 3)}, pods).run(["allocate"], tiers)[0] == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"queues": (VolcanoQueue("a"), VolcanoQueue("a"))}, "same name"),
        ({"queues": (VolcanoQueue("a", parent="b"),)}, "not there: b"),
        ({"queues": (VolcanoQueue("a", parent="b"), VolcanoQueue("b", parent="a"))}, "circle"),
        ({"queues": (), "actions": ("alocate",)}, "did you mean allocate"),
        ({"queues": (), "tiers": ((Plugin("gnag"),),)}, "did you mean gang"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(words, message):
    with pytest.raises(PolicyError, match=message):
        Volcano(**words)
