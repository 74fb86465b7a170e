"""When two modes differ: against theory, and against hand-worked examples."""

import math
from pathlib import Path

import numpy as np
import pytest

from fleetlab.gpu.bench.analysis import analyze
from fleetlab.gpu.bench.analysis.measure import Measure, Noise, NoiseSample, alone_noise, collect_suites
from fleetlab.gpu.bench.results.cells import suites
from fleetlab.stats import UNKNOWN_SPREAD, Spread, pooled_variance, sum_variances

QUIET = Noise({False: UNKNOWN_SPREAD, True: UNKNOWN_SPREAD}, {}, {False: UNKNOWN_SPREAD, True: UNKNOWN_SPREAD}, {})
FIVE = math.log1p(0.05)


def measure(values, noise=QUIET, works=None):
    """`values[mode][mix]` are those of its blocks; all mixes are of one work if not told."""
    return Measure(
        (
            NoiseSample(mode, mix, "training + training", frozenset((works or {}).get(mix, "w")), Path(mode), v)
            for mode, mixes in values.items()
            for mix, blocks in mixes.items()
            for v in blocks
        ),
        noise,
    )


def same(*blocks):
    """Three mixes of the same values."""
    return {mix: list(blocks) for mix in "xyz"}


def test_a_difference_by_hand():
    """Logs of `a` are 0.1 and 0.3, of `b` 0 and 0; three mixes each, so 3 degrees of freedom a mode.

    The variance of a block is 0.02 in `a` and 0 in `b`, that of the difference of means 0.01; t of 3 is 3.182.
    """
    up, flat = [math.exp(0.1), math.exp(0.3)], [1.0, 1.0]
    found = measure({"a": same(*up), "b": same(*flat)}).difference(["x"], "a", "b")
    assert found.value == pytest.approx(0.2)
    assert found.half(0.95) == pytest.approx(3.182 * 0.1, rel=1e-3)
    assert found.decide(FIVE) == "undecided"


def test_one_over_the_other_is_the_inverse_of_the_other_over_the_one():
    found = measure({"a": same(1.0, 1.1), "b": same(2.0, 2.3)})
    one, other = found.difference(["x"], "a", "b"), found.difference(["x"], "b", "a")
    assert (one.value, one.half(0.95)) == pytest.approx((-other.value, other.half(0.95)))


def test_single_blocks_cannot_tell():
    found = measure({"a": {"x": [1.0]}, "b": {"x": [2.0]}}).difference(["x"], "b", "a")
    assert found.value == pytest.approx(math.log(2))
    assert (found.freedom, found.decide(FIVE)) == (0, "undecided")


def test_unlike_tenants_say_nothing_of_the_noise_of_single_blocks():
    """`y` was measured often in both modes, but it is other work."""
    values = {mode: {"x": [at], "y": [at, 1.001 * at, 0.999 * at]} for mode, at in (("a", 1.0), ("b", 2.0))}
    like, unlike = (measure(values, works={"x": ["v"], "y": [y]}) for y in "vw")
    assert like.difference(["x"], "b", "a").decide(FIVE) == "differ"
    assert unlike.difference(["x"], "b", "a").freedom == 0


def test_unlike_tenants_do_not_widen_the_limits_of_calm_ones():
    """`y` varies by half from block to block, as work does that waits for the host; `x` hardly."""
    values = {mode: {"x": [at, 1.001 * at], "y": [at, 1.5 * at]} for mode, at in (("a", 1.0), ("b", 1.1))}
    found = measure(values, works={"x": ["v"], "y": ["w"]})
    assert found.difference(["x"], "b", "a").half(0.95) < 0.02
    assert found.difference(["y"], "b", "a").half(0.95) > 0.5


def test_modes_of_another_kind_say_nothing_of_the_noise():
    values = {"mps": {"x": [1.0]}, "mps@50": {"x": [1.1, 1.101]}, "mps@25": {"x": [1.2]}}
    found = measure(values)
    assert found.block("mps", "x").freedom == 0
    assert found.block("mps@25", "x") == found.block("mps@50", "x") != UNKNOWN_SPREAD


def test_a_difference_below_the_margin_that_was_measured_often_is_none():
    rng = np.random.default_rng(0)
    values = {mode: {"x": np.exp(rng.normal(at, 0.05, 200))} for mode, at in (("a", 0.03), ("b", 0.0))}
    found = measure(values).difference(["x"], "a", "b")
    assert found.value > found.half(0.95)
    assert found.decide(FIVE) == "equivalent"


def test_what_runs_differ_by_widens_what_modes_differ_by():
    values = {"a": same(1.00, 1.01), "b": same(1.05, 1.06)}
    rough = QUIET._replace(run_of={"w": Spread(0.05**2, 20)})
    calm, wide = (measure(values, noise).difference(["x"], "b", "a") for noise in (QUIET, rough))
    assert (calm.decide(0.02), wide.decide(0.02)) == ("differ", "undecided")
    assert wide.variance == pytest.approx(calm.variance + 2 * 0.05**2)


def test_runs_of_work_that_was_measured_in_one_run_differ_as_those_of_all_work():
    noise = Noise(
        QUIET.again, {}, {False: Spread(0.04, 9), True: UNKNOWN_SPREAD}, {"w": Spread(0.01, 9), "u": Spread(0.02, 9)}
    )
    assert noise.between_runs(["w", "u"], launch=False).variance == 0.02
    assert noise.between_runs(["w", "other"], launch=False).variance == 0.04


def test_intervals_of_ratios_cover():
    """True ratio 1.1, noise of 2 %, two blocks of six mixes: 95 % limits hold it about 95 times in 100."""
    rng, held = np.random.default_rng(1), 0
    for _ in range(300):
        values = {
            mode: {mix: np.exp(rng.normal(at, 0.02, 2)) for mix in "uvwxyz"}
            for mode, at in (("a", math.log(1.1)), ("b", 0.0))
        }
        found = measure(values).difference(["x"], "a", "b")
        held += abs(found.value - math.log(1.1)) <= found.half(0.95)
    assert 0.91 <= held / 300 <= 0.99


def test_one_or_two_mixes_say_nothing_of_others():
    """Two mixes that differ a lot, each known well: their own mean is known well too."""
    values = {"a": {"x": [0.5, 0.501], "y": [2.0, 2.001], "z": [1.0, 1.001]}}
    of_two, of_three = (measure(values).mean_of("a", mixes) for mixes in ("xy", "xyz"))
    assert of_two.value == pytest.approx(of_three.value, rel=1e-3)
    assert math.log(of_two.high / of_two.low) < 0.01
    assert math.log(of_three.high / of_three.low) > 1


def test_a_pool_is_the_mean_of_variances():
    # Variances 0.5 and 2 with a degree of freedom each; the single value says nothing.
    assert pooled_variance([[0.0, 1.0], [1.0, 3.0], [5.0]]) == pytest.approx((1.25, 2))


def test_parts_of_a_sum_add_up_and_the_least_known_decides():
    # Satterthwaite: (1 + 1)^2 / (1/4 + 1/12) = 12.
    assert sum_variances([Spread(1.0, 4), Spread(1.0, 12), UNKNOWN_SPREAD]) == pytest.approx((2.0, 12.0))


def test_a_hiccup_in_one_block_does_not_widen_every_limit(tmp_path, made):
    def limits(path, hiccup):
        cells = []
        for block in range(8):
            rate = 60.0 if hiccup and block == 3 else 100.0 + 0.1 * (block % 2)
            cells += [made.cell([made.tenant("train", rate)], block=block)]
            cells += [made.cell([made.tenant("train", 50 + 0.1 * (block % 2))] * 2, block=block)]
        one = analyze(made.suite(path, cells)).tables()["mixes"].row(0, named=True)
        return one["stp"], one["stp_high"] - one["stp_low"]

    calm, rough = limits(tmp_path / "calm", hiccup=False), limits(tmp_path / "rough", hiccup=True)
    assert rough[0] == pytest.approx(calm[0], rel=2e-3)
    assert rough[1] < 4 * calm[1]


# --- tenants alone ----------------------------------------------------------------------------------------------------


def alone_twice(folder, made, **factors):
    """Each tenant alone in two modes, a second time faster by its factor; once and in one mode if that is None."""
    cells = []
    for name, factor in factors.items():
        for mode in ("time-slicing", "mps") if factor else ("mps",):
            rates = [100.0] if factor is None else [100.0, 100.0 * factor]
            cells += [made.cell([made.tenant(name, rate)], mode=mode, block=b) for b, rate in enumerate(rates)]
    made.suite(folder / "once", cells)
    return folder


def test_a_tenant_that_varies_more_than_others_has_intervals_of_its_own(tmp_path, made):
    """`host` repeats within 20 % in both modes, others within 0.1 %: half of log(1.2)² each, two degrees of freedom."""
    g = collect_suites(suites(alone_twice(tmp_path, made, host=1.2, a=1.001, b=1.001, c=1.001)))
    noise = alone_noise(g)
    variance = math.log(1.2) ** 2 / 2
    assert noise.one(g, "host") == pytest.approx((variance, 2))
    # Two blocks; Student's quantile at 97.5 % with two degrees of freedom is 4.303.
    assert noise.measured_again(g, "host", 2) == pytest.approx(4.303 * math.sqrt(variance / 2), rel=1e-3)
    assert noise.measured_again(g, "a", 2) < 0.01


def test_a_tenant_that_was_measured_seldom_has_the_noise_of_all_and_that_is_said(tmp_path, made):
    g = collect_suites(suites(alone_twice(tmp_path, made, a=1.001, b=1.001, once=None)))
    noise = alone_noise(g)
    assert noise.one(g, "once") == noise.again[False]
    said = "noise of the rate of a tenant alone is that of its own repetitions"
    assert noise.note(g, ["a", "once"]) == f"{said}, of those of all tenants for once"
    assert noise.note(g, ["a", "b"]) == said
