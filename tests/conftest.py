"""Where the real traces lie, and the hand-made ones."""

import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from .gpu_programs import deaf_mps, mps, own, smi  # noqa: F401  fixtures of several rooms

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
# Whoever starts the tests in the background has their children ignore Ctrl-C; some of them are to be stopped by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
DATA = Path(__file__).parents[2] / "shared" / "data"


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
