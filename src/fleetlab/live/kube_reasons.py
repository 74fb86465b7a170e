"""Why a pod is pending, in a few words: kube-scheduler writes a sentence with numbers, which no label may hold."""

from __future__ import annotations

import re
from typing import Any

# The first cause that the message names counts: a resource that no node has at all before one that is in use.
REASONS = (
    ("SchedulingGated", r"SchedulingGated|scheduling is blocked due to non-empty scheduling gates"),
    ("InsufficientGPU", r"Insufficient (?:nvidia\.com|amd\.com|gpu\.intel\.com|aliyun\.com|volcano\.sh)/\S+"),
    ("InsufficientCPU", r"Insufficient cpu"),
    ("InsufficientMemory", r"Insufficient memory"),
    ("InsufficientResource", r"Insufficient |Too many pods"),
    ("PodTopologySpread", r"topology spread constraints"),
    ("PodAffinity", r"pod (?:anti-)?affinity"),
    ("NodeAffinity", r"node (?:affinity|selector)|node\(s\) didn't match"),
    ("Taint", r"taint"),
    ("NodeNotReady", r"not ready|unschedulable|no nodes available"),
    ("Volume", r"volume|PersistentVolumeClaim|persistentvolumeclaim"),
    ("PodGroup", r"gang|pod ?group|PodGroup"),
)
NOT_LOOKED_AT, UNSCHEDULABLE = "NotYetScheduled", "Unschedulable"


def wait_reason(pod: dict[str, Any]) -> str:
    """Return why a pod that is not bound waits.

    >>> status = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    >>> status["message"] = "0/9 nodes are available: 3 Insufficient nvidia.com/gpu, 6 node(s) had taint {a: b}."
    >>> wait_reason({"status": {"conditions": [status]}}), wait_reason({})
    ('InsufficientGPU', 'NotYetScheduled')
    """
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if isinstance(condition, dict) and condition.get("type") == "PodScheduled":
            said = f"{condition.get('reason')} {condition.get('message')}"
            return next((name for name, form in REASONS if re.search(form, said)), UNSCHEDULABLE)
    return NOT_LOOKED_AT
