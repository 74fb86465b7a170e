"""What the compiler asks of a stack: what it can hold, how that is written, and how it is known and read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from fleetlab.devices.errors import BenchError
from fleetlab.stacks.spec import Spec

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stack:
    """One format.

    Law: what is held is held wholly, `read(write(hold(spec))) == hold(spec)`, and `hold(hold(spec)) == hold(spec)`.
    """

    name: str
    hold: Callable[[Spec], Spec]
    write: Callable[[Spec], str]  # of what is held
    mine: Callable[[Sequence[Document]], bool]
    read: Callable[[Sequence[Document]], Spec]
    why: Mapping[str, str] = field(default_factory=dict)  # why a part of a spec is not held


def cannot(stack: str, what: str, hint: str) -> NoReturn:
    """Something that a stack has no words for at all."""
    msg = f"{stack} cannot say it: {what}"
    raise BenchError(msg, hint=hint)


def unread(what: str, hint: str | None = None) -> NoReturn:
    """A file that is of a stack, but not something that a spec can say."""
    msg = f"not to be read as a spec: {what}"
    raise BenchError(msg, hint=hint)


def dig(found: object, *path: str | int) -> Any:  # noqa: ANN401
    """What lies at the end of a path; None where it breaks off, whatever a stranger wrote.

    >>> dig({"spec": {"containers": [{"name": "main"}]}}, "spec", "containers", 0, "name")
    'main'
    """
    for step in path:
        if isinstance(found, dict) and isinstance(step, str):
            found = found.get(step)
        elif isinstance(found, list) and isinstance(step, int) and step < len(found):
            found = found[step]
        else:
            return None
    return found


def listed(found: object) -> list[Any]:
    """A list, or nothing."""
    return found if isinstance(found, list) else []


def mapped(found: object) -> dict[str, Any]:
    """A mapping, or nothing."""
    return found if isinstance(found, dict) else {}
