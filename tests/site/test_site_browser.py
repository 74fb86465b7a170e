"""The site in a real browser, opened from disk: all can read it, it fits on a phone, and it can be searched."""

import time

import pytest
from tests.web.tab import violations

pytestmark = pytest.mark.browser
PATIENCE = 60.0  # seconds
# One page of each template: home, index, guide, concept, Python, command, table, measurements, notebook.
PAGES = [
    "index.html",
    "start/slurm.html",
    "concepts/backfill.html",
    "reference/python/verbs.html",
    "reference/commands/bench.html",
    "reference/columns.html",
    "measurements/sharing.html",
    "notebooks/1-slurm-log.html",
]


@pytest.fixture
def opened(browser, site):
    """Open a page from disk on a screen of some width, in light or dark."""

    def page_opened(name, *, width=1280, dark=False):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        path, _, query = name.partition("?")
        browser.get((site / path).as_uri() + ("?" + query if query else ""))
        until(browser, "document.readyState === 'complete'")
        time.sleep(0.3)  # the theme wraps tables and code once it is there
        return browser

    yield page_opened
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def until(browser, script):
    end = time.monotonic() + PATIENCE
    while not browser.execute_script(f"return !!({script})"):
        assert time.monotonic() < end, script
        time.sleep(0.1)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "dark"), [(360, False), (1280, True)], ids=["phone, light", "screen, dark"])
def test_axe_has_no_complaint_of_any_kind_of_page(opened, name, width, dark):
    browser = opened(name, width=width, dark=dark)
    scheme = "slate" if dark else "default"
    assert browser.execute_script("return document.body.dataset.mdColorScheme") == scheme
    assert violations(browser) == []


@pytest.mark.parametrize(
    "name", [*PAGES, "simulate.html", "slurm.html", "compare-with-other-tools.html", "glossary.html"]
)
def test_no_page_is_wider_than_a_phone(opened, name):
    browser = opened(name, width=360)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360


def test_pictures_of_a_page_are_there(opened):
    browser = opened("concepts/intervals.html")
    assert browser.execute_script("return [...document.images].map(i => i.naturalWidth > 0)") == [True]


def test_search_works_from_disk(opened):
    browser = opened("index.html?q=fragmentation")
    until(browser, "document.querySelectorAll('.md-search-result__item').length > 3")


def test_a_menu_opens_on_a_phone(opened):
    browser = opened("index.html", width=360)
    browser.execute_script("document.querySelector('label[for=__drawer]').click()")
    until(browser, "document.querySelector('.md-sidebar--primary').getBoundingClientRect().left >= 0")
