"""Volcano: queues, gangs, and its actions on them.

Followed: volcano-sh/volcano between v1.14 and v1.15 (commit c8627e8), pkg/scheduler/plugins and pkg/scheduler/actions;
the guide lists what is left out.
"""
