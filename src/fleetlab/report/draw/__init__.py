"""Figures drawn: as SVG in a page or a file, as PNG, and as the numbers behind them."""

from fleetlab.report.draw.chart import Chart, Reach, ready
from fleetlab.report.draw.svg import NARROW, WIDE, svg

__all__ = ["NARROW", "WIDE", "Chart", "Reach", "ready", "svg"]
