"""The error of a model in intervals: its estimate, what it covers, and where it is said."""

import math
import re
import tomllib
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from realtest.compare import keep_ratios

import fleetlab
from fleetlab._screen import short_answer
from fleetlab.core.schedulers import schedulers
from fleetlab.stats import Interval, Spread, pooled_variance, spread_beyond_repeats, student_quantile, widened
from fleetlab.studies.model_error import TABLE, ModelError

PAGE = Path(__file__).parents[2] / "docs" / "measurements" / "slurm" / "simulated.md"
LINE = "SchedulerParameters=bf_interval=1"


@pytest.fixture(scope="module")
def site():
    return fleetlab.Scenario.of("sample")


@pytest.fixture(scope="module")
def error(site):
    return ModelError.of(site)


@pytest.fixture(scope="module")
def compared(site):
    return fleetlab.compare(site, conf=[LINE], replicas=3, workers=0)


# -- the estimate ----------------------------------------------------------------------------------------------------


def test_the_spread_beyond_repeats_is_that_computed_by_hand():
    # Pooled variance (0.02 + 0.02 + 0) / 3 = 1/75; weights 150, 150, 150; means 0.2, -0.1, 0.3.
    # (150 * (0.04 + 0.01 + 0.09) - 3) / 450 = 18 / 450
    spread = spread_beyond_repeats([[0.1, 0.3], [-0.2, 0.0], [0.3, 0.3]])
    assert spread == (pytest.approx(0.04), 3)


def test_groups_that_differ_as_their_repeats_do_have_no_spread_beyond_them():
    assert spread_beyond_repeats([[-0.1, 0.1], [0.1, -0.1]]).variance == 0


def test_the_estimate_finds_the_spread_that_groups_were_drawn_with():
    rng = np.random.default_rng(0)
    drawn = [rng.normal(rng.normal(0, 0.2), 0.1, size=3).tolist() for _ in range(2000)]
    assert math.sqrt(spread_beyond_repeats(drawn).variance) == pytest.approx(0.2, rel=0.05)


def test_an_interval_is_widened_on_the_scale_of_logarithms():
    half = student_quantile(0.975, 9) * 0.1
    exact = widened(Interval(50.0, 50.0, 50.0), Spread(0.01, 9))
    assert exact == pytest.approx((50.0, 50 * math.exp(-half), 50 * math.exp(half)))


@pytest.mark.parametrize("limits", [(0.0, 0.0, 0.0), (5.0, 0.0, math.inf)])
def test_limits_that_cannot_be_farther_stay(limits):
    assert widened(Interval(*limits), Spread(0.01, 9)) == limits


def test_a_number_without_an_interval_gets_none():
    assert math.isnan(widened(Interval(5.0, math.nan, math.nan), Spread(0.01, 9)).high)


# -- what was recorded -----------------------------------------------------------------------------------------------


def test_the_ratios_are_those_of_the_page_of_recorded_runs(error):
    rows = [line.split("|") for line in PAGE.read_text("utf-8").partition("<!-- tables")[2].splitlines()]
    ratios = defaultdict(list)
    for row in rows:
        if len(row) > 5 and "-" in row[1] and row[3].strip(" *").replace(".", "").isdigit() and "·" not in row[1]:
            ratios[row[1].strip().rpartition("-")[0]].append(float(row[4].strip(" *")))
    assert error.ratios == ratios, "run `python -m realtest.compare --all`"
    assert sum(map(len, ratios.values())) == 50


def test_the_first_page_counts_the_settings_as_they_were_measured(error):
    ratios = [math.exp(np.mean(np.log(values))) for values in error.ratios.values()]
    off = sorted(abs(ratio - 1) for ratio in ratios if abs(ratio - 1) > 0.03)
    text = (PAGE.parents[3] / "README.md").read_text("utf-8")
    claim = re.search(
        r"Of (\d+) settings .* within 3 % of the real one in (\d+)\. The other five are (\d+) to (\d+) % off", text
    )
    counts = [len(ratios), len(ratios) - len(off), round(100 * off[0]), round(100 * off[-1])]
    assert counts == [int(number) for number in claim.groups()]


def test_the_widened_interval_holds_nine_of_ten_real_mean_waits_of_settings_that_it_was_not_measured_by(error):
    logs = {name: np.log(ratios) for name, ratios in error.ratios.items()}
    held = []
    for name, left_out in logs.items():
        others = [each for other, each in logs.items() if other != name]
        model, repeats = spread_beyond_repeats(others), pooled_variance(others)
        half = student_quantile(0.975, int(repeats.freedom)) * math.sqrt(repeats.variance)
        by_chance = Interval(1.0, math.exp(-half), math.exp(half))  # of the ratio that a real run has to another
        low, high = widened(by_chance, model)[1:]
        held += ((np.exp(-left_out) > low) & (np.exp(-left_out) < high)).tolist()
    assert np.mean(held) >= 0.9


def test_the_ratios_are_written_as_they_are_read(site, error, tmp_path):
    file = site.scheduler.recorded_runs
    again = tmp_path / file.name
    again.write_text(file.read_text("utf-8").partition("defaults =")[0], "utf-8")
    runs = [(f"{name}-{k}", {"mean_ratio": x}, []) for name, each in error.ratios.items() for k, x in enumerate(each)]
    keep_ratios([[run] for run in runs], again)
    assert tomllib.loads(again.read_text("utf-8"))["ratios"] == error.ratios


def test_only_schedulers_with_recorded_runs_have_an_error(site):
    assert ModelError.of(site.replace(order="fifo", scheduler="event")) is None
    for kind in schedulers().values():
        assert kind.recorded_runs is None or kind.recorded_runs.is_file()


# -- where it is said ------------------------------------------------------------------------------------------------


def test_compare_widens_mean_waits_and_says_by_what(compared, error):
    wait = compared.summary()[0]
    alone = compared.to_polars(TABLE).row(0, named=True)
    by_chance = Interval(alone["mean wait"], alone["mean wait low"], alone["mean wait high"])
    assert wait.metric == f"mean wait, {alone['run']}"
    assert wait[1:4] == pytest.approx(widened(by_chance, error.spread))
    assert set(error.notes()) <= set(compared.notes)


def test_a_short_answer_says_it_too(compared, error):
    assert error.notes()[0] in " ".join(short_answer(compared))


def test_differences_are_not_widened(compared):
    record = next(one for one in compared.records if one.metric == "mean wait")
    row = compared.to_polars("configurations").row(1, named=True)
    assert (record.low, record.high) == (row["mean wait change low"], row["mean wait change high"])
    assert (record.low + record.high) / 2 == pytest.approx(record.difference)  # widened, it would have a longer side


def test_diagnose_widens_the_mean_wait_and_keeps_the_interval_by_chance(site, error):
    result = fleetlab.diagnose(site, changes=["nothing"], replicas=3, workers=0)
    wait, values = result.summary()[0], result.to_json()
    alone = result.to_polars(TABLE).row(0, named=True)
    assert wait.high - wait.low > alone["mean wait high"] - alone["mean wait low"]
    assert set(error.notes()) <= set(result.notes)
    assert TABLE in values["tables"]


def test_one_run_of_the_log_has_neither_interval_nor_note(site, error):
    result = fleetlab.compare(site, conf=[LINE], replicas=1, workers=0)
    assert not set(error.notes()) & set(result.notes)
    assert TABLE not in result.tables()
