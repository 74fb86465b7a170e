"""Advice that decides: for a mix and a goal the mode, its limits and replicas, the margin, and when it flips."""

from fleetlab.bench.advise.result import AdviceWords, BenchAdvice, advise

__all__ = ["AdviceWords", "BenchAdvice", "advise"]
