"""Format numbers and lists for sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fleetlab.core import Estimate
from fleetlab.core.result import amount_and_interval
from fleetlab.stats import Interval

NOT_MEASURED = "not measured"


def number(x: Interval, unit: str = "") -> str:
    """A value with its interval, rounded by its width.

    >>> number(Interval(0.9213, 0.9102, 0.9327))
    '0.921 (0.910 to 0.933)'
    """
    value, interval = amount_and_interval(Estimate("", *x, unit))
    return f"{value} ({interval})" if interval else value


def percent(x: Interval) -> str:
    """A fraction in percent.

    >>> percent(Interval(0.0931, 0.08, 0.1061))
    '9.3 % (8.0 to 10.6 %)'
    """
    value, low, high = (100 * v for v in x)
    if not math.isfinite(high - low):
        return f"{value:.3g} %"
    digits = 0 if high - low > 10 else 1
    return f"{value:.{digits}f} % ({low:.{digits}f} to {high:.{digits}f} %)"


def more(c: Interval) -> str:
    """A ratio as percentage more or less.

    >>> more(Interval(1.25, 1.15, 1.35)), more(Interval(0.8, 0.7, 0.9))
    ('25 % (15 to 35 %) more', '20 % (10 to 30 %) less')
    """
    if c.value >= 1:
        return percent(Interval(c.value - 1, c.low - 1, c.high - 1)) + " more"
    return percent(Interval(1 - c.value, 1 - c.high, 1 - c.low)) + " less"


def lost_or_gained(lost: Interval) -> str:
    """A loss in words; a negative one is a gain.

    >>> lost_or_gained(Interval(0.1, 0.08, 0.12)), lost_or_gained(Interval(-0.2, -0.3, -0.1))
    ('lose 10.0 % (8.0 to 12.0 %)', 'gain 20 % (10 to 30 %)')
    >>> lost_or_gained(Interval(-0.01, -0.37, 0.25))
    'gain 1 % (-25 to 37 %; below 0 is a loss)'
    """
    gain = lost.value < 0
    shown = percent(Interval(-lost.value, -lost.high, -lost.low) if gain else lost)
    if lost.low < 0 < lost.high:
        shown = f"{shown.removesuffix(')')}; below 0 is a {'loss' if gain else 'gain'})"
    return f"{'gain' if gain else 'lose'} {shown}"


def join_words(words: Sequence[str]) -> str:
    """Join words: `a, b and c`.

    >>> join_words(["a"]), join_words(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "nothing"


def capital(sentence: str) -> str:
    """Capitalize a sentence."""
    return sentence[:1].upper() + sentence[1:]


def count_noun(n: int, thing: str) -> str:
    """A count with a noun: `1 pair`, `3 pairs`."""
    return f"{n:,} {thing}" + ("" if n == 1 else "es" if thing.endswith("x") else "s")
