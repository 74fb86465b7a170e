"""Tables of recorded runs: `python -m realtest.kubernetes.report docs/measurements/kubernetes/*/`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from realtest.kubernetes.replay import Outcome, Run, replay
from realtest.kubernetes.starts import Starts, starts


def decisions(folders: list[Path]) -> str:
    """How many decisions follow from our rules, by run."""
    rows = [
        "| profile | pods | placed | scored | exact | late | unfit | exact | late | wrong |",
        "|---" + "|--:" * 9 + "|",
    ]
    for folder in folders:
        run = Run.load(folder)
        rows.append(_decisions(folder.name, run, replay(run)))
    return "\n".join(rows)


def _decisions(name: str, run: Run, found: Outcome) -> str:
    of = found.counts
    scored = run.record.filter(run.record["found"] > 1).height
    placed, unfit = ([of[f"{what} {kind}"] for kind in ("exact", "late", "wrong")] for what in ("placed", "unfit"))
    cells = [len(run.pods), sum(placed), scored, *placed[:2], sum(unfit), *unfit[:2], placed[2] + unfit[2]]
    return f"| {name} | " + " | ".join(f"{n:,}" for n in cells) + " |"


def preemptions(folder: Path) -> dict[str, int]:
    """How preemption compares in one run."""
    found = replay(Run.load(folder))
    return {what: n for what, n in found.counts.items() if what.startswith("preempts")}


def waits(folders: list[Path]) -> str:
    """Waits in our loop beside the real ones, by run."""
    rows = [
        "| profile | mean wait, s | ours | median | ours | P90 | ours | preempted | ours |",
        "|---" + "|--:" * 8 + "|",
    ]
    rows += [_waits(folder.name, starts(Run.load(folder))) for folder in folders]
    return "\n".join(rows)


def _waits(name: str, found: Starts) -> str:
    both = [(np.mean(w), np.median(w), np.quantile(w, 0.9)) for w in (found.real, found.ours)]
    cells = [f"{value:.2f}" for pair in zip(*both, strict=True) for value in pair]
    return f"| {name} | " + " | ".join([*cells, *map(str, found.preempted)]) + " |"


if __name__ == "__main__":
    given = [Path(name) for name in sys.argv[1:]]
    print(decisions(given), "", *(f"{f.name}: {preemptions(f)}" for f in given), "", waits(given), sep="\n")
