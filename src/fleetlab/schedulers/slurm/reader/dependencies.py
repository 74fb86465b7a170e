"""Which jobs wait for which: `--dependency` of each submission, read against the jobs of the log.

Slurm lets a job go whose dependency names a job that it does not know any more; so do we with one that is not in the
log. `aftercorr` lets task k wait for task k of another array, `singleton` a job for all earlier ones of the same user
and name. With `?` between them, one dependency is enough. Where a job depends on one that never started, the logged
time of eligibility stands: when that one was cancelled is not known here.
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
    "never_ran": pl.Boolean,
}
_ID = re.compile(r"(\d+)(?:_(\d+|\*|\[\*\]))?(?:\+(\d+))?")


class Wish(NamedTuple):
    """One dependency as it was asked for."""

    rule: str
    number: str  # of a job; empty for `singleton`
    task: str = ""
    minutes: int = 0  # after


@dataclass
class Dependencies:
    """What each job depends on, and what could not be kept."""

    frame: pl.DataFrame  # job, depends_on, dependency, never_ran
    gone: int = 0  # on jobs that are not in the log

    def notes(self) -> tuple[str, ...]:
        """Say what was left out."""
        notes = {
            f"{self.frame.height:,} jobs depend on others of the log": self.frame.height,
            f"{self.gone:,} dependencies are on jobs that are not in the log: taken as fulfilled": self.gone,
        }
        return tuple(note for note, holds in notes.items() if holds)


def wishes(text: str) -> list[Wish]:
    """Return what a job waits for: all of it or, if there is a question mark between, one.

    >>> wishes("afterok:17,singleton")
    [Wish(rule='afterok', number='17', task='', minutes=0), Wish(rule='singleton', number='', task='', minutes=0)]
    """
    rules: list[Wish] = []
    for part in re.split("[,?]", text):
        rule, *ids = part.strip().lower().split(":")
        if rule == "singleton":
            rules.append(Wish("singleton", ""))
        if rule.isdigit():  # as before 2.6: afterany
            rule, ids = "afterany", [rule]
        if rule in RULES:
            matches = [_ID.fullmatch(name) for name in ids]
            rules += [Wish(rule, m[1], (m[2] or "").strip("[]*"), int((m[3] or "0")[:6])) for m in matches if m]
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
    never = set(jobs.filter(pl.col("start").is_null())["job"].to_list()) if "start" in jobs.columns else set()
    rows = []
    for job, name, user, title, text in wanted.select("job", "name", "User", "JobName", "wish").iter_rows():
        pairs: dict[int, str] = {}
        one = "?" in text
        gone = False
        for wish in wishes(text):
            on = _jobs_of(wish, job, name, (user, title), log)
            gone = gone or (not on and wish.rule != "singleton")
            result.gone += not on and wish.rule != "singleton"
            pairs |= {other: _rule(wish, one=one) for other in on if other != job}
        if pairs and not (one and gone):
            rows.append((job, list(pairs), list(pairs.values()), not never.isdisjoint(pairs)))
    result.frame = pl.DataFrame(rows, schema=FRAME, orient="row")
    return result


def _rule(wish: Wish, *, one: bool) -> str:
    rule = RULES.get(wish.rule, "afterany")
    return rule + (f"+{wish.minutes}" if wish.minutes and rule == "after" else "") + ("?" if one else "")


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
    kept = waits.frame.drop("never_ran")
    both = pl.concat([kept, runs(jobs).cast(kept.schema)])
    both = both.group_by("job", maintain_order=True).agg(pl.col("depends_on", "dependency").explode())
    mine = waits.frame.select("job", waits=~pl.col("never_ran"))
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
