"""What decides a result besides its words: the text of the code that draws, simulates and measures."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

# Packages whose every file counts, and the files of this one that make a cell's numbers.
DECIDES = ("fleetlab.core", "fleetlab.sim", "fleetlab.traces.synthesize")
HERE = ("_cell.py", "_draw.py", "_nodes.py", "_packed.py")


@cache
def code() -> str:
    """A digest of all of it: one changed line makes every cell a new one."""
    files = [Path(__file__).parent / name for name in HERE]
    for package in DECIDES:
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        files += [p for p in Path(spec.origin).parent.iterdir() if p.suffix in (".py", ".json")]
    found = sha256()
    for path in sorted(files, key=lambda p: (p.parent.name, p.name)):
        text = path.read_bytes()
        found.update(f"{path.parent.name}/{path.name} {len(text)}\n".encode() + text)
    return found.hexdigest()[:16]


@cache
def release() -> str:
    """The version of fleetlab: looked up once, for it is looked up in files."""
    return version("fleetlab")


def text_digest(text: str) -> str:
    """A short name for a text."""
    return sha256(text.encode()).hexdigest()[:16]
