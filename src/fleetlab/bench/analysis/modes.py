"""Sharing modes: their names in words, their kind and order, and what the marks in a name mean."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fleetlab.sharing.modes import MIG

SHARE = r"(.*?)((?:[@~!#](?:\d+(?:sms)?|high|low))*)"  # of a seat or a mode: its name, and its limits


def mode_name(mode: str) -> str:
    """Readable name of a mode: `mps@50` is `MPS at 50 %`."""
    name, share = re.fullmatch(SHARE, mode, re.DOTALL).groups()  # type: ignore[union-attr]
    known = {"time-slicing": "time slicing", "mps": "MPS", "mig": "MIG", "one-process": "one process"}
    label = f"MIG {name.removeprefix(MIG)}" if name.startswith(MIG) else known.get(name, name)
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
    known = ("time-slicing", "mps", "mig", "one-process")
    return next((k for k, word in enumerate(known) if mode.startswith(word)), len(known)), mode
