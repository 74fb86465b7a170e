"""Previews: how many jobs they have, and that their numbers are right."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleetlab
from fleetlab import Workload
from fleetlab.core.scenario import Scenario
from fleetlab.web import preview
from fleetlab.web.backend import WhatIfBackend
from fleetlab.web.link import Link
from fleetlab.web.operations import Operation
from fleetlab.web.preview import FIRST, GROWTH, NO_PREVIEW, PREVIEW_TIME, RunTimes, is_slow, next_size
from fleetlab.web.runs import run_scenario

LINK = Link.of("v=1&trace=folder:small&order=fair&load=1.5")
MANY = 100_000


def test_a_policy_without_runs_begins_with_the_smallest_preview():
    assert RunTimes().first_size(LINK, MANY) == FIRST


def test_a_quick_run_has_no_preview():
    times = RunTimes()
    for scenario in (LINK.now, LINK.base):
        times.add(scenario, MANY, NO_PREVIEW)
    assert times.first_size(LINK, MANY) == MANY


def test_the_largest_preview_that_is_known_to_be_quick_is_first():
    times = RunTimes()
    for jobs, seconds in (
        (1_000, PREVIEW_TIME / 9),
        (4_000, PREVIEW_TIME / 2),
        (16_000, 9 * PREVIEW_TIME),
        (MANY, 99.0),
    ):
        for scenario in (LINK.now, LINK.base):
            times.add(scenario, jobs, seconds)
    assert times.first_size(LINK, MANY) == 4_000


def test_a_baseline_that_is_slow_counts_too():
    times = RunTimes()
    times.add(LINK.now, MANY, NO_PREVIEW / 2)
    times.add(LINK.base, MANY, 60.0)
    assert times.first_size(LINK, MANY) == FIRST


def test_run_times_hold_for_every_load():
    times = RunTimes()
    times.add(LINK.now, MANY, NO_PREVIEW / 2)
    times.add(LINK.base, MANY, NO_PREVIEW / 2)
    assert times.first_size(replace(LINK, now=LINK.now.replace(load=0.7)), MANY) == MANY


@given(st.integers(FIRST + 1, 3_000_000))
def test_all_previews_together_are_at_most_a_third_of_the_full_run(jobs):
    sizes = [FIRST]
    while (more := next_size(sizes[-1], jobs)) < jobs:
        sizes.append(more)
    assert sum(sizes[1:]) <= jobs / (GROWTH - 1)
    assert all(b == GROWTH * a for a, b in pairwise(sizes))


def test_a_preview_is_slow_if_the_full_run_would_be():
    assert is_slow(1_000, MANY, 1.0)
    assert not is_slow(16_000, MANY, NO_PREVIEW / 100)


@pytest.mark.parametrize("words", [{}, {"order": "sjf", "load": 2.0}])
def test_a_preview_is_what_the_simulator_says_of_the_first_jobs(small, words):
    scenario = Scenario.of(small, **words)
    frame = small.workload.frame.head(1000).drop("job").with_columns(pl.col("submit") / scenario.load)
    found = fleetlab.simulate(Workload.of(frame, source="first"), small.cluster, order=scenario.policy.order)
    part = run_scenario(scenario, first=1000)
    told = {row["metric"]: row["value"] for row in part["result"]["summary"]}
    assert told["mean wait"] == pytest.approx(found.summary()[0].value)
    assert part["jobs"] == (1000, 2000)
    assert part["result"]["tables"].keys() <= {"notes"}


def test_progress_of_a_slow_run_has_the_answer_for_its_first_jobs(root, monkeypatch):
    monkeypatch.setattr(preview, "NO_PREVIEW", 0.0)
    monkeypatch.setattr(preview, "OVERHEAD", 0.0)
    early = []

    class Follower(Operation):
        def update(self, progress):
            super().update(progress)
            if self.early is not None and self.early not in early:
                early.append(self.early)

    async def told():
        backend = WhatIfBackend(root=root, workers=1, upload_bytes=1, limit=200.0)
        await backend.open()
        try:
            operation = Follower("run", "ann")
            return operation, await backend.run_with_previews(LINK, operation)
        finally:
            await backend.close()

    operation, whole = asyncio.run(told())
    part, numbers = early[0], early[-1]
    assert part["preview"]["jobs"] == FIRST
    assert part["preview"]["of_jobs"] == 2000
    assert part["preview"]["days"] < part["preview"]["of_days"]
    assert part["preview"]["text"].startswith("Preview: the first ")
    assert part["rows"][0]["change"]["low"] is not None
    assert (numbers["preview"], whole["preview"], operation.has_preview) == (None, None, True)
    assert part["rows"][0]["now"]["value"] != whole["rows"][0]["now"]["value"]
