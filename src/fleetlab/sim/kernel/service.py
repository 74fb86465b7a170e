"""Which nodes are there and take jobs: they fail, are reclaimed or drained, and come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetlab.core import Cluster, WorkloadError
from fleetlab.core.events import Elastic, Event
from fleetlab.sim.events import BACK, DRAIN, draining_of, outages_of
from fleetlab.sim.kernel import events as queue
from fleetlab.sim.schedule import Up
from fleetlab.sim.world import World

HORIZON = 3.0  # failures are drawn for so many times the span of the workload
IN_SERVICE, DRAINING, OUT = range(3)
# Seconds from a node's failure until Kubernetes makes new pods for those on it: node-monitor-grace-period until the
# node counts as unreachable, and then the tolerationSeconds that every pod is given. Where the node is back earlier,
# its kubelet tells that they failed.
REPLACED_AFTER = 40.0 + 300.0


class NodeService:
    """The state of each node (IN_SERVICE, DRAINING or OUT), and what will strike it."""

    def __init__(
        self, world: World, cluster: Cluster, events: Sequence[Event] = (), *, title: str, save: float = 0.0,
        seed: int = 0,
    ) -> None:  # fmt: skip
        if any(isinstance(event, Elastic) for event in events):
            msg = f"{title} is simulated without elastic pools"
            raise WorkloadError(msg, hint="leave [[elastic]] out, or simulate with scheduler=event")
        span = float(world.submit.max(initial=0.0) + world.runtime.max(initial=0.0))
        self._outages = outages_of(events, cluster, horizon=HORIZON * span, save=save, seed=seed)
        self.state = [IN_SERVICE] * len(world.nodes)
        self._any = bool(events)
        self._since = [min(0.0, float(world.submit.min(initial=0.0)))] * len(world.nodes)
        self._spells: list[tuple[int, float, float]] = []

    def __len__(self) -> int:
        return len(self._outages.time)

    def events(self, kind: int) -> list[queue.Event]:
        """Return all that will strike, by number, as events of a kind."""
        return [(at, kind, k, 0) for k, at in enumerate(self._outages.time.tolist())]

    def apply_event(self, number: int, now: float) -> tuple[int, int]:
        """Let what has a number strike; return the node and what it is: DOWN, DRAIN, RECLAIM or BACK."""
        node, what = int(self._outages.node[number]), int(self._outages.what[number])
        was = self.state[node]
        self.state[node] = IN_SERVICE if what == BACK else max(was, DRAINING) if what == DRAIN else OUT
        if was != OUT and self.state[node] == OUT:
            self._spells.append((node, self._since[node], now))
        elif was == OUT and self.state[node] != OUT:
            self._since[node] = now
        return node, what

    def columns(self, stopped: float) -> dict[str, Any]:
        """Return what a schedule has of nodes: when they were up, and drained."""
        if not self._any:
            return {}
        still = [(n, self._since[n], stopped) for n, state in enumerate(self.state) if state != OUT]
        spells = [spell for spell in [*self._spells, *still] if spell[2] > spell[1]]
        node, begin, end = np.array(spells, dtype=np.float64).reshape(-1, 3).T
        return {"up": Up(node.astype(np.int64), begin, end), "draining": draining_of(self._outages)}
