"""What `sdiag` says of the two loops: how long a cycle took, and how deep it looked."""

from __future__ import annotations

import re

MAIN, BACKFILL = "Main schedule statistics", "Backfilling stats"
MS = 1e-3  # of a microsecond, in which sdiag counts


def cycles_note(text: str) -> str:
    r"""Return how long cycles took, beside the simulated ones; empty where the text does not tell.

    >>> cycles_note("Backfilling stats\n\tMax cycle: 9000\n\tMean cycle: 2000\n\tDepth Mean: 40")
    'by sdiag a cycle of the backfill loop took 2 ms (longest 9 ms, 40 jobs deep); simulated: 2 ms and 0.8 ms a job'
    """
    found = [said for name, block in _blocks(text).items() if (said := _cycle(name, block))]
    return f"by sdiag a cycle of {' and of '.join(found)}; simulated: 2 ms and 0.8 ms a job" if found else ""


def _blocks(text: str) -> dict[str, str]:
    """Return the lines below each of the two headings."""
    blocks = {}
    for name, heading in (("the main loop", MAIN), ("the backfill loop", BACKFILL)):
        match = re.search(rf"^{heading}[^\n]*\n((?:[ \t]+[^\n]*(?:\n|$))+)", text, re.MULTILINE)
        if match:
            blocks[name] = match[1]
    return blocks


def _cycle(name: str, block: str) -> str:
    mean, longest = (_number(block, label) for label in ("Mean cycle", "Max cycle"))
    if mean is None or longest is None:
        return ""
    depth = _number(block, "Mean depth cycle") or _number(block, "Depth Mean")
    deep = f", {depth:,} jobs deep" if depth else ""
    return f"{name} took {mean * MS:,.3g} ms (longest {longest * MS:,.3g} ms{deep})"


def _number(block: str, label: str) -> int | None:
    match = re.search(rf"^\s*{label}:\s*(\d+)", block, re.MULTILINE)
    return int(match[1]) if match else None
