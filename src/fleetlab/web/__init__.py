"""The interactive page: what-if scenarios beside a baseline, in a browser."""

from fleetlab.web.server import web

__all__ = ["web"]
