"""What kube-scheduler did, in its own order: its log as a table of attempts, their outcomes, and pods that went.

The log of the scheduler is the one record that says in which order it learned of things: a pod that ended is gone for
it when its log says so, some milliseconds after the API server knew. A table row is

    at       seconds since the run began
    what     attempt, gone (an assigned pod ended or was deleted), ready (a new pod came into the queue), patched (the
             scheduler changed the status of a pod that it could not place); where pods have priorities also running and
             terminating, by when the API server said so
    pod      its number
    node     attempt: the number of the node that was chosen, -1 where none fitted; patched: 1 if more
             than the status was changed by it: who manages the fields, and since when; else -1
    found    attempt: how many nodes fitted and were scored; 1 where one was taken without scores; where none fitted, 1
             if something happened to a pod on a node meanwhile, else 0
    top      the highest sum of scores; of plugins that differ between nodes
    check    CRC-32 of all sums of scores, by node; where none fitted, of the reasons that the scheduler gave
    among    which nodes were looked at, in hexadecimal, where the scheduler did not look at all
    preempts attempt: numbers of pods that it evicted, separated by spaces
    took     attempt: where none fitted, the seconds until the pod was put back into the queue
"""

from __future__ import annotations

import json
import re
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import polars as pl

from realtest.kubernetes.profiles import PROFILES

TOLD = ("running", "terminating")
SCHEMA = {
    "at": pl.Float64, "what": pl.String, "pod": pl.Int32, "node": pl.Int32, "found": pl.Int32, "top": pl.Int64,
    "check": pl.UInt32, "among": pl.String, "preempts": pl.String, "took": pl.Float64,
}  # fmt: skip
LINE = re.compile(r"^[IWEF](\d{4} \d\d:\d\d:\d\d\.\d{6}) +\d+ \S+\] (.*)")
PATTERNS = {
    "attempt": re.compile(r"Attempting to schedule pod: default/(\S+)"),
    "scores": re.compile(r"Plugin (\w+) scores on default/(\S+) => \[(.*)\]"),
    "failed": re.compile(r'"Unable to schedule pod; no fit; waiting" pod="default/(\S+)" err="(.*)"'),
    "patched": re.compile(r"PATCH \S+/namespaces/default/pods/(\S+)/status\S* 200"),
    "bound": re.compile(r'"Successfully bound pod to node" pod="default/(\S+)" node="(\S+)"'),
    "gone": re.compile(r"delete event for scheduled pod default/(\S+)"),
    "ready": re.compile(r"add event for unscheduled pod default/(\S+)"),
    "assigned": re.compile(r"add event for scheduled pod default/(\S+)"),
}


@dataclass
class Attempt:
    """One cycle: the pod, the scores of each plugin by node, and where it went."""

    at: float
    pod: str
    what: str = "attempt"
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    failed: str = ""  # why it fits nowhere
    took: float = 0.0
    node: str = ""
    preempts: list[str] = field(default_factory=list)
    changed: bool = False
    moved: bool = False

    @property
    def totals(self) -> dict[str, int]:
        """The sum of all plugins that do not give every node the same, by node."""
        telling = [scores for scores in self.scores.values() if len(set(scores.values())) > 1]
        nodes = next(iter(self.scores.values()), {})
        return {node: sum(scores[node] for scores in telling) for node in sorted(nodes)}


def attempts(folder: Path) -> list[Attempt]:
    """All that a run's log says, in order; `what` is attempt, gone, ready or patched."""
    found: list[Attempt] = []
    current: dict[str, Attempt] = {}
    busy = _assigned_changes(folder)
    for at, kind, match in _lines(folder / "scheduler.log"):
        if kind in ("attempt", "gone", "ready", "patched"):
            found.append(Attempt(at, match[1], kind))
            if kind == "attempt":
                current[match[1]] = found[-1]
        elif kind == "assigned":
            busy.append(at)
        elif kind == "scores":
            current[match[2]].scores[match[1]] = _scores(match[3])
        elif kind == "failed":
            current[match[1]].failed, current[match[1]].took = match[2], at - current[match[1]].at
        else:
            current[match[1]].node = match[2]
    for at, preemptor, victim in _preempted(folder):
        # The scheduler tells of a victim during the attempt, or soon after it; the next one may come before it is gone.
        tries = [one for one in found if one.pod == preemptor and one.what == "attempt" and one.at <= at]
        tries[-1].preempts.append(victim)
    busy.sort()
    for one in found:
        if one.failed:
            one.moved = bisect_left(busy, one.at) < bisect_right(busy, one.at + one.took)
    return found


def _assigned_changes(folder: Path) -> list[float]:
    """When pods on nodes were changed, by when the API server said so."""
    seen = json.loads((folder / "seen.json").read_text())
    return [at for times in seen.values() for what, at in times.items() if what != "bound"]


def _lines(log: Path) -> Iterator[tuple[float, str, re.Match[str]]]:
    year = datetime.fromtimestamp(log.stat().st_mtime).year
    with log.open(errors="replace") as lines:
        for line in lines:
            head = LINE.match(line)
            for kind, pattern in PATTERNS.items() if head else ():
                if head and (match := pattern.match(head[2])):
                    # The log is in local time.
                    yield datetime.strptime(f"{year}{head[1]}", "%Y%m%d %H:%M:%S.%f").timestamp(), kind, match
                    break


def _scores(text: str) -> dict[str, int]:
    return {name: int(score) for name, score in re.findall(r"\{(\S+) (-?\d+)\}", text)}


def _preempted(folder: Path) -> list[tuple[float, str, str]]:
    """When a preemptor took which victim, by the scheduler's events."""
    found = []
    for event in json.loads((folder / "events.json").read_text())["items"]:
        said = re.match(r"Preempted by default/(\S+) on node", event.get("message", ""))
        if said and event.get("reason") == "Preempted":
            victim = (event.get("involvedObject") or event["regarding"])["name"]
            found.append((datetime.fromisoformat(event["eventTime"]).timestamp(), said[1], victim))
    return found


def table(folder: Path) -> pl.DataFrame:
    """The record of a run as it is kept."""
    about = json.loads((folder / "run.json").read_text())
    nodes = sorted(item["metadata"]["name"] for item in json.loads((folder / "nodes.json").read_text())["items"])
    number = {name: k for k, name in enumerate(nodes)}
    found = attempts(folder)
    if PROFILES[about["profile"]].load.classes:
        found = _merged(found, _told(folder))
    _mark_changes(folder, found)
    rows = [_row(one, about["begin"], number) for one in found]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _mark_changes(folder: Path, found: list[Attempt]) -> None:
    """Say of each patch whether it changed more than the status, as the API server's own stream of changes does."""
    path = folder / "changes.json"
    more: dict[str, list[bool]] = {}
    for _, pod, whether in json.loads(path.read_text()) if path.exists() else ():
        more.setdefault(pod, []).append(whether)
    for one in found:
        if one.what == "patched" and more.get(one.pod):
            one.changed = more[one.pod].pop(0)


def _told(folder: Path) -> list[Attempt]:
    seen = json.loads((folder / "seen.json").read_text())
    told = [Attempt(times[what], pod, what) for pod, times in seen.items() for what in TOLD if what in times]
    return sorted(told, key=lambda one: one.at)


def _merged(log: list[Attempt], told: list[Attempt]) -> list[Attempt]:
    """Put what was told between the lines of the log by its time; the log stays in its own order."""
    merged, latest, waiting = [], 0.0, list(reversed(told))
    for one in log:
        latest = max(latest, one.at)
        while waiting and waiting[-1].at <= latest:
            merged.append(waiting.pop())
        merged.append(one)
    return merged


def _row(one: Attempt, begin: float, number: dict[str, int]) -> tuple[object, ...]:
    totals = one.totals
    found = len(totals) or int(bool(one.node) or one.moved)
    among = f"{sum(1 << number[node] for node in totals):x}" if 100 <= len(totals) < len(number) else ""
    check = checksum(totals.values()) if totals else zlib.crc32(one.failed.encode())
    return (
        round(one.at - begin, 4), one.what, pod_number(one.pod), 1 if one.changed else number.get(one.node, -1), found,
        max(totals.values(), default=0), check, among,
        " ".join(str(pod_number(name)) for name in sorted(one.preempts)), round(one.took, 4),
    )  # fmt: skip


def pod_number(name: str) -> int:
    """The number that a pod was submitted under."""
    return int(name.rpartition("-")[2])


def checksum(totals: Iterable[int]) -> int:
    """CRC-32 of numbers in order."""
    return zlib.crc32(" ".join(map(str, totals)).encode())
