"""Which jobs wait for which: `--dependency` of each submission, read against the jobs of the log.

Slurm lets a job go whose dependency names a job that it does not know any more; so do we with one that is not in the
log. `aftercorr` lets task k wait for task k of another array, `singleton` a job for all earlier ones of the same user
and name. Alternatives (`a?b`) are not kept: for these the logged time of eligibility stands.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import polars as pl

RULES = {"after": "after", "afterany": "afterany", "afterok": "afterok", "afternotok": "afternotok"}
RULES |= {"aftercorr": "afterok", "afterburstbuffer": "afterany", "expand": "after"}
FRAME: dict[str, Any] = {
    "job": pl.Int64,
    "depends_on": pl.List(pl.Int64),
    "dependency": pl.List(pl.String),
    "later": pl.Boolean,
}
_ID = re.compile(r"(\d+)(?:_(\d+|\*|\[\*\]))?(?:\+(\d+))?")


class Wish(NamedTuple):
    """One dependency as it was asked for."""

    rule: str
    number: str  # of a job; empty for `singleton`
    task: str = ""
    later: bool = False  # some minutes after


@dataclass
class Dependencies:
    """What each job depends on, and what could not be kept."""

    frame: pl.DataFrame  # job, depends_on, dependency, later
    any_of: int = 0
    delayed: int = 0
    gone: int = 0  # on jobs that are not in the log

    def notes(self) -> tuple[str, ...]:
        """Say what was left out."""
        notes = {
            f"{self.frame.height:,} jobs depend on others of the log": self.frame.height,
            f"{self.any_of:,} jobs depend on any one of several: their logged time of eligibility stands": self.any_of,
            f"{self.delayed:,} dependencies hold for some minutes more: the logged time stands": self.delayed,
            f"{self.gone:,} dependencies are on jobs that are not in the log: taken as fulfilled": self.gone,
        }
        return tuple(note for note, holds in notes.items() if holds)


def wishes(text: str) -> list[Wish] | None:
    """Return what a job waits for, all of it; None if any one of several is enough.

    >>> wishes("afterok:17:18,singleton")
    [Wish(rule='afterok', number='17', task='', later=False), Wish(rule='afterok', number='18', task='', later=False), \
Wish(rule='singleton', number='', task='', later=False)]
    """
    if "?" in text:
        return None
    rules: list[Wish] = []
    for part in text.split(","):
        rule, *ids = part.strip().lower().split(":")
        if rule == "singleton":
            rules.append(Wish("singleton", ""))
        if rule.isdigit():  # as before 2.6: afterany
            rule, ids = "afterany", [rule]
        if rule in RULES:
            matches = [_ID.fullmatch(name) for name in ids]
            rules += [Wish(rule, m[1], (m[2] or "").strip("[]*"), bool(m[3])) for m in matches if m]
    return rules


@dataclass
class _Log:
    """Jobs by number, by number and task, and by user and name."""

    by_number: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    by_task: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    singles: dict[tuple[str, str], list[tuple[int, int, bool]]] = field(default_factory=lambda: defaultdict(list))


def dependencies(jobs: pl.DataFrame) -> Dependencies:
    """Resolve dependencies; `jobs` has job, name, JobIDRaw, User, JobName and wish, in order of submission."""
    wanted = jobs.filter(pl.col("wish") != "")
    if wanted.is_empty():
        return Dependencies(pl.DataFrame(schema=FRAME))
    log = _index(jobs.unique("name", keep="last", maintain_order=True))  # of several runs, the last one tells
    result = Dependencies(pl.DataFrame(schema=FRAME))
    rows = []
    for job, name, user, title, text in wanted.select("job", "name", "User", "JobName", "wish").iter_rows():
        rules = wishes(text)
        if rules is None:
            result.any_of += 1
            continue
        pairs: dict[int, str] = {}
        for wish in rules:
            on = _jobs_of(wish, job, name, (user, title), log)
            result.gone += not on and wish.rule != "singleton"
            result.delayed += wish.later
            pairs |= {other: RULES.get(wish.rule, "afterany") for other in on if other != job}
        if pairs:
            rows.append((job, list(pairs), list(pairs.values()), any(wish.later for wish in rules)))
    result.frame = pl.DataFrame(rows, schema=FRAME, orient="row")
    return result


def _index(jobs: pl.DataFrame) -> _Log:
    log = _Log()
    columns = ("job", "name", "JobIDRaw", "User", "JobName", "wish")
    for job, name, raw, user, title, wish in jobs.select(columns).iter_rows():
        number, task = _number(name)
        log.by_number[number].append(job)
        if task:
            log.by_task[number, task].append(job)
        if raw and raw != number:
            log.by_number[raw].append(job)
        log.singles[user, title].append((int(number or 0), job, "singleton" in wish))
    for rows in log.singles.values():
        rows.sort()
    return log


def with_dependencies(jobs: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Give each job what it depends on, with notes; the time until then is no longer part of its `eligible`.

    Slurm logs one time of eligibility: when the last dependency was fulfilled, or the begin time if one was set.
    """
    waits = dependencies(jobs)
    kept = waits.frame.drop("later")
    both = pl.concat([kept, runs(jobs).cast(kept.schema)])
    both = both.group_by("job", maintain_order=True).agg(pl.col("depends_on", "dependency").explode())
    mine = waits.frame.select("job", waits=~pl.col("later"))
    jobs = jobs.join(both, on="job", how="left", maintain_order="left")
    jobs = jobs.join(mine, on="job", how="left", maintain_order="left")
    own = pl.col("waits").fill_null(value=False) & (pl.col("begin") == "") & ~pl.col("hold")
    jobs = jobs.with_columns(
        pl.col("depends_on").fill_null([]),
        pl.col("dependency").fill_null([]),
        eligible_logged=pl.when(own).then("eligible"),
        eligible=pl.when(own).then("submit").otherwise("eligible"),
    )
    return jobs.drop("waits"), waits.notes()


def runs(jobs: pl.DataFrame) -> pl.DataFrame:
    """Let each run of a job, and each piece of a resized one, depend on the one before; `jobs` has job and name."""
    rows = jobs.select("job", "name").with_columns(before=pl.col("job").shift(1).over("name"))
    rows = rows.filter(pl.col("before").is_not_null())
    return rows.select("job", depends_on=pl.concat_list("before"), dependency=pl.lit(["afterany"]))


def _number(name: str) -> tuple[str, str]:
    match = re.search(r"(\d+)(?:_(\d+))?(?:\+\d+|_\[.*)?$", name)
    return (match[1], match[2] or "") if match else ("", "")


def _jobs_of(wish: Wish, job: int, name: str, who: tuple[str, str], log: _Log) -> list[int]:
    if wish.rule == "singleton":
        return _earlier(int(_number(name)[0] or 0), job, log.singles[who])
    if wish.task:
        return log.by_task[wish.number, wish.task]
    if wish.rule == "aftercorr" and (same := log.by_task.get((wish.number, _number(name)[1]))):
        return same
    return log.by_number[wish.number]


def _earlier(number: int, job: int, rows: list[tuple[int, int, bool]]) -> list[int]:
    """Earlier jobs of a user and name, back to the last that waited for all those before it."""
    before: list[int] = []
    for other_number, other, single in reversed(rows):
        if other_number >= number or other == job:
            continue
        before.append(other)
        if single:
            break
    return before
