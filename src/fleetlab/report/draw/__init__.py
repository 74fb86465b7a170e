"""Draw figures as SVG, in a page or a file."""

from fleetlab.report.draw.chart import Chart, Reach, ready
from fleetlab.report.draw.svg import NARROW, WIDE, svg

__all__ = ["NARROW", "WIDE", "Chart", "Reach", "ready", "svg"]
