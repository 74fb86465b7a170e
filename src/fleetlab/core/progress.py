"""How a long computation reports its progress: what is counted, how many are done, and which fraction of all."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, float], None]
shown: list[Progress] = []  # what draws progress now, the innermost last: for what is not handed one
COMPILING = "compiling"  # and counts functions


def silent(what: str, count: int, fraction: float) -> None:
    """Report nothing: the default."""
