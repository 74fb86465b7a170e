"""Which of several nodes that are equally good a pod gets."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from fleetlab.sim.gangs.tasks import Task
from fleetlab.sim.kubernetes.state import Ints


class Ties:
    """Draws of one cycle: a pod's is the same however often it, or any other, was tried and taken back."""

    def __init__(self, draw: np.random.Generator) -> None:
        self._key = draw.bytes(8)

    def pick(self, task: Task, nodes: Ints) -> int:
        """One of the nodes, each as likely as the others."""
        if len(nodes) == 1:
            return int(nodes[0])
        drawn = blake2b(task.pod.name.encode(), key=self._key, digest_size=8).digest()
        return int(nodes[int.from_bytes(drawn, "little") % len(nodes)])
