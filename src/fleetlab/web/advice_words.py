"""The studies that the page asks for advice, and the goal that it proposes."""

STUDIES = ("diagnose", "capacity", "calibrate")
GOAL = "p90 wait < 10m"
