"""One page of any results: words first, nothing fetched, nothing lost without a word, small enough to mail."""

import base64
import hashlib
import itertools
import json
import math
import re
from importlib.metadata import version

import numpy as np
import polars as pl
import pytest

import fleetlab
from fleetlab import Estimate, Figure, FleetlabError
from fleetlab.core import as_json

from .conftest import Found, Seen, curve, every_kind

MAILED = 10_000_000


def made(results, folder, **more):
    return fleetlab.report(results, folder / "page.html", **more).read_text("utf-8")


def blocks(page):
    """What the script is told of each figure."""
    return [json.loads(m) for m in re.findall(r'<script type="application/json">(.*?)</script>', page)]


@pytest.fixture
def full():
    frames = {"by user": pl.DataFrame({"user": ["ann", "bob"], "jobs": [3, 4]})}
    said = ("Half of the jobs wait less than 4 s.",)
    return Found(frames=frames, charts=every_kind(), findings=said, notes=("a note",), settings={"order": "fifo"})


# --- what stands where -------------------------------------------------------------------------------------------


def test_words_come_first_then_figures_then_tables(full, tmp_path):
    page = made(full, tmp_path)
    order = ["Half of the jobs wait", ">12.0 s<", "<figure", "by user", "a note", "Provenance</h2>"]
    places = [page.index(part) for part in order]
    assert places == sorted(places)


def test_a_result_without_sentences_says_its_numbers_as_everywhere(tmp_path):
    seen = Seen(made(Found(), tmp_path))
    assert "mean wait" in seen.text("dt")
    assert seen.text("b", "span").strip() == "12.0 s  (95 % CI 9.0 to 15.0)"


def test_under_each_figure_stands_how_it_came_to_be(full, tmp_path):
    seen = Seen(made(full, tmp_path))
    told = [text for tag, text in seen.texts if tag == "p" and text.startswith("try · plain")]
    assert len(told) == len(seen.all("figure")) == 6
    assert set(told) == {f"try · plain · order fifo · seed 1 · fleetlab {version('fleetlab')}"}


def test_headings_go_down_one_step_at_a_time(full, tmp_path):
    seen = Seen(made([full, Found(name="other", charts=every_kind("other"))], tmp_path))
    levels = [int(t[1]) for t, _ in seen.tags if re.fullmatch("h[1-6]", t)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))


def test_every_drawing_has_words_for_those_who_cannot_see_it(full, tmp_path):
    seen = Seen(made(full, tmp_path))
    ids = {a["id"]: a for _, a in seen.tags if "id" in a}
    drawings = seen.all("svg", role="img")
    assert len(drawings) == 12  # each for a wide and for a narrow screen
    assert all(d["aria-labelledby"] in ids for d in drawings)
    assert len(seen.all("details", class_="numbers")) == 6


def test_no_two_elements_share_an_id(full, tmp_path):
    seen = Seen(made([full, full], tmp_path))
    ids = [a["id"] for _, a in seen.tags if "id" in a]
    assert len(ids) == len(set(ids))


# --- nothing comes from outside, nothing goes there ----------------------------------------------------------------


def test_the_policy_of_the_page_knows_its_script_and_style_and_lets_nothing_else_in(full, tmp_path):
    page = made(full, tmp_path)
    policy = Seen(page).all("meta", **{"http-equiv": "Content-Security-Policy"})[0]["content"]
    for kind in ("script", "style"):
        inside = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()
        assert len(inside) == 1
        assert f"{kind}-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_the_same_results_give_the_same_page(full, tmp_path):
    assert made(full, tmp_path) == made(full, tmp_path)


# --- several -----------------------------------------------------------------------------------------------------


def test_results_are_called_by_what_tells_them_apart(tmp_path):
    some = [Found(settings={"order": o, "placement": "best_fit"}) for o in ("fifo", "sjf")]
    heads = [text for tag, text in Seen(made(some, tmp_path)).texts if tag == "th"]
    assert heads[:4] == ["metric", "order fifo", "order sjf", "difference"]


def test_results_that_are_alike_are_numbered(tmp_path):
    assert "try (1)" in (page := made([Found(), Found()], tmp_path))
    assert "try (2)" in page


def test_a_difference_is_from_the_first_and_has_no_verdict(tmp_path):
    numbers = [(10.0, 8.0, 12.0), (5.0, 4.0, 6.0), (9.0, 7.0, 11.0)]
    some = {f"r{k}": Found(estimates=[Estimate("wait", *n, "s")]) for k, n in enumerate(numbers)}
    cells = [text for tag, text in Seen(made(some, tmp_path)).texts if tag == "td"]
    assert cells[:2] == ["−5 s (−50 %)", "−1 s (−10 %)"]


def test_seconds_are_shown_in_a_readable_unit(tmp_path):
    some = {
        name: Found(estimates=[Estimate("wait", wait, wait, wait, "s")]) for name, wait in (("a", 5400), ("b", 9000))
    }
    seen = Seen(made(some, tmp_path))
    assert [text for tag, text in seen.texts if tag == "b"][:2] == ["90 min", "2.5 h"]
    assert "+60 min (+66.7 %)" in seen.text("td")


def test_figures_of_one_name_share_a_sheet_and_what_is_the_same_in_both_is_drawn_once(tmp_path):
    shared = curve(series=("published",)).frame
    some = {}
    for k, name in enumerate(("fifo", "sjf")):
        own = curve(series=("found",), y=(0.1, 0.3, 0.5, 0.7 + 0.1 * k)).frame
        some[name] = Found(charts={"cdf": Figure("waits", "line", pl.concat([own, shared]), "s", "share", "says")})
    told = [b for b in blocks(made(some, tmp_path)) if b["title"] == "waits"]
    assert [c["name"] for c in told[0]["curves"]] == ["fifo: found", "sjf: found", "published"]


def test_figures_with_too_many_curves_stand_side_by_side_on_the_same_axes(tmp_path):
    series = [f"s{k}" for k in range(5)]
    some = {
        n: Found(charts={"cdf": curve(series=series, x=(1.0, 2.0, 4.0, 8.0 * (k + 1)))}) for k, n in enumerate("ab")
    }
    told = [b for b in blocks(made(some, tmp_path)) if b["title"] == "waits"]
    assert [b["x"] for b in told] == [[1, 16], [1, 16]]


def test_figures_of_other_axes_never_share_a_sheet(tmp_path):
    some = {"a": Found(charts={"f": curve()}), "b": Found(charts={"f": curve(log_x=True)})}
    told = [b for b in blocks(made(some, tmp_path)) if b["title"] == "waits"]
    assert [b["logx"] for b in told] == [False, True]


# --- figures that tables make ------------------------------------------------------------------------------------


def drawn(frame, folder):
    return blocks(made(Found(frames={"t": pl.DataFrame(frame)}), folder))


def test_a_number_with_its_low_and_high_becomes_a_figure(tmp_path):
    told = drawn({"pool": ["T4", "V100"], "wait": [1.0, 2.0], "low": [0.5, 1.5], "high": [1.5, 2.5]}, tmp_path)
    assert [(b["kind"], b["title"], b["names"]) for b in told] == [("dots", "t: wait", ["T4", "V100"])]
    assert told[0]["curves"][0]["high"] == [1.5, 2.5]


def test_along_a_number_it_becomes_a_curve(tmp_path):
    told = drawn({"nodes": [10, 20], "P90": [5.0, 2.0], "P90 low": [4.0, 1.0], "P90 high": [6.0, 3.0]}, tmp_path)
    assert [(b["kind"], b["curves"][0]["x"]) for b in told] == [("line", [10, 20])]


@pytest.mark.parametrize(
    "frame",
    [
        {"a": ["x", "y"], "value": [1.0, 2.0], "low": [0.5, 1.5], "high": [1.5, 2.5], "unit": ["s", "GPUs"]},
        {"a": ["x", "x"], "value": [1.0, 2.0], "low": [0.5, 1.5], "high": [1.5, 2.5]},
        {"a": ["x", "y"], "value": [1.0, 2.0], "low": [1.0, 2.0], "high": [1.0, 2.0]},
        {"a": ["x", "y"], "share": [10.0, 90.0]},
        {"a": ["x"], "value": [1.0], "low": [0.5], "high": [1.5]},
    ],
    ids=["several units", "names that repeat", "no width", "no share", "one row"],
)
def test_where_it_is_not_safe_a_table_stays_a_table(frame, tmp_path):
    assert drawn(frame, tmp_path) == []


# --- small enough ------------------------------------------------------------------------------------------------


def test_a_long_table_is_cut_and_says_so(tmp_path):
    seen = Seen(made(Found(frames={"jobs": pl.DataFrame({"job": range(12_345)})}), tmp_path))
    assert len(seen.all("tr")) == 201
    assert "(12,345 rows, the first 200 are shown)" in seen.text("span")


def test_more_than_a_million_jobs_fit_in_a_mail(tmp_path):
    n = 1_260_000
    rng = np.random.default_rng(0)
    waits = pl.DataFrame({"x": np.sort(rng.lognormal(3, 2, n)), "y": np.arange(n) / n})
    figures = {f"f{k}": Figure("waits", "step", waits, "s", "share", "says", log_x=True) for k in range(4)}
    page = made(Found(frames={"jobs": pl.DataFrame({"wait": waits["x"]})}, charts=figures), tmp_path)
    assert len(page.encode()) < MAILED / 4
    assert f"{n:,} points are thinned" in page


def test_a_page_of_too_much_is_made_smaller_until_it_fits(tmp_path):
    wide = pl.DataFrame({f"c{k}": ["<" * 60] * 300 for k in range(20)})
    page = made(Found(frames={f"t{k}": wide for k in range(40)}), tmp_path)
    assert len(page.encode()) <= MAILED
    assert page.count("<details") == 40


# --- mistakes ----------------------------------------------------------------------------------------------------


def test_a_result_with_nothing_in_it_is_a_page_too(tmp_path):
    nothing = Found(estimates=[Estimate("wait", math.nan, math.nan, math.nan, "s")], frames={"t": pl.DataFrame()})
    seen = Seen(made(nothing, tmp_path))
    assert seen.text("dd", "b").strip() == "–"


def test_no_result_is_an_error_with_a_hint(tmp_path):
    with pytest.raises(FleetlabError, match="no result") as e:
        fleetlab.report([], tmp_path / "page.html")
    assert "--json" in e.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", ["result.json", [1], {"a": None}])
def test_what_is_no_result_is_an_error_with_a_hint(wrong, tmp_path):
    with pytest.raises(FleetlabError, match="not a result") as e:
        fleetlab.report(wrong, tmp_path / "page.html")
    assert "SavedResult.load" in e.value.hint


def test_figures_come_as_files_under_names_that_every_system_takes(tmp_path):
    drawn = {"a": curve(title="../etc/<passwd>"), "b": curve(title="waits"), "c": curve(title="waits")}
    made(Found(charts=drawn), tmp_path, svg=tmp_path / "svg")
    assert sorted(p.name for p in (tmp_path / "svg").iterdir()) == ["01-etc-passwd.svg", "02-waits.svg", "03-waits.svg"]


# --- the command -------------------------------------------------------------------------------------------------


def test_the_command_draws_what_others_printed(full, tmp_path, command):
    for name in ("fifo", "sjf"):
        (tmp_path / f"{name}.json").write_text(as_json(full))
    done = command(
        "report", tmp_path / "fifo.json", tmp_path / "sjf.json", "--out", tmp_path / "p.html", "--title", "a < b"
    )
    assert done.stdout.strip() == str(tmp_path / "p.html")
    seen = Seen((tmp_path / "p.html").read_text())
    assert seen.text("h1") == "a < b"
    assert [t for g, t in seen.texts if g == "th"][1:3] == ["fifo", "sjf"]


def test_the_command_says_in_json_what_it_wrote(full, tmp_path, command):
    (tmp_path / "r.json").write_text(as_json(full))
    told = json.loads(command("report", tmp_path / "r.json", "--out", tmp_path / "p.html", "--json").stdout)
    assert told["tables"]["pages"] == [{"file": f"{tmp_path}/p.html", "bytes": (tmp_path / "p.html").stat().st_size}]


def test_a_file_that_is_no_result_is_an_error_and_nothing_is_written(tmp_path, command):
    (tmp_path / "r.json").write_text("{}")
    done = command("report", tmp_path / "r.json", "--out", tmp_path / "p.html")
    assert done.returncode == 2
    assert "error: not a saved result" in done.stderr
    assert not (tmp_path / "p.html").exists()


def test_a_page_never_takes_the_place_of_its_result(full, tmp_path, command):
    (tmp_path / "r.json").write_text(as_json(full))
    done = command("report", tmp_path / "r.json", "--out", tmp_path / "r.json")
    assert done.returncode == 2
    assert "hint: give the page a name of its own" in done.stderr
    assert json.loads((tmp_path / "r.json").read_text())
