"""Names from a trace are text, never markup, wherever they come in and whichever way they go out."""

import re
import unicodedata
from xml.etree import ElementTree

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import fleetlab
from fleetlab import Estimate
from fleetlab.report.draw import ready, svg
from fleetlab.report.markup import clean, data, tag, text

from .conftest import Found, Seen, every_kind

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "]]>",
    "</style><style>*{display:none}",
    "</script><script>alert(1)</script>",
    "<!--",
    "&lt;b&gt;&#x3c;",
    "\u202egnp.exe",
    "a\x00b\x1b[31m",
    "x" * 10_000,
    "<" * 5_000,
    "javascript:alert(1)",
    "url(https://example.org)",
    "$\\frac{1$",
    "${alert(1)}{{7*7}}",
    "\ud800",
    "名前 שם 🙂",
    "",
]
TURNS = {"RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI", "PDI"}  # marks that turn the direction of text
names = st.sampled_from(HOSTILE) | st.text(max_size=40)


def full(name):
    """A result with that name in every place that holds text."""
    storable = name.encode("utf-8", "replace").decode()  # what a frame can hold
    cells = {f"{storable}a": [storable, None], f"{storable}b": [1.5, 2.5], f"{storable}l": [[storable], []]}
    return Found(
        name=name,
        estimates=[Estimate(name, 1.0, 0.5, 1.5, name), Estimate(f"{name}2", float("nan"), 0, 0, name)],
        frames={name: pl.DataFrame(cells), f"{name}2": pl.DataFrame(cells)},
        charts=every_kind(storable),
        findings=(name,),
        notes=(name,),
        settings={name: name, "list": [name, name]},
    )


def made(results, folder):
    return fleetlab.report(results, folder / "page.html", title="t").read_text("utf-8")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The elements and attributes of a page in which all names are harmless, short and long."""
    folder = tmp_path_factory.mktemp("plain")
    pages = [made([full("name"), full("other" * 20)], folder), made(full("name"), folder)]
    return {(t, a) for page in pages for t, attrs in Seen(page).tags for a in [None, *attrs]}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=names, several=st.booleans())
@example(name="</script><script>alert(1)</script>", several=True)
@example(name='"><img src=x onerror=alert(1)>', several=False)
def test_no_name_brings_in_an_element_or_an_attribute(plain, tmp_path, name, several):
    results = {name: full(name), f"{name}'": full(f"{name}'")} if several else full(name)
    page = fleetlab.report(results, tmp_path / "page.html", title=name).read_text("utf-8")
    seen = Seen(page)
    assert {(t, a) for t, attrs in seen.tags for a in [None, *attrs]} <= plain
    assert not seen.open  # every element that was opened was closed
    assert all(a["href"].startswith("#") for _, a in seen.tags if "href" in a)
    assert not [a for _, attrs in seen.tags for a in attrs if a.startswith("on") or a in {"src", "style"}]
    assert len(seen.all("script")) - len(seen.all("script", type="application/json")) == 1


@settings(max_examples=60, deadline=None)
@given(name=st.text(max_size=60) | names)
def test_what_a_screen_would_obey_is_shown_as_a_mark(name):
    said = clean(name)
    assert not [c for c in said if unicodedata.category(c) in {"Cc", "Cs"} or unicodedata.bidirectional(c) in TURNS]
    assert said.encode("utf-8").decode() == said


def test_an_ordinary_name_stays_as_it_is():
    assert clean("Zoë's job #7 (名前, שם)") == "Zoë's job #7 (名前, שם)"


@given(name=names)
def test_text_comes_back_from_its_markup(name):
    said = text(name)
    assert not set(said) & set("<>\"'")
    assert Seen(tag("p", name)).text("p") == clean(name)


@given(name=names)
def test_no_tag_can_end_the_data_of_the_script(name):
    said = data({"name": clean(name)}).removeprefix('<script type="application/json">').removesuffix("</script>")
    assert not set(said) & set("<>&")


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_figure_as_a_file_is_xml_of_shapes_and_texts(name):
    for figure in full(name).figures().values():
        found = ElementTree.fromstring(svg(ready(figure), whole=True))
        kinds = {re.sub(r"\{.*\}", "", e.tag) for e in found.iter()}
        assert kinds <= {"svg", "g", "path", "line", "rect", "text", "clipPath"}
