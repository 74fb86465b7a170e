"""Errors of the page with an HTTP status of their own; other errors of the package are 400."""

from __future__ import annotations

from fleetlab.core import FleetlabError


class NotFound(FleetlabError):
    """There is no such trace, upload or operation."""

    status = 404


class TooLarge(FleetlabError):
    """An upload is larger than the page takes."""

    status = 413


class TooManyRequests(FleetlabError):
    """The queue is full."""

    status = 429


class WorkerEnded(FleetlabError):
    """The process that worked on a request has ended, and so has the one that tried again."""

    status = 503


class TookTooLong(FleetlabError):
    """The work was stopped at its time limit."""

    status = 504
