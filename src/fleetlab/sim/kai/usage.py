"""What queues used in the past, as a part of what the cluster had: half of it counts after each half-life."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetlab.core.kai import Kai
from fleetlab.core.pod_groups import Amounts
from fleetlab.sim.gangs.amounts import add
from fleetlab.sim.kai.shares import RESOURCES


@dataclass
class Usage:
    """Who held what from when on; told at every change, asked at any time."""

    site: Kai
    total: Amounts
    spans: list[tuple[float, float, Mapping[str, Amounts]]] = field(default_factory=list)  # from, to, by queue
    _since: float | None = None
    _held: Mapping[str, Amounts] = field(default_factory=dict)

    def note(self, now: float, sums: Mapping[str, Amounts]) -> None:
        """Note what groups of each queue hold from now on; a queue holds what those below it do."""
        if self._since is not None and now > self._since:
            self.spans.append((self._since, now, self._held))
        self.spans = [span for span in self.spans if span[1] > now - self.site.window]
        parents = {queue.name: queue.parent for queue in self.site.queues}
        held: dict[str, dict[str, float]] = {}
        for queue, amounts in sums.items():
            name = queue if queue in parents else ""
            while name:
                held[name] = add(held.get(name, {}), amounts)
                name = parents[name]
        self._since, self._held = now, held

    def at(self, now: float) -> dict[str, dict[str, float]]:
        """By queue and resource: what was used, as a part of what the cluster had in the same time."""
        begin = now - self.site.window
        spans = self.spans if self._since is None else [*self.spans, (self._since, now, self._held)]
        weights = [(self._weight(max(a, begin), b, now), held) for a, b, held in spans if b > begin]
        # The time before the first note counts too: the cluster was there, and nobody used it.
        whole = self._weight(begin, now, now)
        found: dict[str, dict[str, float]] = {}
        for weight, held in weights:
            for queue, amounts in held.items():
                mine = found.setdefault(queue, dict.fromkeys(RESOURCES, 0.0))
                for name in RESOURCES:
                    if self.total.get(name):
                        mine[name] += amounts.get(name, 0.0) * weight / (whole * self.total[name])
        return found

    def _weight(self, begin: float, end: float, now: float) -> float:
        """Seconds from one time to another, the past ones counting less."""
        half = self.site.half_life
        if not half:
            return end - begin
        rate = math.log(2) / half
        return (math.exp(-rate * (now - end)) - math.exp(-rate * (now - begin))) / rate
