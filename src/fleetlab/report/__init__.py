"""Reports: any result, or several, as one HTML file."""

from fleetlab.report.report import Card, Lead, report

__all__ = ["Card", "Lead", "report"]
