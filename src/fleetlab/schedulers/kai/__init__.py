"""KAI: a tree of queues with fair shares, and its actions on gangs.

Followed: kai-scheduler/KAI-Scheduler at commit 521a99a, pkg/scheduler/plugins/proportion and pkg/scheduler/actions; the
guide lists what is left out.
"""
