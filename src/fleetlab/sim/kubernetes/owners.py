"""Who creates pods: a Job, which tries again where the API server refused one, later and later.

After a refusal the Job controller tries again in 10 s, then 20, 40 and so on, 6 minutes at most (releases since 1.28:
1 s to a minute); and at once when one of the Job's own pods changes. It creates pods one after the other until one is
refused, and begins with the shortest time again once all are created.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Sequence

from fleetlab.core.admission import CreatedPod, NamespaceQuota
from fleetlab.sim.kubernetes.quota import Ledger


class Owners:
    """Pods that are to be created, by the Job that they are of."""

    def __init__(
        self, quotas: Sequence[NamespaceQuota], pods: Sequence[CreatedPod], owner: Sequence[int],
        backoff: tuple[float, float],
    ) -> None:  # fmt: skip
        self.ledger, self.pods, self.owner = Ledger(quotas), pods, owner
        self.refusals = [0] * len(pods)
        self._first, self._most = backoff
        self._wanted: dict[int, list[int]] = {}
        self._failures: Counter[int] = Counter()
        self._due: dict[int, float] = {}
        self._freed, self._tried = 0, dict[int, int]()  # how often pods ended; and had when a Job last tried
        self._by_time: list[tuple[float, int]] = []

    def want(self, pods: Sequence[int], now: float) -> list[int]:
        """Create pods, and others of their Jobs that wait, those of a Job at one go; return who was admitted."""
        owners = dict.fromkeys(self.owner[pod] for pod in pods)
        for pod in pods:
            self._wanted.setdefault(self.owner[pod], []).append(pod)
        return [pod for owner in owners for pod in self._sync(owner, now)]

    def changed(self, pod: int, now: float) -> list[int]:
        """Try again because a pod of the Job started or ended; return those that were admitted."""
        return self._sync(self.owner[pod], now) if self._wanted.get(self.owner[pod]) else []

    def gone(self, pod: int) -> None:
        """Note that a pod ended, and is no longer counted."""
        self.ledger.release(self.pods[pod])
        self._freed += 1

    def may_admit(self) -> bool:
        """Return whether a pod ended since some Job that waits last tried."""
        return any(self._tried[owner] != self._freed for owner in self._wanted)

    def waiting(self) -> list[int]:
        """Return the pods that are not admitted yet."""
        return [pod for pods in self._wanted.values() for pod in pods]

    def next_try(self) -> float:
        """When the next Job tries again; infinity: none does."""
        while self._by_time and self._due.get(self._by_time[0][1]) != self._by_time[0][0]:
            heapq.heappop(self._by_time)
        return self._by_time[0][0] if self._by_time else math.inf

    def try_again(self, now: float) -> list[int]:
        """Let those try whose time has come; return the pods that were admitted."""
        admitted = []
        while self.next_try() <= now:
            _, owner = heapq.heappop(self._by_time)
            del self._due[owner]
            admitted += self._sync(owner, now)
        return admitted

    def _sync(self, owner: int, now: float) -> list[int]:
        waiting, admitted = self._wanted.get(owner, []), []
        self._tried[owner] = self._freed
        while waiting and not self.ledger.charge(self.pods[waiting[0]]):
            admitted.append(waiting.pop(0))
        if not waiting:
            self._wanted.pop(owner, None)
            self._failures.pop(owner, None)
            return admitted
        self.refusals[waiting[0]] += 1
        self._failures[owner] += 1
        self._retry(owner, now + min(self._most, self._first * 2.0 ** min(self._failures[owner] - 1, 60)))
        if admitted:  # the Job's own status changes, which lets it try once more, to no avail
            self._failures[owner] += 1
        return admitted

    def _retry(self, owner: int, at: float) -> None:
        """Try again at a time, unless it is to do so earlier already."""
        if at < self._due.get(owner, math.inf):
            self._due[owner] = at
            heapq.heappush(self._by_time, (at, owner))
