"""The version of the code that decides the result of a simulation."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("fleetlab.core", "fleetlab.sim", "fleetlab.stats", "fleetlab.traces.synthesize")


@cache
def code_version(*modules: str) -> str:
    """Return a digest of the simulator's source text, and of some more modules: one changed line changes it."""
    digest = sha256()
    for name in (*PACKAGES, *modules):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        path = Path(spec.origin)
        files = [p for p in path.parent.rglob("*") if p.suffix in (".py", ".json")] if name in PACKAGES else [path]
        for file in sorted(files):
            text = file.read_bytes()
            digest.update(f"{name} {file.relative_to(path.parent)} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:16]
