"""Sharing modes: their names in words, their kind and order, and what the marks in a name mean."""

from __future__ import annotations

import re

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
        label += f" with {' and '.join(memory)} MiB each"
    return label + (" with priority" if "!" in share else "")


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
