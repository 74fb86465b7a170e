"""Look a name up in a list of known names; an unknown one is refused with the closest match."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from fleetlab.core.errors import FleetlabError, PolicyError

LONGEST = 60  # characters of an unknown name that an error repeats


def lookup(
    kind: str, name: str, known: Iterable[str], *, error: type[FleetlabError] = PolicyError, hint: str | None = None
) -> str:
    """Return `name` if it is one of `known`; otherwise raise `error` with the closest match and a list of all.

    >>> lookup("order", "sjf", ["fifo", "sjf"])
    'sjf'
    >>> lookup("order", "sfj", ["fifo", "sjf"])
    Traceback (most recent call last):
    fleetlab.core.errors.PolicyError: no order by that name: `sfj`; did you mean sjf?
    """
    names = list(known)
    if name in names:
        return name
    folded = {other.casefold(): other for other in names}
    near = get_close_matches(str(name)[:LONGEST].casefold(), folded, 1)
    msg = f"no {kind} by that name: `{clip(str(name))}`" + (f"; did you mean {folded[near[0]]}?" if near else "")
    raise error(msg, hint=hint or f"choose from {', '.join(names)}")


def clip(text: str, longest: int = LONGEST) -> str:
    """Return printable text of limited length, for error messages about input from outside.

    >>> clip("a" * 100, 5)
    'aaaa…'
    """
    plain = "".join(c if c.isprintable() else "?" for c in text[: longest + 1])
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"
