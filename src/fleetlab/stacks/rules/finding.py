"""Findings of the linter: code, severity, location, problem and remedy."""

from __future__ import annotations

from dataclasses import dataclass

# error: the stack rejects it, or does not do what it says; warning: it works, but not as it seems;
# note: it depends on something that the file does not show.
SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding."""

    code: str
    severity: str
    where: str
    what: str
    do: str


def at(*parts: str | int) -> str:
    """Format a path in a document.

    >>> at("spec", "containers", 0, "env")
    'spec.containers[0].env'
    """
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts if part != "")
    return path.removeprefix(".").replace(".[", "[") or "the document"


def place(number: int, count: int) -> str:
    """The beginning of a path, if a file has several documents."""
    return f"[{number}]" if count > 1 else ""
