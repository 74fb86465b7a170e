"""Goodput of language-model servers by mode: requests per second within the goals of TTFT and time per token.

Windows in which few requests ended do not count: a server that does not keep up meets its goals at first. Where it
keeps up in no mode, none is a choice.

A request that the end of the window cut off while it met the goals is undecided, and left out of the share. Two modes
are compared by the log of the ratio of their shares (Katz et al., Biometrics 34, 1978), with half a hit added, as a
share may be 0. Requests of one queue wait alike, so counts are those of the effective sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fleetlab.bench.analysis.findings import Findings
from fleetlab.bench.analysis.modes import mode_name
from fleetlab.bench.analysis.suite_data import CellResult
from fleetlab.bench.analysis.values import IN_ONE_PLAN, LATE, NORMAL, GoalValues, is_apart
from fleetlab.bench.analysis.wording import capital, join_words
from fleetlab.bench.results.cells import Cell
from fleetlab.bench.results.latency import (
    falls_behind,
    long_windows,
    request_rates,
    shortfall,
    too_short,
    unfinished,
)
from fleetlab.bench.results.llm import ServedWindows, served_windows
from fleetlab.stats import Difference, Interval, log_share


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
        said = [f"Share of requests with {within}: {join_words(shares)}."]
        if behind := [f"{mode_name(mode)} {why}" for mode, why in self._behind().items()]:
            said.append(f"{capital('; '.join(behind))}: its goodput falls as long as one measures.")
        if changed := self._other_order(best):
            said.append(changed)
        return said

    def _other_order(self, best: str) -> str:
        """Whether another mode would be best if requests that the window cut off had all missed, or met, the goals."""
        for count, words in (("least", "missed"), ("most", "met")):
            by = {mode: self.by[mode].per_second(getattr(self.by[mode].windows, count)) for mode in self.modes}
            if by and (first := max(by, key=lambda mode: by[mode])) != best and by[first] > by[best]:
                why = f"If all requests that the end of the window cut off had {words} the goals"
                return f"{why}, {mode_name(first)} would be ahead: {by[first]:.1f} against {by[best]:.1f} per second."
        return ""


def _share(windows: ServedWindows) -> str:
    value, low, high = windows.share
    cut = f"; {windows.least:.2f} to {windows.most:.2f} with those cut off" if windows.most > windows.least else ""
    return f"{value:.2f} ({low:.2f} to {high:.2f}{cut})"


def goodput_values(f: Findings, mix: str, goals: dict[str, float] | None) -> GoodputValues:
    """Those of a measured mix; no modes if it has no server of a language model."""
    by: dict[str, list[CellResult]] = {}
    for m in f.gathered.meetings:
        if m.mix == mix and _servers([m]):
            by.setdefault(m.mode, []).append(m)
    long = {mode: long_windows(some, lambda m: _servers([m])) for mode, some in by.items()}
    windows = {mode: served_windows(_servers(some), goals) for mode, some in long.items()}
    return GoodputValues({mode: ModeGoodput(some, windows[mode]) for mode, some in long.items()})


def _servers(cells: list[CellResult]) -> list[Cell]:
    return [t.about for m in cells for t in m.tenants if "llm" in t.about]
