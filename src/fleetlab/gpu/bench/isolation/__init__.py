"""What a tenant can do to its neighbors: memory, faults, performance and information, measured in each sharing mode.

Every probe has a healthy neighbor that checks the result of each of its steps, and a tenant that misbehaves.
"""
