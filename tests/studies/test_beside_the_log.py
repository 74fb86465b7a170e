"""On a real log an answer begins with the recorded mean wait beside the simulated one, and warns where they differ."""

from dataclasses import replace

import polars as pl
import pytest

import fleetlab
from fleetlab.core.data import open_trace
from fleetlab.core.durations import brief


def logged(factor):
    """The sample with recorded waits that are so many times as long."""
    trace = open_trace("sample")
    longer = trace.workload.frame.with_columns(start=pl.col("submit") + factor * (pl.col("start") - pl.col("submit")))
    return replace(trace, workload=replace(trace.workload, frame=longer))


@pytest.mark.parametrize("verb", [fleetlab.simulate, lambda s: fleetlab.diagnose(s, changes=["nothing"], replicas=1)])
def test_recorded_stands_beside_simulated_first(verb):
    first = verb(logged(1.0)).findings[0]
    assert first.startswith("Recorded mean wait 84 s, simulated 85 s.")
    assert "calibrate" not in first


@pytest.mark.parametrize(("factor", "warned"), [(1.2, False), (1.5, True), (0.5, True)])
def test_a_difference_of_more_than_a_quarter_is_warned_of(factor, warned):
    assert ("fleetlab calibrate" in fleetlab.simulate(logged(factor)).findings[0]) == warned


def test_what_stands_beside_the_log_is_the_baseline_of_every_change():
    result = fleetlab.diagnose("sample:changed", changes=["loops"], replicas=3)
    now = brief(result.summary()[0].value)
    assert result.findings[0].startswith(f"Recorded mean wait 37 s, simulated {now}.")
    assert (
        brief(fleetlab.simulate("sample:changed").summary()[0].value) != now
    )  # one run of the log says another number
