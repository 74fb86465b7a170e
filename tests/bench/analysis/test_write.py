"""The files of an analysis: words first, figures beside, harmless whatever a tenant is called."""

import json
import sys
from html.parser import HTMLParser

import pytest

import fleetlab
from fleetlab import cli
from fleetlab.bench.analysis import analyze, write_analysis

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, made):
    """Every figure has something to draw, and one tenant has a name that a page must not obey."""
    cells = []
    for mode in ("time-slicing", "mps"):
        for block in range(2):
            k = 10 * block + (100 if mode == "mps" else 0)
            cells += [
                made.cell([made.tenant(name, 100)], mode=mode, block=block, opens=1.0 + k) for name in (EVIL, "serve")
            ]
            for n in (2, 4):
                crowd = [made.tenant("serve", 60 / n)] * n
                cells.append(made.cell(crowd, mode=mode, block=block, opens=3.0 + n + k))
            pair = [made.tenant(EVIL, 50 + block), made.tenant("serve", 60)]
            cells.append(made.cell(pair, mode=mode, block=block, opens=9.0 + k))
    for percent in (25, 50):
        cells.append(
            made.cell([made.tenant(f"serve@{percent}", percent, sms=percent)], mode="mps", opens=300.0 + percent)
        )
    steps = [0.001] * 600
    for mode in ("time-slicing", "mps"):
        asked = made.tenant("asked", 100, step=steps, offered=500)
        cells.append(made.cell([asked, made.tenant(EVIL, 50)], mode=mode, stage=f"serving-{mode}", opens=500.0))
    return made.suite(
        tmp_path_factory.mktemp("in") / "all",
        cells,
        tenants={EVIL: {"work": "resnet-train"}, "serve": {"work": "resnet-infer"}},
    )


@pytest.fixture(scope="module")
def out(folder, tmp_path_factory):
    """All its files."""
    path = tmp_path_factory.mktemp("out")
    write_analysis(analyze(folder), path)
    return path


@pytest.fixture
def undrawn(monkeypatch):
    """A machine without matplotlib, where all else is as it was: drawing takes seconds."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


class Page(HTMLParser):
    """What a browser would make of it."""

    def __init__(self):
        super().__init__()
        self.tags, self.ids, self.links, self.order = set(), [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.order.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name.startswith("on"):
                self.tags.add(name)
            if name in ("src", "href", "xlink:href"):
                self.links.append(value)


def test_the_page_is_one_harmless_file(out):
    text = (out / "analysis.html").read_text()
    page = Page()
    page.feed(text)
    assert not page.tags & {"script", "link", "iframe", "object", "img", "onload", "onerror"}
    inside = {link for link in page.links if not link.startswith("data:image/png;base64,")}
    assert {link.removeprefix("#") for link in inside} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert "&lt;script&gt;alert(1)" in text
    assert "prefers-color-scheme: dark" in text
    assert text.index("Summary") < text.index("<svg") < text.index("<table")


def test_every_figure_comes_as_png_and_svg(out):
    names = {"throughput", "interference", "sm-curve", "breaking-serve", "serving", "energy", "timeline-all"}
    assert {path.stem for path in out.glob("figures/*.png")} == names
    assert {path.stem for path in out.glob("figures/*.svg")} == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in out.glob("figures/*.png"))
    assert not any("<script" in path.read_text() for path in out.glob("figures/*.svg"))
    assert {path.name for path in out.iterdir()} == {
        "analysis.txt",
        "analysis.html",
        "analysis.json",
        "figures",
        "tables",
    }


def test_an_interval_is_drawn_for_every_mark(out):
    """Two pairs in two modes: four bars."""
    text = (out / "figures" / "throughput.svg").read_text()
    assert text.count('<g id="LineCollection') == 4


def test_the_same_folder_gives_the_same_files(tmp_path, made):
    modes = {"time-slicing": {("train", "serve"): (0.4, 0.5)}}
    made.pairs(tmp_path / "in", modes)
    for out in ("one", "two"):
        write_analysis(analyze(tmp_path / "in"), tmp_path / out)
    one, two = (
        {p.relative_to(tmp_path / out): p.read_bytes() for p in (tmp_path / out).rglob("*") if p.is_file()}
        for out in ("one", "two")
    )
    assert one == two


def test_without_matplotlib_all_else_comes(folder, tmp_path, undrawn):
    told = []
    files = {path.name for path in write_analysis(analyze(folder), tmp_path, progress=told.append)}
    assert "pip install fleetlab[plots]" in told[0]
    assert {"analysis.txt", "analysis.html", "mixes.csv"} <= files
    assert not [name for name in files if name.endswith((".png", ".svg"))]


def test_the_text_reads_without_colour(out):
    text = (out / "analysis.txt").read_text()
    assert all(c.isprintable() or c == "\n" for c in text)
    assert text.index("SUMMARY") < text.index("SIX QUESTIONS") < text.index("RECOMMENDED MODES") < text.index("MIXES")


def test_a_folder_that_cannot_be_written_is_an_error(folder, tmp_path, undrawn):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(fleetlab.DeviceError, match="cannot write the analysis"):
        write_analysis(analyze(folder), tmp_path / "out")


def run(*words):
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", "analyze", *map(str, words)])
    assert not end.value.code


def test_the_command_prints_one_object_for_machines(folder, tmp_path, undrawn, capsys):
    run(folder, "--price", 2, "--out", tmp_path, "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["provenance"]["settings"]["price"] == 2
    assert len(told["tables"]["answers"]) == 6
    assert {e["metric"] for e in told["summary"]} >= {"cells measured", "cells failed"}
    assert json.loads((tmp_path / "analysis.json").read_text()) == told


def test_the_command_prints_words_for_people_and_reads_its_folder_again(folder, undrawn, capsys):
    run(folder)
    first = capsys.readouterr()
    assert first.out.startswith("SUMMARY")
    assert "open analysis.html" in first.err
    assert (folder / "analysis" / "analysis.txt").exists()
    run(folder)
    assert capsys.readouterr().out == first.out
