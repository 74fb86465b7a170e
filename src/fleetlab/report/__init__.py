"""Reports: any result, or several, as one HTML file."""

from fleetlab.report.report import report

__all__ = ["report"]
