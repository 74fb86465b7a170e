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
