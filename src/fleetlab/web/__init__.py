"""A local page on which what-ifs answer as you drag; nothing imports it but the command line."""

from fleetlab.web.server import web

__all__ = ["web"]
