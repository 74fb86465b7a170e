"""Where the real traces lie, and the hand-made ones."""

import csv
import gc
import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

from fleetlab import _screen, cli

from .gpu_programs import deaf_mps, mps, own, smi  # noqa: F401  fixtures of several folders

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
# Tests with a home of their own would compile all loops anew.
HOME = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
os.environ.setdefault("FLEETLAB_COMPILED", str(HOME / "fleetlab"))
# Whoever starts the tests in the background has their children ignore Ctrl-C; some of them are to be stopped by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# The longest files come first, else one core has nothing to do at the end; workers take the next file when they are
# free. Files that are not in the list are new, and come between.
SECONDS = Path(__file__).parent / "seconds.csv"  # CPU seconds of each file of three seconds and more
LONG, NEW = 3.0, 2.0
DATA = Path(__file__).parents[2] / "shared" / "data"
SELECTED = "FLEETLAB_TESTS"  # paths of the test files of a change


def pytest_addoption(parser):
    """Let the guides be written anew."""
    parser.addoption("--update", action="store_true", help="write what commands print now into the guides")
    parser.addoption(
        "--changed", nargs="?", const="main", metavar="REF", help="only tests of what differs from a commit (main)"
    )
    parser.addoption("--seconds", action="store_true", help="print and keep what test files take in CPU time")


def pytest_configure(config):
    """Choose the test files of a change, once for all workers; measure them where that is asked for."""
    if config.getoption("--seconds"):
        config.pluginmanager.register(Clock(), "clock")
    ref = config.getoption("--changed")
    if ref and not hasattr(config, "workerinput"):
        from .selection import changed, selected

        os.environ[SELECTED] = os.pathsep.join(map(str, selected(changed(ref))))


def pytest_ignore_collect(collection_path, config):
    """Leave out files that a change does not concern."""
    if config.getoption("--changed") and collection_path.is_file():
        return str(collection_path) not in os.environ[SELECTED].split(os.pathsep) or None
    return None


def pytest_collection_finish():
    """From here on garbage is collected, but not among modules and tests."""
    gc.freeze()
    gc.enable()


def measured():
    """Return the CPU seconds of the files that take long, as the last measurement had them."""
    return {name: int(seconds) for name, seconds in csv.reader(SECONDS.read_text("utf-8").splitlines())}


def pytest_collection_modifyitems(items):
    """Put the longest files first."""
    rank = {Path(__file__).parent / name: -seconds for name, seconds in measured().items()}
    items.sort(key=lambda item: rank.get(item.path, -NEW))


def processes_below(pid):
    """Yield the processes that one has started, and those that they have."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield child
                yield from processes_below(child)


def spent():
    """Return the CPU seconds of this process and of all below it: of some that live on, as servers and the browser."""
    total = sum(os.times()[:4])
    for pid in processes_below(os.getpid()):
        with suppress(OSError):
            own = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
            total += sum(map(int, own)) / os.sysconf("SC_CLK_TCK")
    return total


class Clock:
    """The CPU seconds of each test file: those of this process and of all that it has started."""

    def __init__(self):
        self.seconds, self.begin = defaultdict(float), spent()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self):
        """Give a report what went by since the one before."""
        report = yield
        now = spent()
        report.cpu, self.begin = now - self.begin, now
        return report

    def pytest_runtest_logreport(self, report):
        """Add it to its file, in the process that has all reports."""
        self.seconds[report.nodeid.partition("::")[0].removeprefix("tests/")] += report.cpu

    def pytest_terminal_summary(self, terminalreporter):
        """Print all files and what they take; keep those that take long."""
        files = sorted(self.seconds.items(), key=lambda pair: -pair[1])
        for name, seconds in files:
            terminalreporter.write_line(f"{seconds:8.1f} {name}")
        terminalreporter.write_line(f"{sum(self.seconds.values()):8.1f} in all")
        old = {name: seconds for name, seconds in measured().items() if name not in self.seconds}
        rows = old | {name: round(seconds) for name, seconds in files if seconds >= LONG}
        SECONDS.write_text("".join(f"{n},{s}\n" for n, s in sorted(rows.items(), key=lambda row: -row[1])))


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


@pytest.fixture(autouse=True)
def short_answers(monkeypatch):
    """`--full` holds for one process: here for one test."""
    monkeypatch.setattr(_screen, "_full", False)


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


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """Chromium, driven, one for all modules of a process of pytest; or a word that it is not here."""
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


@pytest.fixture(scope="module")
def browser(chromium):
    """A new window of Chromium, without what other modules stored, emulated or had downloaded."""
    others = chromium.window_handles
    chromium.switch_to.new_window("window")
    opened = chromium.current_window_handle
    for handle in others:
        chromium.switch_to.window(handle)
        chromium.close()
    chromium.switch_to.window(opened)
    chromium.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
    chromium.execute_cdp_cmd("Network.clearBrowserCache", {})
    chromium.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "default"})
    return chromium
