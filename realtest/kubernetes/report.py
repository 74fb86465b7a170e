"""Write the tables of the recorded runs into their page: `python -m realtest.kubernetes.report`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from realtest.archives import recorded_runs
from realtest.kubernetes.replay import Run, replay
from realtest.kubernetes.starts import Starts, starts
from realtest.kubernetes.turns import Turns, turns
from realtest.report import with_tables

PAGE = Path("docs/measurements/kubernetes/README.md")
MARKS = ("<!-- tables: python -m realtest.kubernetes.report -->", "<!-- end of tables -->")
DRAWS = 1
HEADS = (
    ("run", "pods", "scored", "exact", "late", "wrong", "other", "nothing fits", "exact", "late", "wrong"),
    ("run", "preemptions", "victims", "exact", "wrong", "none possible", "exact", "wrong", "decided by a budget"),
    ("run", "attempts", "in turn", "late", "wrong", "came", "a pod left", "own status", "backed off", "P50, ms",
     "P99, ms", "within 1.2 s of the backoff"),
    ("run", "mean wait, s", "ours", "P90", "ours", "over 1 s", "ours", "preempted", "ours"),
)  # fmt: skip


def tables(folder: Path) -> str:
    """How decisions, victims and waits compare, by run."""
    runs = {path.parent.name: Run.load(path.parent) for path in sorted(folder.glob("*/record.csv.gz"))}
    counts = {name: replay(run).counts for name, run in runs.items()}
    timed = [name for name, run in runs.items() if run.record["took"].null_count() == 0]
    ranked = [name for name, of in counts.items() if any(what.startswith("preempts") for what in of)]
    rows = (
        [_decisions(name, run, counts[name]) for name, run in runs.items()],
        [_preemptions(name, runs[name], counts[name]) for name in ranked],
        [_turns(name, turns(runs[name])) for name in timed],
        [_waits(name, [starts(run, seed) for seed in range(1, DRAWS + 1)]) for name, run in runs.items()],
    )
    first, *others = (_table(head, body) for head, body in zip(HEADS, rows, strict=True))
    return "\n\n".join([first, _largest(counts), *others])


def _table(head: tuple[str, ...], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|---" + "|--:" * (len(head) - 1) + "|", *lines[1:]])


def _decisions(name: str, run: Run, of: dict[str, int]) -> list[str]:
    scored = run.record.filter(run.record["found"] > 1).height
    placed, unfit = (
        [of.get(f"{what} {kind}", 0) for kind in ("exact", "late", "wrong")] for what in ("placed", "unfit")
    )
    other = of.get("placed among best", 0)
    return [name, *map(str, [len(run.pods), scored, *placed, other, sum(unfit), *unfit])]


def _largest(counts: Mapping[str, Mapping[str, int]]) -> str:
    """The placements of all runs of 5,000 together."""
    runs = [of for name, of in counts.items() if name.endswith("-5000")]
    exact, late, other = (sum(of.get(f"placed {kind}", 0) for of in runs) for kind in ("exact", "late", "among best"))
    return f"The {len(runs)} runs of 5,000: {exact:,} exact, {late:,} late, {other:,} other."


def _preemptions(name: str, run: Run, of: dict[str, int]) -> list[str]:
    taken, none = ([of.get(f"preempts {what}{kind}", 0) for kind in ("exact", "wrong")] for what in ("", "none, "))
    victims = sum(len(text.split()) for text in run.record["preempts"].drop_nulls())
    without = replay(replace(run, budgets=[])).counts["preempts wrong"]
    return [name, *map(str, [sum(taken), victims, *taken, sum(none), *none, without])]


def _turns(name: str, found: Turns) -> list[str]:
    at_once = [d for why in ("came", "a pod left", "own status") for d in found.delays.get(why, [])]
    backed = np.array(found.delays.get("backed off", [0.0]))
    of = found.counts
    attempts = of["in turn"] + of["late"] + of["out of turn"]
    whys = [of[why] for why in ("came", "a pod left", "own status", "backed off")]
    numbers = [attempts, of["in turn"], of["late"], len(found.wrong), *whys]
    quick = [f"{1000 * q:.1f}" for q in np.quantile(at_once, (0.5, 0.99))]
    return [name, *map(str, numbers), *quick, f"{int((backed <= 1.2).sum())} of {len(backed)}"]


def _waits(name: str, found: list[Starts]) -> list[str]:
    ours = np.median([_figures(one.ours) for one in found], axis=0)
    cells = []
    for real, own, form in zip(_figures(found[0].real), ours, (".2f", ".2f", ".0f"), strict=True):
        cells += [format(real, form), format(own, form)]
    preempted = np.median([one.preempted[1] for one in found])
    return [name, *cells, str(found[0].preempted[0]), f"{preempted:.0f}"]


def _figures(waits: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    return float(waits.mean()), float(np.quantile(waits, 0.9)), float((waits > 1).sum())


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8"), tables(recorded_runs("kubernetes")), MARKS), "utf-8")
