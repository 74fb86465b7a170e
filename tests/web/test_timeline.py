"""The timeline on the page: tiles are those of the run, and a view of both runs stays from one what-if to the next."""

import zlib
from base64 import b64decode

import numpy as np
import pytest

from fleetlab import Trace, simulate
from fleetlab.sim.tiles.timeline import BINS, ClusterTimeline, TilePlace
from fleetlab.web.openapi import description

from .test_handlers import described

LINK = "trace=folder:small&order=sjf"


@pytest.fixture(scope="module")
def timeline(root):
    result = simulate(Trace.load(root / "small"), order="sjf")
    return ClusterTimeline.of(result.world, result.played, result.cluster, result.scenario)


def test_a_tile_is_that_of_the_run(page, timeline):
    for place in (TilePlace(0, 0, 0, 0), TilePlace(1, 1, 1, 0)):
        path = f"/api/timeline/now/tile/{place.level}/{place.zoom}/{place.column}/{place.block}/taken,user"
        planes = page.ask(f"{path}?{LINK}").json["planes"]
        for name in ("taken", "user"):
            found = np.frombuffer(zlib.decompress(b64decode(planes[name])), np.uint8).reshape(-1, BINS)
            difference = found.astype(int) - timeline.plane(place, name)
            assert abs(difference).max() <= (name == "taken")  # sums in another order may round to the next byte


def test_a_timeline_tells_its_rows_and_whether_there_is_another_run(page, timeline):
    alone = page.ask("/api/timeline/now/about?trace=folder:small").json
    both = page.ask(f"/api/timeline/base/about?{LINK}").json
    assert (alone["compared"], both["compared"]) == (False, True)
    assert (both["about"]["label"], both["about"]["gpus"]) == ("baseline", timeline.rows.gpus)
    assert both["about"]["nodes"] == timeline.nodes["node"].to_list()


def test_the_queue_by_reason_and_fragmentation_come_after_the_first_picture(page):
    first = page.ask(f"/api/timeline/now/about?{LINK}").json["about"]
    queue = page.ask(f"/api/timeline/now/panels?{LINK}").json
    assert list(first["panels"]["waiting"]) == ["all"]
    assert "fragmented" in queue["planes"]
    bins = queue["panels"]["bins"]
    assert bins == first["panels"]["bins"]
    by_reason = np.sum(list(queue["panels"]["waiting"].values()), axis=0)
    np.testing.assert_allclose(by_reason, first["panels"]["waiting"]["all"], rtol=2e-3, atol=1e-3)
    tile = page.ask(f"/api/timeline/now/tile/0/0/0/0/fragmented?{LINK}")
    assert tile.status == 200


def test_a_point_tells_the_jobs_there(page, timeline):
    at = page.ask(f"/api/timeline/now/jobs/0/{timeline.rows.gpus}/3000.5?{LINK}").json
    count, jobs = timeline.at(0, timeline.rows.gpus, 3000.5)
    assert at == {"count": count, "jobs": jobs}
    assert count > 0


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("now/tile/99/0/0/0/taken", 400, "no such tile"),
        ("now/tile/0/0/0/0/colors", 400, "no such plane"),
        ("now/tile/x/0/0/0/taken", 400, "whole number"),
        ("now/jobs/0/1/soon", 400, "number of seconds"),
        ("now/jobs/0/1/nan", 400, "number of seconds"),
        ("then/about", 404, "now"),
    ],
)
def test_what_there_is_no_answer_to_is_refused_in_words(page, path, status, words):
    answer = page.ask(f"/api/timeline/{path}?{LINK}")
    assert (answer.status, words in answer.json["error"]) == (status, True)


def test_answers_are_as_the_interface_describes_them(page):
    whole = description("test")
    own = "/api/timeline/{side}"
    for path, asked in {
        f"{own}/about": "now/about",
        f"{own}/panels": "now/panels",
        own + "/tile/{level}/{zoom}/{column}/{block}/{planes}": "now/tile/0/0/0/0/taken",
        own + "/jobs/{first}/{end}/{time}": "now/jobs/0/9/3000",
    }.items():
        described(whole, "get", path, page.ask(f"/api/timeline/{asked}?{LINK}"))
