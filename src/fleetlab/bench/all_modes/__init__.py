"""One machine, all modes: a sequence of plans in one folder, within a time budget, that resumes after any end."""
