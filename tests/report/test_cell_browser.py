"""Cells of a notebook in a real browser: axe-core has no complaint, and no two figures are confused."""

import pytest
from tests.web.tab import violations

import fleetlab

from .conftest import Found, curve, every_kind

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    results = [fleetlab.solve("M/M/c", lam=7.2, mu=1, c=8), Found(charts=every_kind()), Found(charts=every_kind("m"))]
    cells = "<hr>".join(result._repr_html_() for result in (*results, curve("bar")))
    path = tmp_path_factory.mktemp("cells") / "cells.html"
    path.write_text(f'<!doctype html><html lang="en"><title>cells</title><meta charset="utf-8"><main><h1>c</h1>{cells}')
    return path


def test_axe_finds_nothing_in_cells(browser, page):
    browser.get(page.as_uri())
    assert violations(browser) == []


def test_every_clip_of_a_figure_is_its_own(browser, page):
    browser.get(page.as_uri())
    twice = "[...document.querySelectorAll('[id]')].map(e => e.id).filter((id, k, all) => all.indexOf(id) !== k)"
    assert browser.execute_script(f"return {twice}") == []
    assert browser.execute_script("return document.querySelectorAll('svg clipPath').length") >= 2
