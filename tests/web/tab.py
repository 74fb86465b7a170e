"""The page in a tab of the browser, driven."""

import time
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

PATIENCE = 240  # s: other work may share the machine, and the first answer waits until the rules are compiled


class Tab:
    """The page in a tab of the browser."""

    def __init__(self, browser, page):
        self.browser, self.page = browser, page

    def open(self, query, *, width=1280, dark=False, ready=True):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        self.browser.get("about:blank")
        for log in ("browser", "performance"):
            self.browser.get_log(log)  # what was before
        self.browser.get(f"{self.page.url}?{query}")
        return self.answered() if ready else self

    def ask(self, script, *words):
        return self.browser.execute_script(f"return ({script})", *words)

    def until(self, script, *words):
        end = time.monotonic() + PATIENCE
        while not (found := self.ask(script, *words)):
            assert time.monotonic() < end, (script, self.text("main"))
            time.sleep(0.05)
        return found

    def answered(self):
        self.until("document.getElementById('status').textContent.startsWith('Answered')")
        return self.unfold()

    def unfold(self):
        """Open the panel of each question, and all metrics."""
        self.ask("document.querySelectorAll('#asks [aria-expanded=false]:not([hidden])').forEach(b => b.click())")
        self.ask("document.getElementById('metrics').open = true")
        return self

    def refined(self):
        """Wait until the numbers are those of replicas, and no more of them are simulated."""
        self.until("document.getElementById('evidence').textContent.startsWith('Means over')")
        return self

    def text(self, name):
        return self.ask("document.getElementById(arguments[0]).innerText", name)

    def find(self, css):
        return self.browser.find_element("css selector", css)

    def choose(self, name, value):
        change = "e.value = v; e.dispatchEvent(new Event('change'));"
        self.ask(f"((e, v) => {{ {change} }})(document.getElementById(arguments[0]), arguments[1])", name, value)

    def click(self, css):
        # By script: a table may be written anew between finding a button and pressing it.
        self.ask("document.querySelector(arguments[0]).click()", css)

    @property
    def state(self):
        return parse_qs(urlsplit(self.browser.current_url).query)

    def numbers(self):
        """By metric: the words for the baseline, for now and for the change."""
        cells = "[...r.cells].slice(0, 4).map(c => c.innerText.trim())"
        rows = f"[...document.querySelectorAll('#numbers tbody tr')].map(r => {cells})"
        return {row[0]: row[1:] for row in self.ask(rows)}


def complaints(browser):
    return [e["message"] for e in browser.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]


def violations(browser):
    """What axe-core complains about, and where; or a word that it is not here."""
    package = find_spec("selenium_axe_python")
    if package is None or package.origin is None:
        pytest.skip("no axe-core: pip install selenium-axe-python")
    browser.set_script_timeout(PATIENCE)
    browser.execute_script((Path(package.origin).parent / "axe-core" / "axe.min.js").read_text("utf-8"))
    told = "v => [v.id, ...v.nodes.map(n => n.html.slice(0, 120))]"
    return browser.execute_async_script(f"axe.run().then(r => arguments[0](r.violations.map({told})))")
