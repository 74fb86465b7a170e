"""Every picture of the guides is one that `make pictures` makes, and every one that it makes is shown."""

import re
from pathlib import Path

from docs import packages_picture
from docs.pictures import IMAGES, LARGEST, PICTURES

ROOT = Path(__file__).parents[1]
SHOWN = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")


def shown():
    """The pictures that the README and the guides show."""
    guides = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return {(guide.parent / path).resolve() for guide in guides for path in SHOWN.findall(guide.read_text("utf-8"))}


def test_every_picture_that_is_shown_is_made_by_the_script():
    assert shown() <= {IMAGES / name for name in PICTURES}


def test_every_picture_of_the_script_is_there_and_is_shown():
    assert {IMAGES / name for name in PICTURES} <= shown()
    assert {path.name for path in IMAGES.iterdir()} == set(PICTURES)


def test_no_picture_is_large():
    assert {path.name for path in IMAGES.iterdir() if path.stat().st_size > LARGEST} == set()


def test_the_map_of_the_packages_is_as_drawn_and_names_only_packages_that_are_there():
    text = (IMAGES / "packages.svg").read_text("utf-8")
    named = set(re.findall(r"\b(\w+)/(?=[<, ])", text))
    assert text == packages_picture.draw()
    assert named <= {p.parent.name for p in (ROOT / "src" / "fleetlab").glob("*/__init__.py")}
