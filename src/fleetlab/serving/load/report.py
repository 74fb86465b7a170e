"""What a load says of a server: rates, latencies, refusals and failures, and whether to believe it."""

from __future__ import annotations

import math
import platform
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

import numpy as np

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.statistics import percentile
from fleetlab.devices.errors import BenchError
from fleetlab.serving.load import intervals as limits
from fleetlab.serving.load.generator import Driven
from fleetlab.serving.load.requests import ANSWERED, FAILED, OUTCOMES, REFUSED, STOPPED, TIMEOUT, Rows
from fleetlab.serving.load.settings import Asked
from fleetlab.stats import Interval

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
BEHIND = "invalid: the generator fell behind"
CLOSED = "closed loop: clients wait for their answers, so these latencies hide stalls; do not hold them against an SLO"


@dataclass(frozen=True, slots=True)
class Load:
    """Of the requests that were due in the window, whatever came of them and whenever it came.

    `answers` has those that were answered and those that timed out, each of these at the timeout: a server does not
    look better for not answering. Refusals and other failures are apart, because a quick refusal is no quick answer.
    """

    asked: Asked
    url: str
    rows: Rows  # all that were sent, the warm-up's too
    due: Rows  # those that count
    opens: float
    closes: float
    answered: Interval  # a second, inside the window
    goodput: Interval | None  # a second, answered within the SLO
    steady: bool | None
    stopped: bool
    notes: tuple[str, ...]

    @property
    def lag(self) -> dict[str, float]:
        """How late the generator was: counted, not estimated, because every request is in."""
        lag = np.sort(self.due.lag)
        at = {name: lag[min(len(lag) - 1, math.floor(p * len(lag)))] for name, p in (("p50", 0.5), ("p99", 0.99))}
        return {**{name: float(value) for name, value in at.items()}, "max": float(lag[-1])}

    @property
    def valid(self) -> bool:
        """Was the load sent as it was meant?"""
        return not self.asked.is_open or self.lag["p99"] <= self.asked.lag

    def of(self, *outcomes: int) -> Rows:
        """Those that ended so."""
        return self.due.where(np.isin(self.due.outcome, outcomes))

    @property
    def kinds(self) -> dict[str, Rows]:
        """Three sorts of ends, whose latencies must not be mixed."""
        return {
            "answers": self.of(ANSWERED, TIMEOUT, STOPPED),
            "refusals": self.of(REFUSED),
            "failures": self.of(*(kind for kind in FAILED if kind != TIMEOUT)),
        }

    def share(self, *outcomes: int) -> Interval:
        """How many of those due ended so."""
        return limits.share(np.isin(self.due.outcome, outcomes))

    def timeline(self) -> list[dict[str, Any]]:
        """Second by second: what was due, what was answered, and how long what was due took."""
        answers, edges = self.kinds["answers"], np.append(np.arange(self.opens, self.closes), self.closes)
        done = self.rows.done[self.rows.outcome == ANSWERED]
        offered, answered = (np.histogram(at, edges)[0].tolist() for at in (self.due.due, done))
        parts = np.split(answers.latency, np.searchsorted(answers.due, edges[1:-1]))
        times = [Histogram.of(part) for part in parts]
        return [
            {"second": k, "offered": offered[k], "answered": answered[k]}
            | {name: _or_none(times[k], PERCENTILES[name]) for name in ("p50", "p99")}
            for k in range(len(times))
        ]

    def to_json(self) -> dict[str, Any]:
        """All but the single requests."""
        counts = np.bincount(self.due.outcome, minlength=len(OUTCOMES)).tolist()
        span = self.closes - self.opens
        return {
            "kind": "load",
            "loop": "open" if self.asked.is_open else "closed",
            "manifest": manifest(self.asked, self.url),
            "window": span,
            "offered": len(self.due.due),
            "sent": int(np.isfinite(self.due.sent).sum()),
            "answered": counts[ANSWERED],
            "refused": counts[REFUSED],
            "failed": sum(counts[kind] for kind in FAILED),
            "outcomes": {name: n for name, n in zip(OUTCOMES, counts, strict=True) if n},
            "rates": {"offered": len(self.due.due) / span, "answered": self.answered, "goodput": self.goodput},
            "shares": {"refused": self.share(REFUSED), "failed": self.share(*FAILED)},
            "percentiles": {
                kind: {name: limits.said(rows.latency, p) for name, p in PERCENTILES.items()}
                for kind, rows in self.kinds.items()
                if kind == "answers" or len(rows.due)
            },
            "histograms": {kind: Histogram.of(rows.latency).to_json() for kind, rows in self.kinds.items()},
            "lag": self.lag | {"limit": self.asked.lag},
            "valid": self.valid,
            "steady": self.steady,
            "stopped": self.stopped,
            "queued": int(self.due.queued.sum()),
            "timeline": self.timeline(),
            "notes": list(self.notes),
        }


def report(asked: Asked, url: str, driven: Driven) -> Load:
    """Sum up what was driven."""
    rows, opens, closes = driven.rows, driven.opens, driven.closes
    due = rows.where((rows.due >= opens) & (rows.due < closes))
    if not len(due.due):
        if driven.stopped:
            raise KeyboardInterrupt
        msg = "no request fell into the window"
        raise BenchError(msg, hint="more --seconds, or a shorter --warmup")
    done, answers = rows.done[rows.outcome == ANSWERED], due.where(due.outcome == ANSWERED)
    timed = np.where(due.outcome == ANSWERED, due.latency, math.nan)
    kept = None if asked.slo is None else answers.due[answers.latency <= asked.slo]
    load = Load(
        asked=asked,
        url=url,
        rows=rows,
        due=due,
        opens=opens,
        closes=closes,
        answered=limits.rate(done, opens, closes),
        goodput=None if kept is None else limits.rate(kept, opens, closes),
        steady=limits.steady(due.due, done, timed, opens, closes, by_timetable=asked.is_open),
        stopped=driven.stopped,
        notes=(),
    )
    return replace(load, notes=(*_doubts(load), *driven.notes))


def _doubts(load: Load) -> list[str]:
    """What to know before one believes it."""
    found, lag = [], load.lag
    if not load.valid:
        found.append(
            f"{BEHIND}: P99 of its lag is {1000 * lag['p99']:.3g} ms (at most {1000 * load.asked.lag:g} ms); "
            "a lower rate, fewer other processes on this machine, or --lag-ms if the goal allows it"
        )
    if not load.asked.is_open:
        found.append(CLOSED)
    if load.stopped:
        late = int((load.due.outcome == STOPPED).sum())
        found.append(f"stopped after {load.closes:.1f} s; {late:,} requests under way count with the time they had")
    if queued := int(load.due.queued.sum()):
        found.append(f"{queued:,} requests found all {load.asked.connections:,} connections taken and waited for one")
    answers = load.kinds["answers"].latency
    if unsure := [name.upper() for name, p in PERCENTILES.items() if limits.unsure(answers, p)]:
        found.append(f"requests wait alike: limits of {', '.join(unsure)} are less sure than 95 %; more --seconds help")
    if load.steady is False:
        found.append("not steady: rate or median latency changed by more than a tenth over the last three fifths")
    return found


def manifest(asked: Asked, url: str) -> dict[str, Any]:
    """Enough to do it again."""
    return {
        "url": url,
        **{name: value for name, value in asked.settings().items() if name != "url"},
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.platform(),
        **{package: _version(package) for package in ("fleetlab", "aiohttp", "numpy")},
    }


def _or_none(times: Histogram, p: float) -> float | None:
    try:
        return percentile(times, p).value
    except BenchError:
        return None


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
