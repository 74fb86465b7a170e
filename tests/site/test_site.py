"""The site: complete, strict, without anything from elsewhere, and each link leads to a file."""

import inspect
import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from cyclopts import App
from docs.site import accessible, columns, markdown, notebooks, places
from docs.site.records import FILES, RESULTS, SHARED, without_mark

import fleetlab
from fleetlab.cli import app
from fleetlab.core import cluster, trace, workload
from fleetlab.core.catalog import BACKFILLS, METRICS, ORDERS, PLACEMENTS, REASONS, RESOURCES
from fleetlab.core.words import WORDS

LINK = re.compile(r'(?:href|src)="([^"]+)"')
LOADED = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*(?:src|href)="(https?:)?//')
PUBLIC = {name: getattr(fleetlab, name) for name in fleetlab.__all__}


def pages(site):
    return sorted(site.rglob("*.html"))


def text_of(site, name):
    return unescape(re.sub(r"<[^>]+>", "", (site / name).read_text("utf-8")))


def test_it_builds_within_three_minutes(site):
    assert float((site.parent / "cpu.txt").read_text()) < 180


def test_no_page_loads_anything_from_elsewhere(site):
    assert [page.name for page in pages(site) if LOADED.search(page.read_text("utf-8"))] == []


def test_every_link_leads_to_a_file_also_from_disk(site):
    broken = []
    for page in pages(site):
        for link in LINK.findall(page.read_text("utf-8")):
            parts = urlsplit(unescape(link))
            if parts.scheme or parts.netloc or not parts.path or page.name == "404.html":
                continue
            if not (page.parent / unquote(parts.path)).is_file():
                broken.append((page.name, link))
    assert broken == []


@pytest.mark.parametrize("name", [*PUBLIC])
def test_every_public_name_has_an_entry_with_its_public_methods(site, name):
    thing = PUBLIC[name]
    found = "".join(page.read_text("utf-8") for page in (site / "reference" / "python").glob("*.html"))
    path = f"{thing.__module__}.{thing.__qualname__}"
    methods = [m for m, v in vars(thing).items() if documented(m, v)] if inspect.isclass(thing) else []
    wanted = [path, *(f"{path}.{method}" for method in methods)]
    assert [anchor for anchor in wanted if f'id="{anchor}"' not in found] == []


def documented(name, value):
    plain = getattr(value, "__func__", getattr(value, "fget", getattr(value, "func", value)))
    return not name.startswith("_") and callable(plain) and bool(plain.__doc__)


def all_commands(command: App, path: tuple[str, ...] = ()):
    """Every command below one, with its path."""
    for name in command:
        if not name.startswith("-"):
            yield (*path, name), command[name]
            yield from all_commands(command[name], (*path, name))


@pytest.mark.parametrize("path", [" ".join(path) for path, _ in all_commands(app)])
def test_every_command_has_an_entry_with_its_options(site, path):
    words = path.split()
    command = dict(all_commands(app))[tuple(words)]
    page = site / "reference" / "commands" / f"{words[0]}.html"
    assert f'id="fleetlab-{"-".join(words)}"' in page.read_text("utf-8")
    arguments = command.assemble_argument_collection() if command.default_command else ()
    names = {name for a in arguments if a.show for name in {*a.names} - {*a.negatives}}
    text = text_of(site, page.relative_to(site))
    assert [name for name in sorted(names) if name.startswith("--") and name not in text] == []


def test_every_word_of_a_scenario_has_an_entry(site):
    text = text_of(site, "reference/words.html")
    assert [name for name in WORDS if not re.search(rf"^{name}$", text, re.MULTILINE)] == []


@pytest.mark.parametrize("entries", [ORDERS, BACKFILLS, PLACEMENTS, REASONS, METRICS, RESOURCES], ids=lambda c: c.kind)
def test_every_name_of_a_catalog_has_an_entry(site, entries):
    text = text_of(site, "reference/names.html")
    assert [one.name for one in entries if one.name not in text or one.meaning not in text] == []


@pytest.mark.parametrize(
    ("entries", "schema"),
    [
        (columns.JOBS, workload.SCHEMA),
        (columns.NODES, cluster.SCHEMA),
        (columns.INSTANCES, trace.PLACEMENTS),
        (columns.REJECTS, trace.REJECTS),
        (columns.COUNTS, trace.COUNTS),
    ],
    ids=["jobs", "nodes", "instances", "rejects", "counts"],
)
def test_every_column_of_a_trace_has_an_entry(site, entries, schema):
    assert entries.names == tuple(schema)
    text = text_of(site, "reference/columns.html")
    assert [name for name in schema if not re.search(rf"^{name}$", text, re.MULTILINE)] == []


@pytest.fixture(scope="module")
def run():
    return fleetlab.simulate("builtin:300", load=3.0)


def test_every_column_of_a_schedule_has_an_entry(run):
    assert columns.SCHEDULE.names == tuple(run.schedule().columns)


@pytest.mark.parametrize("one", [*RESULTS, *FILES], ids=lambda one: one.name)
def test_every_column_of_results_and_files_has_an_entry(site, one):
    text = text_of(site, "reference/tables.html")
    assert [
        table.name for table in one.tables if not re.search(rf"^{re.escape(table.name)}$", text, re.MULTILINE)
    ] == []
    names = {(table.name, without_mark(part)) for table in one.tables for part in table.parts()}
    meanings = {re.sub(r"[`\[]|\]\([^)]*\)", "", one.column(*pair, SHARED).meaning) for pair in names}
    assert sorted(meaning for meaning in meanings if meaning not in text) == []


def test_links_outside_of_the_docs_become_links_of_the_site():
    page = "see [why](../DESIGN.md#x), [data](../assets) and [a guide](../simulate.md), `[not](a-link)`"
    found = places.relink(page, "measurements/sharing.md")
    assert "[data](../assets/files.md)" in found
    assert "[a guide](../simulate.md)" in found
    assert places.relink("[why](../DESIGN.md#x)", "slurm.md") == "[why](project/DESIGN.md#x)"


def test_a_list_below_a_sentence_is_a_list_and_a_named_block_has_its_name():
    text = "These:\n- one\n- two\n\n```text my.toml\na = 1\n```\n"
    assert markdown.portable(text, "x.md") == 'These:\n\n- one\n- two\n\n```toml title="my.toml"\na = 1\n```\n'


def test_a_notebook_is_a_page_with_code_and_what_it_showed(tmp_path):
    outputs = [{"output_type": "stream", "text": ["3\n"]}, {"data": {"text/html": ["<b>4</b>", "\n", "\n<i>5</i>"]}}]
    cells = [
        {"cell_type": "markdown", "source": ["# One\n", "two"]},
        {"cell_type": "code", "source": "print(3)", "outputs": outputs},
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}), "utf-8")
    page = notebooks.page(Path(tmp_path / "a.ipynb"))
    assert page.startswith("# One\ntwo\n\n````python\nprint(3)\n````\n\n````text\n3\n````")
    assert '<div class="notebook-output">\n<b>4</b>\n<i>5</i>\n</div>' in page


def test_sentences_that_a_command_prints_wrap_and_rows_of_its_tables_do_not():
    sentence, row = "Mean wait falls. " * 8, "fifo/greedy   0.95 s  " * 8
    page = accessible.mended(f'<span class="go">{sentence}</span>\n<span class="go">{row}</span>')
    assert re.findall(r'class="(.*?)"', page) == ["go sentence", "go"]
