"""Measurements: each a ratio of two things done in one run on one machine."""
