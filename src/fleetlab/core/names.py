"""Look a name up in a list of known names; an unknown one is refused with the closest match."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from fleetlab.core.errors import FleetlabError, PolicyError

LONGEST = 60  # characters of an unknown name that an error repeats


def lookup(
    kind: str,
    name: str,
    choices: Iterable[str],
    *,
    error: type[FleetlabError] = PolicyError,
    hint: str | None = None,
    models: bool = False,
) -> str:
    """Return `name` if it is one of `choices`; otherwise raise `error` with the closest match and a list of all.

    Names of `models` of GPUs differ by a letter or a digit and mean another card: only another way to write the same
    name, or its beginning, is a match.

    >>> lookup("order", "sjf", ["fifo", "sjf"])
    'sjf'
    >>> lookup("order", "sfj", ["fifo", "sjf"])
    Traceback (most recent call last):
    fleetlab.core.errors.PolicyError: no order by that name: `sfj`; did you mean sjf?
    hint: choose from fifo, sjf
    """
    names = list(choices)
    if name in names:
        return name
    near = _spellings(str(name), names) if models else _close(str(name)[:LONGEST], names)
    msg = f"no {kind} by that name: `{clip(str(name))}`" + (f"; did you mean {near[0]}?" if near else "")
    raise error(msg, hint=hint or f"choose from {', '.join(names)}")


def _close(name: str, names: Iterable[str]) -> list[str]:
    folded = {choice.casefold(): choice for choice in names}
    return [folded[match] for match in get_close_matches(name.casefold(), folded, 1)]


def _spellings(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that differ in case and punctuation only, or begin so.

    >>> _spellings("v100", ["T4", "V100"]), _spellings("A100", ["T4", "V100"])
    (['V100'], [])
    """
    plain = {choice: "".join(c for c in choice.casefold() if c.isalnum()) for choice in names}
    typed = "".join(c for c in name.casefold() if c.isalnum())
    return [choice for choice, text in plain.items() if typed and text.startswith(typed)]


def clip(text: str, longest: int = LONGEST) -> str:
    """Return printable text of limited length, for error messages about input from outside.

    >>> clip("a" * 100, 5)
    'aaaa…'
    """
    plain = "".join(c if c.isprintable() else "?" for c in text[: longest + 1])
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"
