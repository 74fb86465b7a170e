"""Where the real traces lie, and the hand-made ones."""

from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent / "fixtures"
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
