"""Words of an analysis: names and order of sharing modes, numbers and lists for sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from fleetlab.core import Estimate
from fleetlab.core.result import amount_and_interval
from fleetlab.gpu.sharing.modes import MIG
from fleetlab.stats import Interval

SHARE = r"(.*?)((?:[@~!#](?:\d+(?:sms)?|high|low))*)"  # of a seat or a mode: its name, and its limits


def mode_name(mode: str) -> str:
    """Readable name of a mode: `mps@50` is `MPS at 50 %`."""
    name, share = re.fullmatch(SHARE, mode, re.DOTALL).groups()  # type: ignore[union-attr]
    names = {"time-slicing": "time slicing", "mps": "MPS", "mig": "MIG", "one-process": "one process"}
    label = f"MIG {name.removeprefix(MIG)}" if name.startswith(MIG) else names.get(name, name)
    percents, memory = re.findall(r"@(\d+)(?![\ds])", share), re.findall(r"~(\d+)", share)
    if sms := re.findall(r"@(\d+)sms", share):
        label += f" with {' and '.join(sms)} SMs each"
    if percents:
        label += f" at {' and '.join(percents)} %"
    if memory:
        label += f" with {' and '.join(f'{int(mib):,}' for mib in memory)} MiB each"
    return label + (f" with {'client' if name == 'mps' else 'stream'} priority" if "!" in share else "")


MARKS = {
    r"@\d+(?!\d|sms)": "`@50`: each tenant has at most 50 % of the SMs (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE)",
    r"~\d+": "`~16384`: each tenant has at most 16,384 MiB of memory (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT)",
    r"^mps.*!\d": "`!1`: the training is an MPS client below normal priority (CUDA_MPS_CLIENT_PRIORITY=1)",
}


def mode_notes(modes: Iterable[str]) -> list[str]:
    """What the marks in the names of these modes mean, each once."""
    some = list(modes)
    return [f"modes, {words}" for mark, words in MARKS.items() if any(re.search(mark, mode) for mode in some)]


def mode_kind(mode: str) -> str:
    """A mode without its numbers: MPS with any limit of SMs is one kind, any MIG layout another.

    >>> mode_kind("mps@50"), mode_kind("mps"), mode_kind("mig:2x3g.71gb")
    ('mps@', 'mps', 'mig')
    """
    return "mig" if mode.startswith("mig") else re.sub(r"(?<=[@~!])[^@~!]+", "", mode)


def mode_order(mode: str) -> tuple[int, str]:
    """Sort key of modes: time slicing, MPS, then the rest."""
    order = ("time-slicing", "mps", "mig", "one-process")
    return next((k for k, word in enumerate(order) if mode.startswith(word)), len(order)), mode


# --- format numbers and lists for sentences --------------------------------------------------------------------------


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
