"""What must hold between models, whatever their numbers: two ways to one answer."""

import math
import time

import numpy as np
import pytest

from fleetlab import WorkloadError
from fleetlab.queueing import deterministic, empirical, exponential, hyperexponential, lognormal, mixture, pareto, solve
from fleetlab.queueing.distributions import Discrete, scv
from fleetlab.queueing.formulas.mmc import erlang_b, erlang_c

SMOOTH = [
    exponential(2.0),
    mixture([0.5, 5.5], [0.9, 0.1]),
    hyperexponential(1.0, 10.0),
    lognormal(3.0, 10.0),
    pareto(1.5, 0.4, 1000.0),
    pareto(2.0, 1.0, 50.0),
]


@pytest.mark.parametrize("law", SMOOTH)
def test_a_law_agrees_with_its_density(law):
    x, dx = law.grid()
    density = law.density(x)
    for k in (1, 2):
        assert np.sum(x**k * density * dx) == pytest.approx(law.moment(k), rel=1e-9)
    middle = len(x) // 2
    for k in (0, 1, 2):
        assert law.below(k, np.array([1e8]))[0] == pytest.approx(law.moment(k) if k else 1.0, rel=1e-9)
    assert law.above(x[middle : middle + 1])[0] == pytest.approx(1 - law.below(0, x[middle : middle + 1])[0], abs=1e-9)
    x, dx = law.grid(2e-4)  # finer than it is worked out with
    assert law.transform(np.array([0.7]))[0] == pytest.approx(np.sum(np.exp(-0.7j * x) * law.density(x) * dx), abs=1e-6)


@pytest.mark.parametrize("law", [hyperexponential(2.0, 10.0), lognormal(2.0, 10.0)])
def test_a_law_has_the_mean_and_scv_it_was_made_with(law):
    assert (law.moment(1), scv(law)) == (pytest.approx(2.0), pytest.approx(10.0))


@pytest.mark.parametrize("law", SMOOTH)
@pytest.mark.parametrize("order", ["SJF", "SRPT"])
def test_orders_of_a_smooth_law_are_those_of_many_values(law, order):
    # Two formulas: integrals over a density, and sums over values with ties.
    x, dx = law.grid()
    many = Discrete(tuple(x.tolist()), tuple((law.density(x) * dx).tolist()))
    lam = 0.8 / law.moment(1)
    smooth, rough = (solve(f"M/G/1 {order}", lam=lam, service=service)["mean response"] for service in (law, many))
    assert smooth == pytest.approx(rough, rel=1e-3)


@pytest.mark.parametrize("law", [*SMOOTH, empirical([1.0, 2.0, 2.0, 9.0])])
def test_srpt_is_best_and_sjf_beats_the_order_of_arrival(law):
    lam = 0.8 / law.moment(1)
    srpt, ps, sjf, fcfs = (
        solve(f"M/G/1{order}", lam=lam, service=law)["mean response"] for order in (" SRPT", " PS", " SJF", "")
    )
    assert srpt < min(ps, sjf)
    assert sjf < fcfs


def test_srpt_of_exponential_run_times_is_what_a_plain_sum_says():
    x = np.linspace(0, 60, 600_001)
    load = 0.9 * (1 - np.exp(-x) * (1 + x))
    second = 2 * (1 - np.exp(-x) * (1 + x + x * x / 2)) + x * x * np.exp(-x)
    inner = np.concatenate([[0], np.cumsum((1 / (1 - load[1:]) + 1 / (1 - load[:-1])) / 2 * np.diff(x))])
    response = np.trapezoid(np.exp(-x) * (0.9 * second / (2 * (1 - load) ** 2) + inner), x)
    assert solve("M/G/1 SRPT", lam=0.9, service="exponential:1")["mean response"] == pytest.approx(response, rel=1e-6)


def test_alike_run_times_leave_no_order_to_choose():
    same = {order: solve(f"M/G/1{order}", lam=0.7, service="deterministic:1") for order in ("", " SJF", " SRPT")}
    assert len({round(found["mean response"], 12) for found in same.values()}) == 1


def test_sjf_of_two_run_times_is_a_priority_of_two_classes():
    two = empirical([1.0, 1.0, 1.0, 6.0])
    classes = solve("M/G/1 priority", lam=(0.3, 0.1), service=(deterministic(1), deterministic(6)))
    assert solve("M/G/1 SJF", lam=0.4, service=two)["mean wait"] == pytest.approx(classes["mean wait"])


def test_priorities_shift_waits_and_keep_their_sum():
    lam, laws = (0.2, 0.1, 0.05), (exponential(1.0), lognormal(3.0, 4.0), deterministic(4.0))
    found = solve("M/G/1 priority", lam=lam, service=laws).tables()["classes"]
    loads = [rate * law.moment(1) for rate, law in zip(lam, laws, strict=True)]
    first = sum(rate * law.moment(2) for rate, law in zip(lam, laws, strict=True)) / 2
    # Kleinrock's law: loads times waits sum to the same, whoever goes first.
    same = sum(loads) * first / (1 - sum(loads))
    assert sum(load * wait for load, wait in zip(loads, found["wait"], strict=True)) == pytest.approx(same)


def test_priorities_of_one_exponential_law_leave_the_mean_alone():
    plain = solve("M/M/c", lam=7.2, mu=1, c=8)["mean wait"]
    for model in ("M/M/c priority", "M/M/c preemptive priority"):
        assert solve(model, lam=(2, 3, 2.2), mu=1, c=8)["mean wait"] == pytest.approx(plain)


def test_who_may_put_others_off_does_not_feel_them():
    found = solve("M/M/c preemptive priority", lam=(2, 5), mu=1, c=8)
    assert found["mean wait of class 1"] == pytest.approx(solve("M/M/c", lam=2, mu=1, c=8)["mean wait"])
    one = solve("M/G/1 preemptive priority", lam=(0.3, 0.4), service=("exponential:1", "exponential:1"))
    same = solve("M/M/c preemptive priority", lam=(0.3, 0.4), mu=1, c=1)
    assert [one[f"mean wait of class {k}"] for k in (1, 2)] == pytest.approx(
        [same[f"mean wait of class {k}"] for k in (1, 2)]
    )


def test_the_first_class_waits_a_while_where_the_second_waits_for_ever():
    # By hand: the server is always busy, for 1 s more on average, and the first class has half of it.
    found = solve("M/G/1 priority", lam=(0.5, 1.0), service="exponential:1,exponential:1")
    assert (found["mean wait of class 1"], found["mean wait of class 2"]) == (pytest.approx(2.0), math.inf)


def test_priorities_over_several_servers_are_exact_for_one():
    lam, laws = (0.2, 0.1), (exponential(1.0), exponential(3.0))
    near, exact = solve("M/G/c priority", lam=lam, service=laws, c=1), solve("M/G/1 priority", lam=lam, service=laws)
    share = near["mean wait of class 1"] / near["mean wait of class 2"]
    assert share == pytest.approx(exact["mean wait of class 1"] / exact["mean wait of class 2"])


def test_room_for_everybody_holds_a_poisson_number():
    found = solve("M/G/inf", lam=2, service="lognormal:10:5")
    upto = np.cumsum([math.exp(-20) * 20**n / math.factorial(n) for n in range(80)])
    assert found["P95 number in system"] == int(np.searchsorted(upto, 0.95))
    assert found["mean number in system"] == pytest.approx(20)


def test_a_load_follows_its_rate_late_and_damped():
    # Of exponential service times: λE[S](1 + α/√(1+ω²) sin(ωt - arctan ω)).
    t = np.arange(24)
    omega = 2 * math.pi / 24 * 3.0
    rates = 5 * (1 + 0.6 * np.sin(2 * math.pi * t / 24))
    told = solve("Mt/G/inf", lam=rates, period=24, service="exponential:3").tables()["over time"]["load"].to_numpy()
    known = 15 * (1 + 0.6 / math.hypot(1, omega) * np.sin(2 * math.pi * t / 24 - math.atan(omega)))
    assert told == pytest.approx(known)


@pytest.mark.parametrize("service", ["deterministic:7", "lognormal:3:6", "pareto:1.4:1:200", "hyperexponential:3:5"])
def test_a_load_is_what_came_and_has_not_gone(service):
    from fleetlab.queueing.distributions import law

    rates = [3.0, 1.0, 2.0, 6.0, 4.0]
    told = solve("Mt/G/inf", lam=rates, period=10, service=service).tables()["over time"]["load"][0]
    # λ(t) is the wave through the rates; the load at 0 adds up what came u ago and runs longer than u.
    u = np.arange(0.0005, 2000, 0.001)
    waves = np.fft.rfft(rates) / 5
    rate = waves[0].real + 2 * sum((w * np.exp(-2j * math.pi * k * u / 10)).real for k, w in enumerate(waves[1:], 1))
    found = law(service)
    if service.startswith("det"):
        above = (u < 7).astype(float)
    else:
        coarse = np.geomspace(1e-6, 2000, 4000)
        above = np.interp(u, coarse, found.above(coarse))
    assert told == pytest.approx(float(np.sum(rate * above) * 0.001), rel=2e-3)


def test_a_rate_that_does_not_change_makes_the_modified_load_exact():
    steady = solve("MOL", lam=[7.2] * 24, period=86_400, service="exponential:1", c=8)
    assert steady["mean wait"] == pytest.approx(solve("M/M/c", lam=7.2, mu=1, c=8)["mean wait"])


def test_approximations_are_exact_where_both_scvs_are_1():
    plain = solve("M/M/c", lam=7.2, mu=1, c=8)["mean wait"]
    near = {"lam": 7.2, "mu": 1, "c": 8}
    assert solve("Allen-Cunneen", **near, ca2=1, cs2=1)["mean wait"] == pytest.approx(plain)
    assert solve("Whitt GI/G/m", **near, ca2=1, cs2=1)["mean wait"] == pytest.approx(plain)
    assert solve("Bjorklund-Elldin M/G/c", **near, cs2=1)["mean wait"] == pytest.approx(plain)
    constant = solve("Cosmetatos M/D/c", **near)["mean wait"]
    assert solve("Bjorklund-Elldin M/G/c", **near, cs2=0)["mean wait"] == pytest.approx(constant)


@pytest.mark.parametrize("law", SMOOTH)
@pytest.mark.parametrize("rho", [0.3, 0.9])
def test_kingman_is_never_below_the_exact_wait(law, rho):
    lam = rho / law.moment(1)
    bound = solve("Kingman", lam=lam, mu=1 / law.moment(1), ca2=1, cs2=scv(law))["mean wait, at most"]
    assert bound >= solve("M/G/1", lam=lam, service=law)["mean wait"]


def test_regular_arrivals_wait_less_by_kraemer_and_langenbach_belz():
    told = {"lam": 0.8, "mu": 1, "ca2": 0.2, "cs2": 1}
    assert solve("Kraemer-Langenbach-Belz", **told)["mean wait"] < solve("Allen-Cunneen", **told, c=1)["mean wait"]
    # D/M/1 is known: its wait is σ/(1-σ), where σ = exp(-(1-σ)/ρ); at 0.8 that is 1.6928.
    sigma = 0.5
    for _ in range(500):
        sigma = math.exp(-(1 - sigma) / 0.8)
    found = solve("Kraemer-Langenbach-Belz", lam=0.8, mu=1, ca2=0, cs2=1)["mean wait"]
    assert found == pytest.approx(sigma / (1 - sigma), rel=0.03)


def test_halfin_and_whitt_meet_erlang_c_where_servers_are_many():
    near, exact = (
        solve(model, lam=1000, mu=1, c=1032)["probability of waiting"] for model in ("Halfin-Whitt", "M/M/c")
    )
    assert near == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize(("lam", "chance"), [(3, 0.5), (100, 0.2), (5000, 0.01), (0.001, 0.9)])
def test_staffing_finds_the_fewest_servers(lam, chance):
    found = solve("square-root staffing", lam=lam, mu=1, chance=chance)
    c = int(found["servers by Erlang C"])
    assert erlang_c(c, float(lam)) <= chance
    assert c - 1 <= lam or erlang_c(c - 1, float(lam)) > chance
    assert abs(found["servers by the square-root rule"] - c) <= 1 + lam / 1000


def test_gpus_shared_without_loss_are_as_fast_as_gpus_in_a_row():
    for c in (1, 2, 5):
        speed = tuple(float(n) for n in range(1, c + 1))
        one = solve("GPU sharing", lam=0.8 * c, service="lognormal:1:10", speed=speed)["mean response"]
        assert one == pytest.approx(solve("M/G/c PS", lam=0.8 * c, service="lognormal:1:10", c=c)["mean response"])
    plain = solve("M/G/1 PS", lam=0.8, service="exponential:1")["mean response"]
    assert solve("GPU sharing", lam=0.8, service="exponential:1", speed=1)["mean response"] == pytest.approx(plain)


def test_two_on_a_gpu_are_slower_than_alone_and_faster_than_in_turn():
    alone, pair, turns = (
        solve("GPU sharing", lam=0.8, service="exponential:1", speed=speed)["mean slowdown"]
        for speed in ((1.0, 2.0), (1.0, 1.3), (1.0, 1.0))
    )
    assert alone < pair < turns


# -- jobs of several servers ---------------------------------------------------------------------------------------


def of_one_duration(c, n, p):
    """Rumyantsev and Morozov: 1/λ* = Σⱼ 1/j P(j jobs run), by the j-fold sums of the needs."""
    need = np.zeros(c + 1)
    need[list(n)] = p
    sums, total = np.zeros(c + 1), 0.0
    sums[0] = 1.0
    for j in range(1, c + 1):
        sums = np.convolve(sums, need)[: c + 1]
        total += sum(sums[i] * need[c - i + 1 :].sum() for i in range(c + 1)) / j
    return 1 / total


@pytest.mark.parametrize(
    ("c", "n", "p"),
    [(8, (1, 2, 4, 8), (0.6, 0.2, 0.1, 0.1)), (12, (3, 5, 7), (0.2, 0.3, 0.5)), (30, (3, 10), (0.5, 0.5))],
)
def test_gangs_of_one_duration_get_through_as_their_sums_say(c, n, p):
    found = solve("MSJ saturated", c=c, n=n, p=p, mu=(1.0,) * len(n))["maximum throughput"]
    assert found == pytest.approx(of_one_duration(c, n, p), rel=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_the_product_form_of_two_classes_is_their_chain(seed):
    rng = np.random.default_rng(seed)
    c = int(rng.integers(2, 40))
    n = tuple(int(x) for x in rng.choice(np.arange(1, c + 1), 2, replace=False))
    share = float(rng.uniform(0.05, 0.95))
    told = {"c": c, "n": n, "p": (share, 1 - share), "mu": tuple(rng.uniform(0.1, 3, 2))}
    chain, form = (solve(f"MSJ {model}", **told)["maximum throughput"] for model in ("saturated", "two classes"))
    assert form == pytest.approx(chain, rel=1e-9)


def test_two_servers_have_a_closed_form():
    p1, p2, mu1, mu2 = 0.7, 0.3, 1.3, 0.4
    known = 2 * mu1 * mu2 / (mu2 * p1**2 + 2 * mu2 * p1 * p2 + 2 * mu1 * p2)
    found = solve("MSJ two classes", c=2, n=(1, 2), p=(p1, p2), mu=(mu1, mu2))["maximum throughput"]
    assert found == pytest.approx(known)


def test_gangs_of_all_servers_are_one_server():
    found = solve("MSJ RESET", lam=0.5, c=8, n=8, p=1, mu=1)
    assert found["maximum throughput"] == pytest.approx(1.0)
    assert found["mean response"] == pytest.approx(solve("M/M/1", lam=0.5, mu=1)["mean response"])


def test_servers_that_no_gang_can_use_change_nothing():
    told = {"n": (4, 8), "p": (0.5, 0.5), "mu": (1, 2)}
    whole, more = (solve("MSJ saturated", c=c, **told)["maximum throughput"] for c in (16, 19))
    assert whole == pytest.approx(more)


def test_a_chain_that_is_too_long_is_refused_at_once():
    began = time.process_time()
    with pytest.raises(WorkloadError, match="more than 3,000 states"):
        solve("MSJ saturated", c=1000, n=(1, 3, 8), p=(0.5, 0.3, 0.2), mu=(1, 1, 1))
    assert time.process_time() - began < 5


def test_a_loss_system_of_single_servers_is_erlangs():
    one = solve("Kaufman-Roberts", a=1900.0, b=1, c=2000)["blocking probability of class 1"]
    assert one == pytest.approx(erlang_b(2000, 1900.0), rel=1e-9)
