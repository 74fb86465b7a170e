"""The verb: put a load on a server and say what it did."""

from __future__ import annotations

from fleetlab.bench.load.asked import Asked
from fleetlab.bench.load.drive import Tell, by_clients, by_timetable
from fleetlab.bench.load.report import Load, report
from fleetlab.bench.load.target import loopback
from fleetlab.bench.load.timetable import timetable


def measure(asked: Asked, *, tell: Tell = lambda _line: None) -> Load:
    """Ask as asked; it ends by itself, at the latest one timeout after the last request is due."""
    url = loopback(asked.url, batch=asked.batch)
    if asked.is_open:
        return report(asked, url, by_timetable(asked, url, timetable(asked), tell=tell))
    return report(asked, url, by_clients(asked, url, tell=tell))
