"""What the page refuses, with the status that HTTP has for it; other errors of the house are 400."""

from __future__ import annotations

from fleetlab.core import FleetlabError


class Missing(FleetlabError):
    """There is no such thing."""

    status = 404


class TooLarge(FleetlabError):
    """More than the page takes."""

    status = 413


class Busy(FleetlabError):
    """More was asked for than can be queued."""

    status = 429
