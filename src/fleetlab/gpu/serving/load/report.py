"""The result of a load: rates, latencies, refusals and failures, and whether it is valid."""

from __future__ import annotations

import math
import platform
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from fleetlab.gpu.bench.histogram import Histogram, known_percentile
from fleetlab.gpu.bench.llm.requests import parse_goals
from fleetlab.gpu.devices.console import BenchError, package_version
from fleetlab.gpu.serving.load import requests
from fleetlab.gpu.serving.load.generator import LoadRun
from fleetlab.gpu.serving.load.requests import (
    ANSWERED,
    FAILED,
    OUTCOMES,
    REFUSED,
    STOPPED,
    TIMEOUT,
    Requests,
    TokenReport,
)
from fleetlab.gpu.serving.load.settings import LoadSettings
from fleetlab.stats import Interval, share_of_windows

PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
LATE_GENERATOR = "invalid: the generator was late"
CLOSED_LOOP = (
    "closed loop: clients wait for their answers, so these latencies hide stalls; do not compare them with an SLO"
)


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Statistics of the requests that were scheduled in the window, whenever they ended.

    `answers` includes requests that timed out, with the timeout as latency, so that a server does not look better for
    not answering. Refusals and other failures are separate, because a fast refusal is no fast answer.
    """

    settings: LoadSettings
    url: str
    rows: Requests  # all requests, with those of the warm-up
    due: Requests  # those scheduled in the window
    opens: float
    closes: float
    answered: Interval  # per second, in the window
    goodput: Interval | None  # per second, answered within the SLO
    steady: bool | None
    stopped: bool
    notes: tuple[str, ...]
    tokens: TokenReport | None = None

    @property
    def lag(self) -> dict[str, float]:
        """Lag of the generator; exact, because every request is known."""
        lag = np.sort(self.due.lag)
        at = {name: lag[min(len(lag) - 1, math.floor(p * len(lag)))] for name, p in (("p50", 0.5), ("p99", 0.99))}
        return {**{name: float(value) for name, value in at.items()}, "max": float(lag[-1])}

    @property
    def valid(self) -> bool:
        """Whether the load was sent on schedule."""
        return not self.settings.is_open or self.lag["p99"] <= self.settings.lag

    def of(self, *outcomes: int) -> Requests:
        """Requests with these outcomes."""
        return self.due.where(np.isin(self.due.outcome, outcomes))

    @property
    def kinds(self) -> dict[str, Requests]:
        """Three groups of outcomes, whose latencies must not be mixed."""
        return {
            "answers": self.of(ANSWERED, TIMEOUT, STOPPED),
            "refusals": self.of(REFUSED),
            "failures": self.of(*(kind for kind in FAILED if kind != TIMEOUT)),
        }

    def share(self, *outcomes: int) -> Interval:
        """Proportion of scheduled requests with these outcomes."""
        return share_of_windows([np.isin(self.due.outcome, outcomes)], [1])

    def timeline(self) -> list[dict[str, Any]]:
        """Second by second: scheduled and answered requests, and latency."""
        answers, edges = self.kinds["answers"], np.append(np.arange(self.opens, self.closes), self.closes)
        done = self.rows.done[self.rows.outcome == ANSWERED]
        offered, answered = (np.histogram(at, edges)[0].tolist() for at in (self.due.due, done))
        parts = np.split(answers.latency, np.searchsorted(answers.due, edges[1:-1]))
        times = [Histogram.of(part) for part in parts]
        return [
            {"second": k, "offered": offered[k], "answered": answered[k]}
            | {name: p and p.value for name in ("p50", "p99") for p in [known_percentile(times[k], PERCENTILES[name])]}
            for k in range(len(times))
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything except single requests."""
        counts = np.bincount(self.due.outcome, minlength=len(OUTCOMES)).tolist()
        span = self.closes - self.opens
        return {
            "kind": "load",
            "loop": "open" if self.settings.is_open else "closed",
            "manifest": manifest(self.settings, self.url),
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
                kind: {name: requests.quantile_or_reason(rows.latency, p) for name, p in PERCENTILES.items()}
                for kind, rows in self.kinds.items()
                if kind == "answers" or len(rows.due)
            },
            "histograms": {kind: Histogram.of(rows.latency).to_json() for kind, rows in self.kinds.items()},
            "lag": self.lag | {"limit": self.settings.lag},
            "valid": self.valid,
            "steady": self.steady,
            "stopped": self.stopped,
            "queued": int(self.due.queued.sum()),
            "tokens": None if self.tokens is None else self.tokens.to_json(self.opens, self.closes),
            "timeline": self.timeline(),
            "notes": list(self.notes),
        }


def report(settings: LoadSettings, url: str, driven: LoadRun) -> LoadReport:
    """Summarize a run."""
    rows, opens, closes = driven.rows, driven.opens, driven.closes
    due = rows.where((rows.due >= opens) & (rows.due < closes))
    if not len(due.due):
        if driven.stopped:
            raise KeyboardInterrupt
        raise BenchError("no request was scheduled in the window", hint="more --seconds, or a shorter --warmup")
    done, answers = rows.done[rows.outcome == ANSWERED], due.where(due.outcome == ANSWERED)
    timed = np.where(due.outcome == ANSWERED, due.latency, math.nan)
    on_time = None if settings.slo is None else answers.due[answers.latency <= settings.slo]
    load = LoadReport(
        settings=settings,
        url=url,
        rows=rows,
        due=due,
        opens=opens,
        closes=closes,
        answered=requests.event_rate(done, opens, closes),
        goodput=None if on_time is None else requests.event_rate(on_time, opens, closes),
        steady=requests.is_steady(due.due, done, timed, opens, closes, by_timetable=settings.is_open),
        stopped=driven.stopped,
        notes=(),
        tokens=None
        if settings.dataset is None
        else TokenReport(due, Histogram.of(driven.gaps if driven.gaps is not None else []), _goals(settings)),
    )
    return replace(load, notes=(*_warnings(load), *driven.notes))


def _goals(settings: LoadSettings) -> dict[str, float]:
    return parse_goals(settings.goals) if settings.goals else {}


def _warnings(load: LoadReport) -> list[str]:
    """Reasons to doubt the result."""
    warnings, lag = [], load.lag
    if not load.valid:
        warnings.append(
            f"{LATE_GENERATOR}: its P99 lag is {1000 * lag['p99']:.3g} ms (maximum {1000 * load.settings.lag:g} ms); "
            "use a lower rate, fewer other processes on this machine, or a larger --lag-ms"
        )
    if not load.settings.is_open:
        warnings.append(CLOSED_LOOP)
    if load.stopped:
        late = int((load.due.outcome == STOPPED).sum())
        warnings.append(f"stopped after {load.closes:.1f} s; {late:,} unfinished requests count with the time so far")
    if queued := int(load.due.queued.sum()):
        warnings.append(f"{queued:,} requests waited for one of {load.settings.connections:,} connections")
    answers = load.kinds["answers"].latency
    if unsure := [name.upper() for name, p in PERCENTILES.items() if requests.is_autocorrelated(answers, p)]:
        warnings.append(f"autocorrelated: intervals of {', '.join(unsure)} cover less than 95 %; use more --seconds")
    if load.steady is False:
        warnings.append("not steady: rate or median latency changed by more than 10 % over the last three fifths")
    return warnings


def manifest(settings: LoadSettings, url: str) -> dict[str, Any]:
    """Settings and versions, enough to repeat it."""
    return {
        "url": url,
        **{name: value for name, value in settings.settings().items() if name != "url"},
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.platform(),
        **{package: package_version(package) for package in ("fleetlab", "aiohttp", "numpy")},
    }
