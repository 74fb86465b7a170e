"""What a linter finds: which trap, how bad, where it lies, and the way out."""

from __future__ import annotations

from dataclasses import dataclass

# error: the stack refuses it, or does not do what it says; warning: it works, but not as it looks;
# note: it is right, and depends on something that this file cannot show.
SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """One trap."""

    code: str
    severity: str
    where: str
    what: str
    do: str


def at(*parts: str | int) -> str:
    """A path in a document.

    >>> at("spec", "containers", 0, "env")
    'spec.containers[0].env'
    """
    told = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts if part != "")
    return told.removeprefix(".").replace(".[", "[") or "the document"


def place(number: int, count: int) -> str:
    """The beginning of a path, where a file has several documents."""
    return f"[{number}]" if count > 1 else ""
