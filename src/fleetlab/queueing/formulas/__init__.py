"""Queueing formulas, by model family."""
