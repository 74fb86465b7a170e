"""Why each job waits and who holds what it is missing, for every second: read off a schedule that was played."""
