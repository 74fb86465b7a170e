"""Advice that decides: for a mix and a goal the mode, its limits and replicas, the margin, and when it flips."""

from fleetlab.gpu.bench.advise.result import AdviceOptions, BenchAdvice, advise

__all__ = ["AdviceOptions", "BenchAdvice", "advise"]
