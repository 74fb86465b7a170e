"""Time to answer a cell of a notebook, by mode, relative to one user alone on the GPU.

Kinds of cells differ by a factor of ten, so that each counts alike: the value is the geometric mean over kinds. Users
of one seat run the same cells in every mode, so modes are compared user by user. Cells of one user are not independent:
the user is the unit, and one user says nothing of the noise. Users who were drawn alike, in two blocks of an older
suite or in two suites, are one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fleetlab.bench.analysis.findings import Findings
from fleetlab.bench.analysis.folders import BASELINE
from fleetlab.bench.analysis.modes import mode_name
from fleetlab.bench.analysis.suite_data import CellResult
from fleetlab.bench.analysis.users import notebook_table
from fleetlab.bench.analysis.values import IN_ONE_PLAN, GoalValues, is_apart
from fleetlab.bench.analysis.wording import number
from fleetlab.bench.results.notebook import SHOWN, User, drawn_users
from fleetlab.stats import Difference, Interval, mean_of_runs

Logs = dict[str, float]  # kind of cell -> mean log of the seconds, of a training per step
Seat = tuple[Path, int, int]  # suite, block, and copy of the tenant


@dataclass(frozen=True)
class AnswerValues(GoalValues):
    """Times of a mix by mode and user, and those of one user alone."""

    by: dict[str, dict[Seat, Logs]]
    alone: Logs
    users: dict[Seat, User]  # two seats may have users who were drawn alike
    no_noise: str = field(default=f"one user says nothing of how far users differ; {IN_ONE_PLAN}", init=False)
    less: str = field(default="shorter", init=False)

    @property
    def modes(self) -> list[str]:
        """Modes that count."""
        return [mode for mode in self.by if is_apart(mode)]

    def value(self, mode: str) -> Interval:
        """Times that of one user alone; without that, the mean in milliseconds. The interval is that between users."""
        logs = {seat: _mean(logs, self.alone) for seat, logs in self.by[mode].items()}
        mean = mean_of_runs(self._by_user(logs)).interval()
        return Interval(*(math.exp(x) * (1.0 if self.alone else 1000.0) for x in mean))

    def difference(self, one: str, other: str) -> Difference:
        """User by user, over the kinds of cells that both have."""
        same = [seat for seat in self.by[one] if seat in self.by[other]]
        logs = self._by_user({seat: _mean(self.by[other][seat], self.by[one][seat]) for seat in same})
        blocks = round(len(logs) / len({copy for _, _, copy in same})) if same else 1
        value = float(np.mean(logs)) if logs else 0.0
        if len(logs) < 2:
            return Difference(value, (0.0, 0.0), (1, 1), 0.0)
        # A block has a user of each seat.
        variance = float(np.var(logs, ddof=1)) * blocks / len(logs)
        return Difference(value, (variance, 0.0), (blocks, 1), len(logs) - 1)

    def _by_user(self, values: dict[Seat, float]) -> list[float]:
        """One value of each user: the mean of seats whose users were drawn alike."""
        by: dict[User, list[float]] = defaultdict(list)
        for seat, value in values.items():
            by[self.users[seat]].append(value)
        return [float(np.mean(some)) for some in by.values()]

    @property
    def unit(self) -> str:
        """Of the value."""
        return "times one user alone" if self.alone else "ms"


def _mean(logs: Logs, base: Logs) -> float:
    """Mean over kinds of the log of a ratio; of the log itself if there is no base."""
    return float(np.mean([logs[kind] - base.get(kind, 0.0) for kind in logs if kind in base or not base]))


def answer_values(f: Findings, mix: str) -> AnswerValues:
    """Those of a measured mix; no modes if it has no notebook."""
    by: dict[str, dict[Seat, Logs]] = defaultdict(dict)
    alone: dict[str, list[float]] = defaultdict(list)
    users: dict[Seat, User] = {}
    for k, m in enumerate(f.gathered.meetings):
        for seat, logs, user in _users(m, k):
            if m.mix == mix:
                by[m.mode][seat] = logs
                users.setdefault(seat, user)  # as seen in one mode: in another the window may begin later
            if m.mode == BASELINE and len(m.tenants) == 1:
                for kind, log in logs.items():
                    alone[kind].append(log)
    return AnswerValues(dict(by), {kind: float(np.mean(logs)) for kind, logs in alone.items()}, users)


def _users(m: CellResult, cell: int) -> Iterator[tuple[Seat, Logs, User]]:
    here = [t.about for t in m.tenants if "notebook" in t.about]
    for k, (one, user) in enumerate(zip(here, drawn_users(here, cell), strict=True)):
        logs: dict[str, list[float]] = defaultdict(list)
        for kind, size, seconds in one["notebook"]["cells"]:
            logs[kind].append(math.log(max(seconds / size, 1e-9)))
        if logs:
            means = {kind: float(np.mean(some)) for kind, some in logs.items()}
            yield (m.suite, m.block, one.get("copy", k)), means, user


COLUMNS = ("mode", "cell", "n", *SHOWN, "each_ms", "slowdown", "low", "high", "short")


def answer_rows(f: Findings, mix: str) -> list[dict[str, Any]]:
    """P50 and P95 by kind of cell and mode, for a mix; without columns that would be empty."""
    here = [m for m in f.gathered.meetings if m.mix == mix]
    if not here:
        return []
    users = sum("notebook" in t.about for t in here[0].tenants)
    modes = {m.mode for m in here}
    rows = notebook_table(f.gathered, mix).iter_rows(named=True)
    found = [row for row in rows if row["mode"] in modes and row["users"] == users and is_apart(row["mode"])]
    known = [column for column in COLUMNS if any(row[column] is not None for row in found)]
    return [{column: row[column] for column in known} for row in found]


def answer_sentences(rows: list[dict[str, Any]]) -> list[str]:
    """The median of each kind of cell, by mode, with its interval or why it has none."""
    kinds = list(dict.fromkeys(str(row["cell"]) for row in rows))
    modes = list(dict.fromkeys(str(row["mode"]) for row in rows))
    parts = []
    for mode in modes:
        by = {row["cell"]: _median(row) for row in rows if row["mode"] == mode and row.get("p50_ms") is not None}
        if known := [f"{kind} {by[kind]}" for kind in kinds if kind in by]:
            parts.append(f"{mode_name(mode)}: {', '.join(known)}")
    if not parts:
        return []
    said = [f"Median ms to answer (95 % CI), by kind of cell, {'; '.join(parts)}."]
    if any(NO_LIMITS in part for part in parts):
        why = "cells of one user are alike, so that these few are worth too few independent ones"
        said.append(f"`{NO_LIMITS}`: {why}.")
    return said


NO_LIMITS = "no CI"


def _median(row: dict[str, Any]) -> str:
    """A median with its interval, which takes cells of one user for alike."""
    value, low, high = (row.get(f"p50_{end}") for end in ("ms", "low", "high"))
    if low is None or high is None:
        return f"{value:,.3g} ({NO_LIMITS})"
    return number(Interval(float(value or 0.0), low, high))
