"""Figures are drawn where the numbers say, in colors that everybody can tell apart."""

import itertools
import math
import re

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleetlab import Figure
from fleetlab.report.draw import ready, scale, svg
from fleetlab.report.draw.chart import CURVES, NAMES
from fleetlab.report.draw.scale import Scale, decades, durations, label, nice

from .conftest import Seen, curve

sizes = st.floats(1e-6, 1e9) | st.integers(1, 10**6).map(float)


def figure(kind="line", log_x=False, log_y=False, **columns):
    return Figure("t", kind, pl.DataFrame(columns, strict=False), "x", "y", "says", log_x=log_x, log_y=log_y)


def paths(chart, **about):
    """The points of all paths of marks, in order: each (x, y) that a pen visits."""
    return [
        [(float(a), float(b)) for a, b in re.findall(r"[ML]([\d.-]+) ([\d.-]+)", p["d"])]
        for p in Seen(svg(chart, **about)).all("path")
    ]


def box(chart):
    return [float(v) for v in Seen(svg(chart)).all("svg")[0]["data-box"].split()]


# --- axes --------------------------------------------------------------------------------------------------------


@given(low=st.floats(-1e6, 1e6), span=sizes, most=st.integers(2, 12))
def test_ticks_are_round_even_and_inside(low, span, most):
    assume(span > abs(low) * 1e-6)
    found = nice(low, low + span, most)
    steps = np.diff(found)
    assert 2 <= len(found) <= max(most, 5) + 2
    assert all(low - span * 1e-6 <= v <= low + span * (1 + 1e-6) for v in found)
    lead = steps[0] / 10.0 ** math.floor(math.log10(steps[0]) + 1e-6)
    assert np.allclose(steps, steps[0], rtol=1e-4, atol=abs(low) * 1e-12)
    assert min(abs(lead - r) for r in (1, 2, 5, 10)) < 1e-2


@given(low=st.floats(1e-6, 1e6), decade=st.floats(0.5, 12))
def test_ticks_of_a_logarithmic_axis_are_inside_and_grow(low, decade):
    found = decades(low, low * 10**decade)
    assert len(found) >= 2
    assert all(a < b for a, b in itertools.pairwise(found))
    assert low * 0.999 <= found[0] <= found[-1] <= low * 10**decade * 1.001


def test_equal_ratios_are_equal_distances_on_a_logarithmic_axis():
    at = Scale(1.0, 1000.0, 0.0, 300.0, log=True).at(np.array([1.0, 10.0, 100.0, 1000.0]))
    assert at == pytest.approx([0.0, 100.0, 200.0, 300.0])


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0"), (-0.5, "−0.5"), (12_500, "12.5k"), (2.5e6, "2.5M"), (1e-5, "10⁻⁵"), (3e12, "3·10¹²"), (1234, "1,234")],
)
def test_a_number_beside_an_axis_reads_easily(value, said):
    assert label(value) == said


# --- marks -------------------------------------------------------------------------------------------------------


def test_a_line_goes_from_corner_to_corner():
    chart = ready(figure(x=[0.0, 10.0], y=[0.0, 10.0]))
    left, top, right, bottom = box(chart)
    assert paths(chart)[0] == [(left, bottom), (right, top)]


def test_a_step_holds_its_value_until_the_next():
    d = Seen(svg(ready(figure("step", x=[0.0, 5.0, 10.0], y=[0.0, 10.0, 5.0])))).all("path")[0]["d"]
    across, up = re.findall(r"H([\d.]+)V([\d.]+)", d)[0]
    left, top, right, _ = box(ready(figure("step", x=[0.0, 5.0, 10.0], y=[0.0, 10.0, 5.0])))
    assert float(across) == pytest.approx((left + right) / 2, abs=0.11)
    assert float(up) == top


def test_a_missing_value_is_a_gap_not_a_bridge():
    d = Seen(svg(ready(figure(x=[1.0, 2.0, 3.0, 4.0, 5.0], y=[1.0, 2.0, None, 2.0, 1.0])))).all("path")[0]["d"]
    assert d.count("M") == 2


def test_a_band_goes_from_low_to_high():
    chart = ready(figure(x=[0.0, 10.0], y=[5.0, 5.0], low=[0.0, 0.0], high=[10.0, 10.0]))
    left, top, right, bottom = box(chart)
    assert paths(chart)[0] == [(left, top), (right, top), (right, bottom), (left, bottom)]


def test_a_bar_is_as_high_as_its_number():
    chart = ready(figure("bar", x=["a", "b"], y=[5.0, 10.0]))
    d = Seen(svg(chart)).all("path")[0]["d"]
    _, top, _, bottom = box(chart)
    heights = [float(a) - float(b) for a, b in re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", d)]
    assert heights == pytest.approx([(bottom - top) / 2, bottom - top], abs=0.11)


def test_long_names_run_down_and_short_ones_across():
    short, long = (figure("bar", x=[n, n + "2"], y=[1.0, 2.0]) for n in ("a", "a name that takes a lot of room, more"))
    assert [Seen(svg(ready(f))).all("svg")[0].get("data-rows") for f in (short, long)] == [None, "1"]


def test_names_stay_in_their_order():
    assert ready(figure("bar", x=["Mon", "Tue", "Fri", "Mon"], y=[1, 2, 3, 4])).x_names == ("Mon", "Tue", "Fri")


def test_a_curve_that_begins_at_zero_begins_at_the_edge_of_a_logarithmic_axis():
    chart = ready(figure("step", x=[0.0, 0.0, 1.0, 100.0], y=[0.2, 0.4, 0.5, 1.0], log_x=True))
    assert chart.curves[0].x.tolist() == [1.0, 1.0, 1.0, 100.0]
    assert chart.left_out == ("2 points at or below 0 are drawn at the left edge of the logarithmic axis",)


def test_dots_without_a_logarithm_are_left_out_and_counted():
    chart = ready(figure("dots", x=[-1.0, 1.0, 10.0], y=[1.0, 0.0, 1.0], log_x=True, log_y=True))
    assert chart.curves[0].x.tolist() == [1.0, 10.0]
    assert len(chart.left_out) == 2


def test_an_interval_with_one_end_is_counted_not_drawn():
    chart = ready(figure("dots", x=["a", "b"], y=[1.0, 2.0], low=[0.5, 1.5], high=[None, 2.5]))
    assert chart.left_out == ("1 intervals are known on one side only, and not drawn",)


def test_between_whole_numbers_nothing_is_written():
    said = Seen(svg(ready(figure(x=[0, 1, 2], y=[10.0, 20.0, 30.0])))).text("text")
    assert "." not in said


def test_a_curve_keeps_the_look_of_the_one_it_belongs_to():
    chart = ready(curve(series=("T4", "V100", "T4, published")))
    looks = [c.look for c in chart.curves]
    assert scale.color(looks[0]) == scale.color(looks[2]) != scale.color(looks[1])
    assert scale.dash(looks[0]) is None
    assert scale.dash(looks[2])


@given(st.integers(0, 2**32 - 1))
def test_thinning_keeps_the_ends_and_the_extremes(seed):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=3000)
    found = ready(figure(x=np.arange(3000.0), y=y), most=200).curves[0]
    assert len(found.x) <= 204
    assert (found.x[0], found.x[-1]) == (0.0, 2999.0)
    assert (found.y.min(), found.y.max()) == (y.min(), y.max())


def test_more_than_can_be_told_apart_is_left_out_and_counted():
    many = ready(curve(series=[f"s{k}" for k in range(CURVES + 3)]))
    names = ready(figure("bar", x=[f"n{k}" for k in range(NAMES + 5)], y=list(range(NAMES + 5))))
    assert len(many.curves) == CURVES
    assert f"the first {CURVES} of {CURVES + 3} series" in many.left_out[0]
    assert f"the first {NAMES} of {NAMES + 5} names" in names.left_out[0]


@pytest.mark.parametrize("kind", ["line", "step", "bar", "dots"])
@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([], []),
        ([1.0], [2.0]),
        ([1.0, 1.0], [0.0, 0.0]),
        ([1.0, 2.0], [None, None]),
        ([math.nan, math.inf, 1.0], [1.0, 2.0, math.nan]),
        ([-1e308, 1e308], [-1e308, 1e308]),
        ([1e-300, 2e-300], [1e-300, 2e-300]),
        ([None, "a", ""], [1, 2, 3]),
        ([10**15, 10**15 + 1], [10**15, 10**15 + 1]),
        (["a", "b"], ["x", "y"]),
    ],
)
def test_whatever_the_numbers_there_is_a_drawing(kind, x, y):
    for log in (False, True):
        found = svg(ready(figure(kind, x=x, y=y, log_x=log, log_y=log)))
        assert "nan" not in found
        assert "inf" not in found


def test_a_heat_map_has_a_cell_for_each_number_and_says_what_colours_mean():
    cells = figure("heat", x=["a", "b", "a"], y=["p", "p", "q"], value=[1.0, 3.0, 2.0])
    seen = Seen(svg(ready(cells)))
    assert sum(p["d"].count("M") for p in seen.all("path")) == 3
    assert {"1", "3"} <= set(seen.text("text").split())


# --- colors -----------------------------------------------------------------------------------------------------


def linear(color):
    c = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    """WCAG 2.2's ratio of relative luminances."""
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b))
    return (high + 0.05) / (low + 0.05)


def lab(rgb):
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


# Machado, Oliveira and Fernandes 2009, severity 1: how those see who lack one kind of cone.
EYES = {
    "all cones": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("series", [scale.SERIES, scale.DARK_SERIES], ids=["light", "dark"])
def test_every_two_colours_differ_for_everybody(series, eyes):
    seen = [lab(np.array(EYES[eyes]) @ linear(c)) for c in series]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 11


@pytest.mark.parametrize(
    ("paper", "texts", "shapes"),
    [
        (scale.PAPER, (scale.INK, scale.SOFT), scale.SERIES),
        (scale.DARK_PAPER, (scale.DARK_INK, scale.DARK_SOFT), scale.DARK_SERIES),
    ],
    ids=["light", "dark"],
)
def test_texts_and_curves_stand_out_as_the_guidelines_ask(paper, texts, shapes):
    assert min(contrast(c, paper) for c in texts) >= 4.5
    assert min(contrast(c, paper) for c in shapes) >= 3


def test_a_heat_map_grows_lighter_all_the_way():
    light = [lab(linear(scale.heat(k)))[0] for k in range(scale.LEVELS)]
    assert all(a < b for a, b in itertools.pairwise(light))


def test_a_logarithmic_axis_of_seconds_is_written_in_durations():
    scale = Scale(1.0, 1e5, 0, 500, log=True, times=durations("wait, s", 1.0, 1e5))
    assert [text for _, text in scale.ticks(9)] == ["1 s", "10 s", "1 min", "10 min", "1 h", "6 h", "1 d"]


def test_the_unit_is_left_out_where_ticks_have_their_own():
    points = pl.DataFrame({"x": [1.0, 100.0, 10_000.0], "y": [0.1, 0.5, 1.0]})
    shown = str(svg(ready(Figure("t", "line", points, "wait, s", "y", "says", log_x=True))))
    assert ">wait<" in shown
    assert ">10 min<" in shown
