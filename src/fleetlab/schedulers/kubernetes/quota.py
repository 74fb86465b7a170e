"""ResourceQuota: what a pod counts as, which quotas count it, and whether they have room for it."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fleetlab.schedulers.kubernetes.admission import IN, NOT_IN, Amounts, CreatedPod, NamespaceQuota, Scope
from fleetlab.schedulers.kubernetes.config import CPU, MEMORY, Requirement

STORAGE, HUGE = "ephemeral-storage", "hugepages-"
NATIVE = (CPU, MEMORY, STORAGE)
# Of these, a quota that counts one wants it said by every container.
TO_BE_SAID = (CPU, MEMORY, *(f"{kind}.{name}" for kind in ("requests", "limits") for name in (CPU, MEMORY)))


def usage(pod: CreatedPod) -> dict[str, int]:
    """Return what a pod counts as in quotas; of what runs before the others, the largest counts."""
    main, before = ([one for one in pod.containers if one.init is init] for init in (False, True))
    totals = []
    for what in ("requests", "limits"):
        sums: dict[str, int] = {}
        for one in main:
            for name, amount in getattr(one, what).items():
                sums[name] = sums.get(name, 0) + amount
        for one in before:
            sums |= {name: max(amount, sums.get(name, 0)) for name, amount in getattr(one, what).items()}
        totals.append(sums)
    return {"count/pods": 1} | _counted(*totals)


def _counted(requests: Amounts, limits: Amounts) -> dict[str, int]:
    """What requests and limits are called in quotas."""
    found = {"pods": 1} | {f"limits.{name}": limits[name] for name in NATIVE if name in limits}
    for name, amount in requests.items():
        found[f"requests.{name}"] = amount
        if name in NATIVE or name.startswith(HUGE):
            found[name] = amount
    return found


def counts(quota: NamespaceQuota, pod: CreatedPod) -> bool:
    """Return whether a quota is about a pod."""
    return (
        quota.namespace == pod.namespace
        and any(_of_pods(name) for name in quota.hard)
        and all(_matches(scope, pod) for scope in quota.scopes)
    )


def _of_pods(name: str) -> bool:
    """Whether a name of a quota is counted of pods: volumes, services and others are not."""
    if name in ("pods", "count/pods", *NATIVE) or name.startswith(HUGE):
        return True
    kind, _, rest = name.partition(".")
    return rest in NATIVE if kind == "limits" else kind == "requests" and rest != "storage"


def _matches(scope: Scope, pod: CreatedPod) -> bool:
    best_effort = not any(amount for one in pod.containers for part in (one.requests, one.limits)
                          for name, amount in part.items() if name in (CPU, MEMORY))  # fmt: skip
    known = {
        "Terminating": pod.deadline,
        "NotTerminating": not pod.deadline,
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
    }
    if scope.name in known:
        return known[scope.name]
    if scope.name != "PriorityClass":
        return False
    labels = {scope.name: pod.priority_class} if pod.priority_class else {}
    values = scope.values if scope.operator in (IN, NOT_IN) else ()
    return Requirement(scope.name, scope.operator, values).holds(labels)


def unsaid(quota: NamespaceQuota, pod: CreatedPod) -> list[str]:
    """Return what a quota counts and a container does not say, for which a pod is refused."""
    wanted = {name for name in quota.hard if name in TO_BE_SAID}
    said = [_counted(one.requests, one.limits) for one in pod.containers]
    return sorted(name for name in wanted if any(name not in each for each in said))


class Ledger:
    """What is used of each quota."""

    def __init__(self, quotas: Iterable[NamespaceQuota]) -> None:
        self.quotas = tuple(quotas)
        self.used: list[dict[str, int]] = [{} for _ in self.quotas]

    def charge(self, pod: CreatedPod) -> list[tuple[str, str]]:
        """Count a pod where all quotas have room; else count nothing, and return the quotas and resources that lack."""
        need, mine = usage(pod), [k for k, quota in enumerate(self.quotas) if counts(quota, pod)]
        for k in mine:
            if missing := unsaid(self.quotas[k], pod) or self._over(k, need):
                return [(self.quotas[k].name, name) for name in missing]
        self._add(mine, need, 1)
        return []

    def release(self, pod: CreatedPod) -> None:
        """Count a pod no more."""
        self._add([k for k, quota in enumerate(self.quotas) if counts(quota, pod)], usage(pod), -1)

    def _over(self, k: int, need: Mapping[str, int]) -> list[str]:
        hard, used = self.quotas[k].hard, self.used[k]
        return sorted(name for name, amount in need.items()
                      if amount and name in hard and used.get(name, 0) + amount > hard[name])  # fmt: skip

    def _add(self, which: Iterable[int], need: Mapping[str, int], sign: int) -> None:
        for k in which:
            for name, amount in need.items():
                if name in self.quotas[k].hard:
                    self.used[k][name] = self.used[k].get(name, 0) + sign * amount


# -- who creates pods: a Job, which tries again where the API server refused one, later and later ----------------------
# After a refusal the Job controller tries again in 10 s, then 20, 40 and so on, 6 minutes at most (releases since 1.28:
# 1 s to a minute); and at once when one of the Job's own pods changes. It creates pods one after the other until one is
# refused, and begins with the shortest time again once all are created.


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
