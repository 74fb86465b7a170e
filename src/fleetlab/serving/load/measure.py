"""The verb: put a load on a server and say what it did."""

from __future__ import annotations

from fleetlab.serving.load.generator import Tell, by_clients, by_timetable
from fleetlab.serving.load.report import Load, report
from fleetlab.serving.load.settings import Asked
from fleetlab.serving.load.target import loopback
from fleetlab.serving.load.timetable import timetable


def measure(asked: Asked, *, tell: Tell = lambda _line: None) -> Load:
    """Ask as asked; it ends by itself, at the latest one timeout after the last request is due."""
    url = loopback(asked.url, batch=asked.batch)
    if asked.is_open:
        return report(asked, url, by_timetable(asked, url, timetable(asked), tell=tell))
    return report(asked, url, by_clients(asked, url, tell=tell))
