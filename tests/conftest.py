"""Where the real traces lie, and the hand-made ones."""

import gc
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from fleetlab import cli

from .gpu_programs import deaf_mps, mps, own, smi  # noqa: F401  fixtures of several rooms

# What is imported and collected stays to the end: to look for garbage in it takes a quarter of the time.
gc.disable()

# How long an example takes depends on what else the machine does: it is no test.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

FIXTURES = Path(__file__).parent / "fixtures"
# As root, and without the connections that a browser makes by itself.
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
]
# Processes of pytest tell those that they start how wide their terminal is; what is printed into a test has no width.
os.environ.pop("COLUMNS", None)
# Whoever starts the tests in the background has their children ignore Ctrl-C; some of them are to be stopped by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# The longest files come first, else one core has nothing to do at the end. Of two that start together one compiles,
# and those that wait for servers or tenants stand between those that compute.
FIRST = [
    "test_docs.py",
    "serving/test_load.py",
    "sim/test_full.py",
    "sim/test_simulate.py",
    "web/test_browser.py",
    "test_notebooks.py",
    "studies/sweep/test_kills.py",
    "bench/test_failures.py",
    "studies/test_compare.py",
    "bench/test_stress.py",
    "studies/sweep/test_sweep.py",
    "studies/test_validate.py",
    "web/test_operations.py",
    "studies/tune/test_tune.py",
    "studies/test_autoscale.py",
    "serving/test_stop.py",
    "sim/test_published.py",
    "deploy/test_experiments.py",
    "traces/test_synthesize.py",
    "serving/test_clients.py",
    "sim/test_schedules.py",
    "sharing/test_mps.py",
    "sim/test_two_loops.py",
    "bench/test_suite.py",
    "sim/test_packing.py",
    "core/test_saving.py",
]
DATA = Path(__file__).parents[2] / "shared" / "data"


def pytest_addoption(parser):
    """Let the guides be written anew."""
    parser.addoption("--update", action="store_true", help="write what commands print now into the guides")


def pytest_collection_finish():
    """From here on garbage is collected, but not among modules and tests."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items):
    """Put the longest files first."""
    rank = {Path(__file__).parent / name: k for k, name in enumerate(FIRST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture
def fixtures() -> Path:
    """Hand-made files: `FORMAT/good` reads without a reject, `FORMAT/bad` has something wrong in most lines."""
    return FIXTURES


@pytest.fixture
def data() -> Path:
    """The folder of real traces, or a word that it is not here."""
    if not DATA.is_dir():
        pytest.skip(f"no real traces in {DATA.name} beside the checkout")
    return DATA


@pytest.fixture
def command(monkeypatch, capfd):
    """Run a `fleetlab` command here rather than in a process that imports everything: what it says is the same."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)

    def run(*words, **env):
        capfd.readouterr()
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            try:
                cli.main([*map(str, words)])
                status = 0
            except SystemExit as left:
                status = left.code or 0
        return subprocess.CompletedProcess(words, status, *capfd.readouterr())

    yield run
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium, driven; or a word that it is not here."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no chromium with its chromedriver: apt-get install chromium chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: pip install selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()
