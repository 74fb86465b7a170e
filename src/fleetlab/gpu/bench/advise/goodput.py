"""What users get by mode: goodput of language-model servers, and time to answer of notebooks.

Goodput is requests per second within the goals of TTFT and time per token. Windows in which few requests ended do not
count: a server that does not keep up meets its goals at first. Where it keeps up in no mode, none is a choice.

A request that the end of the window cut off while it met the goals is undecided, and left out of the share. Two modes
are compared by the log of the ratio of their shares (Katz et al., Biometrics 34, 1978), with half a hit added, as a
share may be 0. Requests of one queue wait alike, so counts are those of the effective sample.

Time to answer is relative to one user alone on the GPU. Kinds of cells differ by a factor of ten, so that each counts
alike: the value is the geometric mean over kinds. Users of one seat run the same cells in every mode, so modes are
compared user by user. Cells of one user are not independent: the user is the unit, and one user says nothing of the
noise. Users who were drawn alike, in two blocks of an older suite or in two suites, are one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fleetlab.gpu.bench.analysis.findings import Findings
from fleetlab.gpu.bench.analysis.serving import notebook_table
from fleetlab.gpu.bench.analysis.values import IN_ONE_PLAN, LATE, NORMAL, GoalValues, is_apart
from fleetlab.gpu.bench.analysis.wording import capital, join_words, mode_name, number
from fleetlab.gpu.bench.results.cells import BASELINE, CellResult, Record, grouped
from fleetlab.gpu.bench.results.latency import (
    SHOWN,
    ServedWindows,
    User,
    drawn_users,
    falls_behind,
    long_windows,
    request_rates,
    served_windows,
    shortfall,
    too_short,
    unfinished,
)
from fleetlab.stats import Difference, Interval, log_share, mean_of_runs


@dataclass(frozen=True, slots=True)
class ModeGoodput:
    """The servers of a mix in one mode, over all blocks."""

    cells: list[CellResult]
    windows: ServedWindows

    @property
    def offered(self) -> float:
        """Requests per second of all servers together."""
        each = [one["llm"] for one in _servers(self.cells)]
        return float(sum(len(llm["requests"]) / llm["seconds"] for llm in each)) / len(self.cells)

    @property
    def left_out(self) -> str:
        """Why it is not compared; empty if it is."""
        if not self.windows.on_time:
            return self.shortfall or LATE  # the generator of a server that falls behind is late as well
        servers = _servers(self.cells)
        if not too_short(servers):
            return ""
        windows = max(one["llm"]["seconds"] for one in servers)
        if not self.windows.requests:
            return f"no request fell due in a window of {windows:g} s"
        ended = 100 * (1 - sum(map(unfinished, servers)) / self.windows.requests)
        return f"{ended:.0f} % of requests ended in a window of {windows:g} s: too short to tell whether it keeps up"

    @property
    def shortfall(self) -> str:
        """How far a server falls behind: answered and offered requests per second; empty if all keep up."""
        servers = _servers(self.cells)
        if not any(falls_behind(one, 0.0) for one in servers):
            return ""
        answered = sum(request_rates(one, 0.0)[1] for one in servers) / len(self.cells)
        return shortfall(answered, self.offered)

    def per_second(self, share: float) -> float:
        """Requests per second that are such a share."""
        return share * self.offered


@dataclass(frozen=True)
class GoodputValues(GoalValues):
    """Goodput of a mix by mode; only of modes whose generator was on time and whose windows are long enough."""

    by: dict[str, ModeGoodput]
    no_noise: str = field(default=f"too few requests were measured; {IN_ONE_PLAN}", init=False)

    @property
    def modes(self) -> list[str]:
        """Modes that count."""
        return [mode for mode in self._comparable if mode not in self.falls_behind]

    @property
    def _comparable(self) -> list[str]:
        """Modes of processes whose generator was on time and whose windows are long enough."""
        return [mode for mode in self.by if is_apart(mode) and mode not in self.not_compared]

    @property
    def falls_behind(self) -> dict[str, str]:
        """All modes, if servers keep up in none of them: goodput only falls, and the best of these is no choice."""
        behind = self._behind()
        return behind if len(behind) == len(self._comparable) else {}

    def _behind(self) -> dict[str, str]:
        return {mode: why for mode in self._comparable if (why := self.by[mode].shortfall)}

    @property
    def not_compared(self) -> dict[str, str]:
        """Those with a late generator, and those with short windows only."""
        each = {mode: one.left_out for mode, one in self.by.items() if is_apart(mode)}
        return {mode: why for mode, why in each.items() if why}

    def value(self, mode: str) -> Interval:
        """Requests per second within the goals."""
        one = self.by[mode]
        return Interval(*(one.per_second(share) for share in one.windows.share))

    def difference(self, one: str, other: str) -> Difference:
        """Of the logs of both shares."""
        logs = [log_share(*self.by[mode].windows.effective) for mode in (one, other)]
        blocks = (len(self.by[one].cells), len(self.by[other].cells))
        offered = math.log(self.by[one].offered / self.by[other].offered)
        value = logs[0].value - logs[1].value + offered
        variances = (logs[0].variance * blocks[0], logs[1].variance * blocks[1])
        return Difference(value, variances, blocks, NORMAL)

    def sentences(self, best: str) -> list[str]:
        """Goals and shares, and what cut-off requests may change."""
        shares = [f"{mode_name(mode)} {_share(self.by[mode].windows)}" for mode in self.modes]
        goals = self.by[best].windows.goals
        within = f"a first token within {1000 * goals['ttft']:g} ms and {1000 * goals['tpot']:g} ms per token"
        lines = [f"Share of requests with {within}: {join_words(shares)}."]
        if behind := [f"{mode_name(mode)} {why}" for mode, why in self._behind().items()]:
            lines.append(f"{capital('; '.join(behind))}: its goodput falls as long as one measures.")
        if changed := self._other_order(best):
            lines.append(changed)
        return lines

    def _other_order(self, best: str) -> str:
        """Whether another mode would be best if requests that the window cut off had all missed, or met, the goals."""
        for count, verb in (("least", "missed"), ("most", "met")):
            by = {mode: self.by[mode].per_second(getattr(self.by[mode].windows, count)) for mode in self.modes}
            if by and (first := max(by, key=lambda mode: by[mode])) != best and by[first] > by[best]:
                why = f"If all requests that the end of the window cut off had {verb} the goals"
                return f"{why}, {mode_name(first)} would be ahead: {by[first]:.1f} against {by[best]:.1f} per second."
        return ""


def _share(windows: ServedWindows) -> str:
    value, low, high = windows.share
    cut = f"; {windows.least:.2f} to {windows.most:.2f} with those cut off" if windows.most > windows.least else ""
    return f"{value:.2f} ({low:.2f} to {high:.2f}{cut})"


def goodput_values(f: Findings, mix: str, goals: dict[str, float] | None) -> GoodputValues:
    """Those of a measured mix; no modes if it has no server of a language model."""
    by: dict[str, list[CellResult]] = {}
    for m in f.gathered.cells:
        if m.mix == mix and _servers([m]):
            by.setdefault(m.mode, []).append(m)
    long = {mode: long_windows(some, lambda m: _servers([m])) for mode, some in by.items()}
    windows = {mode: served_windows(_servers(some), goals) for mode, some in long.items()}
    return GoodputValues({mode: ModeGoodput(some, windows[mode]) for mode, some in long.items()})


def _servers(cells: list[CellResult]) -> list[Record]:
    return [t.about for m in cells for t in m.tenants if "llm" in t.about]


# --- time to answer a cell of a notebook, by mode, relative to one user alone on the GPU -----------------------------


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
        by = grouped((self.users[seat], value) for seat, value in values.items())
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
    for k, m in enumerate(f.gathered.cells):
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
        cells = one["notebook"]["cells"]
        if logs := grouped((str(kind), math.log(max(seconds / size, 1e-9))) for kind, size, seconds in cells):
            means = {kind: float(np.mean(some)) for kind, some in logs.items()}
            yield (m.suite, m.block, one.get("copy", k)), means, user


COLUMNS = ("mode", "cell", "n", *SHOWN, "each_ms", "slowdown", "low", "high", "short")


def answer_rows(f: Findings, mix: str) -> list[dict[str, Any]]:
    """P50 and P95 by kind of cell and mode, for a mix; without columns that would be empty."""
    here = [m for m in f.gathered.cells if m.mix == mix]
    if not here:
        return []
    users = sum("notebook" in t.about for t in here[0].tenants)
    modes = {m.mode for m in here}
    rows = notebook_table(f.gathered, mix).iter_rows(named=True)
    of_mix = [row for row in rows if row["mode"] in modes and row["users"] == users and is_apart(row["mode"])]
    columns = [column for column in COLUMNS if any(row[column] is not None for row in of_mix)]
    return [{column: row[column] for column in columns} for row in of_mix]


def answer_sentences(rows: list[dict[str, Any]]) -> list[str]:
    """The median of each kind of cell, by mode, with its interval or why it has none."""
    kinds = list(dict.fromkeys(str(row["cell"]) for row in rows))
    modes = list(dict.fromkeys(str(row["mode"]) for row in rows))
    parts = []
    for mode in modes:
        by = {row["cell"]: _median(row) for row in rows if row["mode"] == mode and row.get("p50_ms") is not None}
        if medians := [f"{kind} {by[kind]}" for kind in kinds if kind in by]:
            parts.append(f"{mode_name(mode)}: {', '.join(medians)}")
    if not parts:
        return []
    sentences = [f"Median ms to answer (95 % CI), by kind of cell, {'; '.join(parts)}."]
    if any(NO_LIMITS in part for part in parts):
        why = "cells of one user are alike, so that these few are worth too few independent ones"
        sentences.append(f"`{NO_LIMITS}`: {why}.")
    return sentences


NO_LIMITS = "no CI"


def _median(row: dict[str, Any]) -> str:
    """A median with its interval, which takes cells of one user for alike."""
    value, low, high = (row.get(f"p50_{end}") for end in ("ms", "low", "high"))
    if low is None or high is None:
        return f"{value:,.3g} ({NO_LIMITS})"
    return number(Interval(float(value or 0.0), low, high))
