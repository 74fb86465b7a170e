"""Schedulers with rules of their own: one folder each, with its configuration, its rules and its simulation."""
