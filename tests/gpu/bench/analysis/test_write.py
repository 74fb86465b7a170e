"""The files of an analysis: words first, figures beside, harmless whatever a tenant is called."""

import json
import shutil
from html.parser import HTMLParser

import pytest

from fleetlab import cli
from fleetlab.gpu.bench.analysis import analyze

EVIL = "<script>alert(1)</script>\x1b[31m"


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


def run(*words):
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", "analyze", *map(str, words)])
    return end.value.code


@pytest.fixture(scope="module")
def out(folder, tmp_path_factory):
    """All its files."""
    path = tmp_path_factory.mktemp("out")
    assert not run(folder, "--out", path)
    return path


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
    assert not page.tags & {"link", "iframe", "object", "img", "onload", "onerror"}
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert "<script>alert" not in text
    assert text.index("Summary") < text.index("<svg") < text.index("<table")


def test_every_figure_that_has_data_is_drawn(folder, out):
    names = set(analyze(folder).figures())
    kinds = ("training + inference", "inference + inference")
    assert names == {
        *(f"{name}, {kind}" for name in ("throughput", "energy") for kind in kinds),
        "interference, time-slicing",
        "interference, mps",
        "sm curve",
        "copies, serve",
        "tail of copies, serve",
        f"serving, beside {EVIL}",
    }
    assert len(list(out.glob("figures/*.svg"))) == len(names)
    assert not any("<script" in path.read_text() for path in out.glob("figures/*.svg"))
    assert {path.name for path in out.iterdir()} == {"analysis.html", "analysis.json", "figures", "tables"}


def test_a_mark_has_the_interval_of_its_row(folder):
    found = analyze(folder)
    marks = found.figures()["throughput, training + inference"].frame
    assert marks.height == 2
    rows = found.tables()["mixes"].filter(mix=marks["x"][0]).sort("mode", descending=True)
    assert marks["low"].to_list() == rows["stp_low"].to_list()
    assert marks["series"].to_list() == ["time slicing", "MPS"]


def test_a_generator_that_was_late_is_not_drawn(tmp_path, made):
    late = [
        made.cell([made.tenant("asked", 100, step=[0.001] * 600, offered=500, lag=0.01)], mode=mode)
        for mode in ("time-slicing", "mps")
    ]
    found = analyze(made.suite(tmp_path, late))
    assert not found.tables()["serving"]["valid"].any()
    assert not found.figures()


def test_the_same_folder_gives_the_same_files(tmp_path, made):
    modes = {"time-slicing": {("train", "serve"): (0.4, 0.5)}}
    made.pairs(tmp_path / "in", modes)
    for out in ("one", "two"):
        run(tmp_path / "in", "--out", tmp_path / out)
    one, two = (
        {p.relative_to(tmp_path / out): p.read_bytes() for p in (tmp_path / out).rglob("*") if p.is_file()}
        for out in ("one", "two")
    )
    assert one == two


def test_a_folder_that_cannot_be_written_is_an_error(folder, tmp_path, capsys):
    (tmp_path / "out").write_text("a file")
    assert run(folder, "--out", tmp_path / "out") == 2
    assert f"error: not a folder: {tmp_path / 'out'}" in capsys.readouterr().err


def test_the_command_prints_one_object_for_machines(folder, tmp_path, capsys):
    run(folder, "--price", 2, "--out", tmp_path, "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["provenance"]["settings"]["price"] == 2
    assert len(told["tables"]["answers"]) == 6
    assert {e["metric"] for e in told["summary"]} >= {"cells measured", "cells failed"}
    assert json.loads((tmp_path / "analysis.json").read_text()) == told


def test_the_command_prints_words_for_people_and_leaves_the_measured_folder_as_it_was(folder, capsys):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    run(folder)
    first = capsys.readouterr()
    assert all(c.isprintable() or c == "\n" for c in first.out)
    assert first.out.index("How does each mode affect throughput?") < first.out.index("\nadvice\n")
    assert "--out FOLDER writes the page" in first.err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_folder_with_its_own_analysis_is_read_as_before(folder, tmp_path, capsys):
    again = shutil.copytree(folder, tmp_path / "again")
    run(again, "--out", again / "analysis")
    first = capsys.readouterr().out
    run(again, "--out", again / "analysis")
    assert capsys.readouterr().out == first
