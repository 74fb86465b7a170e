"""Analysis of suites: the best sharing mode for each mix, with intervals, and answers to six questions."""

from fleetlab.bench.analysis.result import Analysis, analyze
from fleetlab.bench.analysis.text import brief_text
from fleetlab.bench.analysis.write import write_analysis

__all__ = ["Analysis", "analyze", "brief_text", "write_analysis"]
