"""Analysis of suites: the best sharing mode for each mix, with intervals, and answers to six questions."""

from fleetlab.gpu.bench.analysis.result import Analysis, analyze

__all__ = ["Analysis", "analyze"]
