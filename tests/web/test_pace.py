"""What takes long is answered for the first jobs before all of them: which, how many, and that the answer is true."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleetlab
from fleetlab import Workload
from fleetlab.web import pace as paces
from fleetlab.web.desk import Desk
from fleetlab.web.operations import Operation
from fleetlab.web.outcome import BLOCKS, played
from fleetlab.web.pace import AT_ONCE, FIRST, GROWS, SOON, Pace, after, slow
from fleetlab.web.scenario import Link, Scenario

LINK = Link.of("v=1&trace=folder:small&order=fair&load=1.5")
MANY = 100_000


def test_what_nobody_has_played_begins_with_the_smallest_part():
    assert Pace().first(LINK, MANY) == FIRST


def test_what_is_known_to_be_quick_has_no_parts():
    pace = Pace()
    for scenario in (LINK.now, LINK.base):
        pace.note(scenario, MANY, AT_ONCE)
    assert pace.first(LINK, MANY) == MANY


def test_of_parts_that_are_known_the_largest_that_comes_soon_is_first():
    pace = Pace()
    for jobs, seconds in ((1_000, SOON / 9), (4_000, SOON / 2), (16_000, 9 * SOON), (MANY, 99.0)):
        for scenario in (LINK.now, LINK.base):
            pace.note(scenario, jobs, seconds)
    assert pace.first(LINK, MANY) == 4_000


def test_a_baseline_that_is_slow_counts_too():
    pace = Pace()
    pace.note(LINK.now, MANY, AT_ONCE / 2)
    pace.note(LINK.base, MANY, 60.0)
    assert pace.first(LINK, MANY) == FIRST


def test_rules_are_learnt_for_every_load_at_once():
    pace = Pace()
    pace.note(LINK.now, MANY, AT_ONCE / 2)
    pace.note(LINK.base, MANY, AT_ONCE / 2)
    assert pace.first(replace(LINK, now=replace(LINK.now, load=0.7)), MANY) == MANY


@given(st.integers(FIRST + 1, 3_000_000))
def test_all_parts_together_are_at_most_a_third_of_the_whole(jobs):
    sizes = [FIRST]
    while (more := after(sizes[-1], jobs)) < jobs:
        sizes.append(more)
    assert sum(sizes[1:]) <= jobs / (GROWS - 1)
    assert all(b == GROWS * a for a, b in pairwise(sizes))


def test_a_part_is_slow_if_the_whole_would_be():
    assert slow(1_000, MANY, 1.0)
    assert not slow(16_000, MANY, AT_ONCE / 100)


@pytest.mark.parametrize("scenario", [Scenario(), Scenario(order="sjf", load=2.0)])
def test_a_part_is_what_the_simulator_says_of_the_first_jobs(small, scenario):
    frame = small.workload.frame.head(1000).drop("job").with_columns(pl.col("submit") / scenario.load)
    found = fleetlab.simulate(Workload.of(frame, source="first"), small.cluster, order=scenario.order)
    part = played(small, scenario, first=1000)
    told = {row["metric"]: row["value"] for row in part["result"]["summary"]}
    assert told["mean wait"] == pytest.approx(found.summary()[0].value)
    assert part["jobs"] == (1000, 2000)
    assert len(part["blocks"]["mean wait"]) == BLOCKS
    assert part["result"]["tables"].keys() <= {"notes"}


def test_progress_of_a_slow_run_has_the_answer_for_its_first_jobs(root, monkeypatch):
    monkeypatch.setattr(paces, "AT_ONCE", 0.0)
    monkeypatch.setattr(paces, "ANYWAY", 0.0)
    early = []

    class Follower(Operation):
        def tell(self, progress):
            super().tell(progress)
            if self.early is not None and self.early not in early:
                early.append(self.early)

    async def told():
        desk = Desk(root=root, workers=1, upload_bytes=1, limit=200.0)
        await desk.open()
        try:
            operation = Follower("run", "ann")
            return operation, await desk.dragged(LINK, operation)
        finally:
            await desk.close()

    operation, whole = asyncio.run(told())
    part, numbers = early[0], early[-1]
    assert part["part"]["jobs"] == FIRST
    assert part["part"]["of_jobs"] == 2000
    assert part["part"]["days"] < part["part"]["of_days"]
    assert part["part"]["words"].startswith("the first ")
    assert part["rows"][0]["change"]["low"] is not None
    assert (numbers["part"], whole["part"], operation.partly) == (None, None, True)
    assert part["rows"][0]["now"]["value"] != whole["rows"][0]["now"]["value"]
