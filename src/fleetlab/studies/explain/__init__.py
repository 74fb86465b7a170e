"""Explain one job: why it waited when, who held what it needed, and what would have started it sooner."""

from fleetlab.studies.explain.explanation import Candidates, Explanation, explain

__all__ = ["Candidates", "Explanation", "explain"]
