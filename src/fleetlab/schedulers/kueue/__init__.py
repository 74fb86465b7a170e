"""Kueue 0.15: quota in trees of cohorts, flavors, admission, preemption, fair sharing and topology."""
