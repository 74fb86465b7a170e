"""The room that draws: any result, or several, as one page that opens anywhere."""

from fleetlab.report.report import report

__all__ = ["report"]
