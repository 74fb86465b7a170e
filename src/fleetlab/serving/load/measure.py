"""Measure a server under load."""

from __future__ import annotations

from fleetlab.bench.llm.goals import parse_goals
from fleetlab.devices.progress import Progress, silent
from fleetlab.serving.load.generator import closed_loop, open_loop
from fleetlab.serving.load.report import LoadReport, report
from fleetlab.serving.load.schedule import arrival_schedule
from fleetlab.serving.load.settings import LoadSettings
from fleetlab.serving.load.target import loopback
from fleetlab.serving.load.tokens import request_lengths


def measure(settings: LoadSettings, *, progress: Progress = silent) -> LoadReport:
    """Run the load; it ends at the latest one timeout after the last scheduled request."""
    if settings.dataset is not None:
        next(request_lengths(settings.dataset, settings.seed))  # refuse before anything is sent
        parse_goals(settings.goals or "ttft:1")
    path = "/v1/completions" if settings.dataset else "/predict" if settings.batch == 1 else "/predict/batch"
    url = loopback(settings.url, path=path)
    if settings.is_open:
        return report(settings, url, open_loop(settings, url, arrival_schedule(settings), progress=progress))
    return report(settings, url, closed_loop(settings, url, progress=progress))
