"""Whose turn was it, and when: every attempt of a real kube-scheduler against our queue, led by the record.

The queue learns of pods that come, leave and fail, and of their changed status, when the scheduler did. An attempt is
`in turn` if the pod is active and none that is active goes before it. The scheduler logs from several threads: what
happened within `BLUR_S` of an attempt may have been before it or after. What is in turn only with `STALL_S` is `late`:
on a busy host the news of a change may come so much later than the answer to the request that made it. Who has backed
off becomes active once a second, at a moment that the log does not tell: it may be tried from the end of its backoff
on, and is due a second later.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fleetlab.schedulers.kubernetes.queue import BACKOFF_TICK, LEFT_FOR, Queue, Waiting
from realtest.kubernetes.replay import Run

BLUR_S, STALL_S = 0.1, 2.0
FAIL, PATCH = "fail", "patched"


@dataclass
class Turns:
    """How many attempts were in turn, what had made their pods active, and how long after that they came."""

    counts: Counter[str] = field(default_factory=Counter)
    delays: dict[str, list[float]] = field(default_factory=dict)  # seconds, from when pod and scheduler were free
    wrong: list[str] = field(default_factory=list)


def turns(run: Run) -> Turns:
    """Check every attempt of a run whose record tells how long attempts took."""
    return _Turns(run).play()


class _Turns:
    def __init__(self, run: Run) -> None:
        self.run, self.found = run, Turns()
        self.queue = Queue(run.profile)
        self.pending: dict[int, Waiting] = {}  # all that wait, by pod
        self.woken: dict[int, tuple[str, float]] = {}  # by what a pod became active, and when
        self.trying: tuple[Waiting, bool] | None = None  # the pod of this attempt; whether somebody left meanwhile
        self.unsure: dict[int, float] = {}  # pods whose status changed just before or after they began to back off
        self.backs_off_since: dict[int, float] = {}
        self.moved_at = -1.0  # when somebody last left
        self.free_at = 0.0  # when the scheduler was done with the last attempt
        self.rows = _events(run)

    def play(self) -> Turns:
        """Go through the record."""
        for number, (at, what, row) in enumerate(self.rows):
            if what == "ready":
                one = Waiting(row["pod"], self.run.pods[row["pod"]].priority, at)
                self.pending[one.pod] = one
                self._wake(one, "came", at)
            elif what == "gone":
                self._left(at)
            elif what == PATCH:
                self._patched(row, at)
            elif what == "attempt":
                self._attempt(number, row, at)
            elif what == FAIL:
                self._failed(row["pod"], at)
        return self.found

    def _wake(self, one: Waiting, why: str, at: float) -> None:
        self.queue.backing_off.pop(one.pod, None)
        self.queue.unschedulable.pop(one.pod, None)
        if one.pod not in self.woken:
            self.woken[one.pod] = (why, at)

    def _left(self, at: float) -> None:
        self.moved_at = at
        if self.trying:
            self.trying = (self.trying[0], True)
        before = set(self.queue.unschedulable)
        self.queue.move_all(at)
        self.backs_off_since |= dict.fromkeys(before & set(self.queue.backing_off), at)
        for pod in before - set(self.queue.backing_off):
            self._wake(self.pending[pod], "a pod left", at)
        self.queue.active.clear()  # who is active is in `woken`

    def _patched(self, row: dict[str, Any], at: float) -> None:
        pod = row["pod"]
        if pod in self.queue.unschedulable and row["node"] == 1:
            self._wake(self.pending[pod], "own status", at)
        elif pod in self.pending:  # whether it backs off when the change comes back is a matter of milliseconds
            if self.backs_off_since.get(pod, at) < at - BLUR_S:
                self._wake(self.pending[pod], "own status", at)
            else:
                self.unsure[pod] = at

    def _failed(self, pod: int, at: float) -> None:
        if self.trying and self.trying[0].pod == pod:
            self.queue.failed(self.trying[0], at, moved=self.trying[1])
            self.backs_off_since.pop(pod, None)  # if it backs off already, then by what happened in these milliseconds
            self.pending[pod], self.trying, self.free_at = self.trying[0], None, at

    def _attempt(self, number: int, row: dict[str, Any], at: float) -> None:
        one = self.pending[row["pod"]]
        why, since = self.woken.pop(one.pod, ("", at)) if one.pod in self.woken else self._not_seen(number, one, at)
        self.found.counts[why] += 1
        self.found.delays.setdefault(why, []).append(at - max(since, self.free_at))
        if why == "early":
            self.found.wrong.append(f"pod {one.pod} at {at:.4f} was not to be tried yet")
        passed = self._passed(one, at, STALL_S)
        late = bool(self._passed(one, at, BLUR_S))
        self.found.counts["out of turn" if passed else "late" if late else "in turn"] += 1
        if passed:
            self.found.wrong.append(f"pod {one.pod} at {at:.4f} went before {passed[:3]}")
        self.queue.backing_off.pop(one.pod, None)
        self.queue.unschedulable.pop(one.pod, None)
        del self.pending[one.pod]
        one.attempts += 1
        self.trying, self.free_at = ((one, row["found"] == 1) if row["node"] < 0 else None), at

    def _not_seen(self, number: int, one: Waiting, at: float) -> tuple[str, float]:
        """What made a pod active that our queue holds back."""
        end = self.queue.backoff_end(one)
        if one.pod in self.queue.backing_off and end <= at + 0.005:
            return "backed off", end
        if self.unsure.get(one.pod, -STALL_S) >= at - STALL_S:
            return "own status", max(self.unsure[one.pod], min(at, self.moved_at))
        for then, what, row in self.rows[number + 1 : number + 400]:
            if then > at + BLUR_S:
                break
            if what == PATCH and row["pod"] == one.pod:
                return "own status", at  # the change came back before its answer
            if what == "gone" and end <= at:
                return "a pod left", at
        if one.pod in self.queue.unschedulable and at - one.since > LEFT_FOR:
            return "left for a minute", at
        return "early", at

    def _passed(self, one: Waiting, at: float, blur: float) -> list[int]:
        """Pods that were surely active, and go before this one."""
        mine = (-one.priority, one.since)
        active = [pod for pod, (_, since) in self.woken.items() if since < at - blur]
        due = [pod for pod, w in self.queue.backing_off.items() if self.queue.backoff_end(w) + BACKOFF_TICK < at - blur]
        rank = {pod: (-self.pending[pod].priority, self.pending[pod].since) for pod in (*active, *due)}
        return [pod for pod, r in rank.items() if pod != one.pod and (r[0], r[1] + blur) < mine]


def _events(run: Run) -> list[tuple[float, str, dict[str, Any]]]:
    """The record with the moments at which pods were put back into the queue; always before the next attempt."""
    found, failed = [], None
    for row in run.record.iter_rows(named=True):
        if failed and (row["what"] == "attempt" or row["at"] >= failed["at"] + failed["took"]):
            found.append((min(failed["at"] + failed["took"], row["at"]), FAIL, failed))
            failed = None
        found.append((row["at"], row["what"], row))
        if row["what"] == "attempt" and row["node"] < 0:
            failed = row
    return found
