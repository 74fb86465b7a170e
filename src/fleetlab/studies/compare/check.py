"""Test a configuration of a scheduler like code: replay the log under both, and hold rules against the difference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from xml.sax.saxutils import quoteattr

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Figure, WorkloadError
from fleetlab.core.durations import duration
from fleetlab.core.files import atomic_write, plain
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import FieldsResult
from fleetlab.core.scenario import Scenario, ScenarioLike
from fleetlab.core.toml import load
from fleetlab.stats import Floats
from fleetlab.studies.compare.configurations import (
    AS_IS,
    WHOM,
    as_configured,
    by_whom,
    changes_of,
    classes_of,
    with_change,
)
from fleetlab.studies.compare.configurations import who as who_gains
from fleetlab.studies.compare.runs import OF_THE_RUN, Runs, records_of
from fleetlab.studies.model_error import notes_of
from fleetlab.studies.replicas import Plan
from fleetlab.studies.runner import Workers
from fleetlab.studies.sentences import sentence

EVERYONE = "all"
KINDS = (*WHOM, EVERYONE)
QUANTILES = {"mean wait": None, "P50 wait": 0.5, "P90 wait": 0.9, "P95 wait": 0.95}
ALLOCATION, UNSCHEDULABLE = "GPU allocation", "unschedulable jobs"
METRICS = (*QUANTILES, ALLOCATION, UNSCHEDULABLE)
HOLDS, BREAKS, UNDECIDED = "holds", "breaks", "not decided"
LEAST_JOBS = 30  # of a class that a rule speaks of
GRID = 200  # moments of the picture
HINT = 'one `[[rule]]` each, such as metric = "P90 wait", of = "team", worsens_at_most = "20 %"'


@dataclass(frozen=True, slots=True)
class Rule:
    """What a change of the configuration may not do."""

    metric: str
    of: str = EVERYONE
    limit: float = 0.0  # by how much it may get worse: a share of what it was, or in its own unit
    relative: bool = True
    least_jobs: int = LEAST_JOBS
    undecided: Literal["pass", "fail"] = "pass"

    @classmethod
    def of_values(cls, values: Mapping[str, Any], number: int) -> Rule:
        """Read a rule of a file; WorkloadError says what is wrong with it."""
        known = {"metric", "of", "worsens_at_most", "least_jobs", "undecided"}
        where = f"rule {number}"
        if unknown := sorted(set(values) - known):
            msg = f"{where}: no key `{unknown[0]}`; there are {', '.join(sorted(known))}"
            raise WorkloadError(msg, hint=HINT)
        metric = lookup("metric of a rule", str(values.get("metric", "")), METRICS, error=WorkloadError)
        of = lookup("class of a rule", str(values.get("of", EVERYONE)), KINDS, error=WorkloadError)
        if metric not in QUANTILES and of != EVERYONE:
            msg = f"{where}: {metric} is of all jobs"
            raise WorkloadError(msg, hint="leave `of` out")
        given = str(values.get("undecided", "pass"))
        undecided = lookup("word for what is not decided", given, ("pass", "fail"), error=WorkloadError)
        limit, relative = _limit(values.get("worsens_at_most", 0), where)
        return cls(metric, of, limit, relative, int(values.get("least_jobs", LEAST_JOBS)), undecided)  # type: ignore[arg-type]

    @property
    def title(self) -> str:
        """Return the rule in words.

        >>> Rule("P90 wait", "team", 0.2).title
        "no team's P90 wait worsens by more than 20 %"
        """
        if self.metric == UNSCHEDULABLE:
            return "no job becomes unschedulable" if not self.limit else f"at most {self.limit:g} become unschedulable"
        by = f" by more than {self.bound}" if self.limit else ""
        if self.metric == ALLOCATION:
            return f"GPU allocation does not fall{by}"
        whose = f"no {self.of}'s {self.metric} worsens" if self.of != EVERYONE else f"{self.metric} does not worsen"
        return whose + by

    @property
    def bound(self) -> str:
        """Return how much it may get worse."""
        return f"{100 * self.limit:g} %" if self.relative else f"{self.limit:g}"


USUAL = (Rule("P90 wait", "team", 0.2), Rule(ALLOCATION, limit=0.01), Rule(UNSCHEDULABLE, relative=False))


def _limit(value: object, where: str) -> tuple[float, bool]:
    """Read `20 %`, or a number in the unit of the metric."""
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        msg = f"{where}: not a bound: {text[:40]}"
        raise WorkloadError(msg, hint='worsens_at_most = "20 %", or seconds: worsens_at_most = 60')
    return (number / 100, True) if text.endswith("%") else (number, number == 0)


def read_rules(path: Path | None) -> tuple[Rule, ...]:
    """Read rules of a TOML file; without one, those that are usual."""
    if path is None:
        return USUAL
    values = load(path, "the rules", HINT)
    entries = values.get("rule")
    if not isinstance(entries, list) or not entries or set(values) != {"rule"}:
        msg = f"{path.name}: no rules"
        raise WorkloadError(msg, hint=HINT)
    return tuple(Rule.of_values(entry, number) for number, entry in enumerate(entries, 1))


@dataclass(frozen=True, repr=False)
class Check(FieldsResult):
    """Which rules a new configuration keeps and breaks, and who gains and loses by it."""

    rules: tuple[Rule, ...] = field(default=())

    @property
    def passed(self) -> bool:
        """Whether no rule breaks, with what is not decided taken as each rule says."""
        return not self.frames["rules"]["fails"].any()

    def markdown(self, picture: str = "") -> str:
        """Return it for a pull request.

        Parameters
        ----------
        picture
            The address of its timeline; empty: none.

        Returns
        -------
        str
            Markdown.

        Examples
        --------
        >>> import fleetlab
        >>> result = fleetlab.check("sample", conf="bf_interval=600", replicas=1, workers=0)
        >>> "| verdict |" in result.markdown("check.svg")
        True
        """
        rows = self.frames["rules"].rows(named=True)
        lines = [f"## {'✅' if self.passed else '❌'} {self.findings[0]}", ""]
        lines += [f"- {_escaped(text)}" for text in self.findings[1:]]
        lines += ["", "| rule | of | before | after | change | verdict |", "|---|---|--:|--:|--:|---|"]
        for row in rows:
            cells = (row["rule"], row["who"], _shown(row, "before"), _shown(row, "after"), _change(row), row["verdict"])
            lines.append("| " + " | ".join(_escaped(str(cell)) for cell in cells) + " |")
        if picture:
            lines += ["", f"![jobs that wait, before and after]({picture})"]
        return "\n".join([*lines, "", *(f"_{_escaped(note)}_  " for note in self.notes)]) + "\n"

    def junit(self) -> str:
        """Return it as JUnit XML, a test for each rule and class.

        Returns
        -------
        str
            XML.

        Examples
        --------
        >>> import fleetlab
        >>> result = fleetlab.check("sample", conf="bf_interval=600", replicas=1, workers=0)
        >>> result.junit()[:5]
        '<?xml'
        """
        rows = self.frames["rules"].rows(named=True)
        lines = ['<?xml version="1.0" encoding="UTF-8"?>']
        lines.append(
            f'<testsuite name="fleetlab check" tests="{len(rows)}" failures="{sum(r["fails"] for r in rows)}">'
        )
        for row in rows:
            lines.append(f"  <testcase classname={_quoted(row['rule'])} name={_quoted(row['who'])}>")
            text = f"{_shown(row, 'before')} before, {_shown(row, 'after')} after ({_change(row)}): {row['verdict']}"
            if row["fails"]:
                lines.append(f"    <failure message={_quoted(text)}/>")
            elif row["verdict"] == UNDECIDED:
                lines.append(f"    <skipped message={_quoted(text)}/>")
            lines.append("  </testcase>")
        return "\n".join([*lines, "</testsuite>"]) + "\n"

    def write(self, markdown: Path | None = None, junit: Path | None = None) -> None:
        """Write the files that are asked for.

        Parameters
        ----------
        markdown
            A comment for a pull request; its picture goes beside it.
        junit
            The verdicts as JUnit XML.

        Examples
        --------
        >>> import fleetlab
        >>> from tempfile import TemporaryDirectory
        >>> result = fleetlab.check("sample", conf="bf_interval=600", replicas=1, workers=0)
        >>> with TemporaryDirectory() as folder:
        ...     result.write(markdown=Path(folder, "check.md"))
        ...     Path(folder, "check.svg").exists()
        True
        """
        if markdown is not None:
            picture = self.figures()["timeline"].save(markdown.with_suffix(".svg"))
            atomic_write(markdown, self.markdown(picture.name))
        if junit is not None:
            atomic_write(junit, self.junit())


def check(
    source: ScenarioLike, cluster: Cluster | None = None, *, conf: Path | str,
    rules: Path | Sequence[Rule] | None = None,
    replicas: int | None = None, scope: str = "log", workers: Workers = None, progress: Progress = silent,
) -> Check:  # fmt: skip
    """Test another configuration of a site's scheduler before it is deployed.

    Parameters
    ----------
    source
        What builds a scenario, as `Scenario.of` takes it: the log of the last weeks, with the site's configuration.
    cluster
        The nodes, in place of those of the trace.
    conf
        A new slurm.conf, a file of the lines that change, or one such line; or objects of Kueue, Volcano, KAI or
        kube-scheduler, as `compare` takes them.
    rules
        A TOML file of rules, or rules (default: no team's P90 wait worsens by more than 20 %, GPU allocation does not
        fall by more than 1 %, no job becomes unschedulable).
    replicas
        Pairs of runs that each number rests on (default: as many as decide).
    scope
        What intervals speak of: `log` or `like`, as in `compare`.
    workers
        Processes to run at once.
    progress
        Called as runs are done.

    Returns
    -------
    Check
        A table `rules`, with a row for each class that a rule speaks of; who gains and who loses; `passed`.

    Raises
    ------
    WorkloadError
        If a rule cannot be read, or the configuration changes nothing.

    Examples
    --------
    >>> import fleetlab
    >>> fleetlab.check("sample", conf="bf_interval=600", replicas=1, workers=0).frames["rules"].columns[:2]
    ['rule', 'who']
    """
    held = read_rules(rules) if rules is None or isinstance(rules, Path) else tuple(rules)
    base = as_configured(Scenario.of(source, cluster))
    (name, change), *_ = changes_of(base, [conf]).items()
    if not change.settings:
        msg = f"nothing changes how the site schedules: {name}"
        raise WorkloadError(msg, hint="; ".join(change.notes) or "every line is as the site has it already")
    scenarios = {AS_IS: base, name: with_change(base, change)}
    runs = Runs.of(scenarios, plan=Plan.of(replicas, scope), workers=workers, progress=progress)
    rows = [row for rule in held for row in _rows(rule, runs, name)]
    table, whom = pl.DataFrame(rows, schema=SCHEMA, orient="row"), by_whom(runs)
    records = records_of(runs, "under both configurations")
    settings = [{"setting": s.name, "was": s.was, "becomes": s.becomes} for s in change.settings]
    provenance = base.provenance("check", {"conf": str(conf)} | runs.replication.settings())
    findings = (_headline(table, name), sentence(records[0]), who_gains(name, whom), *runs.of_whom(), *_broken(table))
    tables = {"rules": table, "changes": pl.DataFrame(settings), **{f"by {kind}": t for kind, t in whom.items()}}
    tables |= runs.without_model_error()
    notes = (runs.replication.note(), *notes_of(scenarios.values()), *change.notes)
    figures = {"timeline": _timeline(runs, name)}
    return Check(provenance, findings, runs.summary(), tables, figures, notes, runs.coverage, records, held)


SCHEMA = {
    "rule": pl.String, "who": pl.String, "jobs": pl.Int64, "before": pl.Float64, "after": pl.Float64,
    "worse by": pl.Float64, "low": pl.Float64, "high": pl.Float64, "allowed": pl.Float64, "unit": pl.String,
    "verdict": pl.String, "fails": pl.Boolean,
}  # fmt: skip


def _rows(rule: Rule, runs: Runs, name: str) -> list[dict[str, Any]]:
    results = runs.replication.results
    if rule.metric == ALLOCATION:
        place = OF_THE_RUN.index("GPU allocation, %")
        before, after = (np.array([r[run]["run"][place] for r in results]) for run in (AS_IS, name))
        return [_row(rule, runs, EVERYONE, len(runs.jobs), (before, after), -1.0, "%")]
    if rule.metric == UNSCHEDULABLE:  # those that complete today, and no more
        lost = np.array([len(np.setdiff1d(r[AS_IS]["job"], r[name]["job"])) for r in results], dtype=np.float64)
        return [_row(rule, runs, EVERYONE, len(runs.jobs), (np.zeros(len(lost)), lost), 1.0, "jobs")]
    masks = [
        {EVERYONE: np.ones(len(frame), dtype=bool)} if rule.of == EVERYONE else classes_of(rule.of, runs.base, frame)
        for frame in runs.frames
    ]
    return [
        _row(rule, runs, who, int(mask.sum()), _values(rule.metric, runs, name, [m.get(who) for m in masks]), 1.0, "s")
        for who, mask in masks[0].items() if mask.sum() >= rule.least_jobs
    ]  # fmt: skip


def _values(metric: str, runs: Runs, name: str, masks: Sequence[Any]) -> tuple[Floats, Floats]:
    """Return a statistic of the waits of a class before and after, one number a replica."""
    level = QUANTILES[metric]

    def of(waits: Floats) -> float:
        if not len(waits):
            return math.nan
        return float(waits.mean() if level is None else np.quantile(waits, level))

    pairs = [(s, m) for s, m in zip(runs.samples, masks, strict=True) if m is not None]
    before, after = (np.array([of(s.values[run]["wait"][m]) for s, m in pairs]) for run in (AS_IS, name))
    return before, after


def _row(
    rule: Rule, runs: Runs, who: str, jobs: int, values: tuple[Floats, Floats], sign: float, unit: str
) -> dict[str, Any]:
    before, after = values
    level = float(np.nanmean(before))
    worse, low, high = runs.statistic(sign * (after - before)).interval()
    allowed = rule.limit * abs(level) if rule.relative else rule.limit
    if runs.replication.count == 1:  # what it says
        low = high = worse
    verdict = BREAKS if low > allowed else HOLDS if high <= allowed else UNDECIDED
    fails = verdict == BREAKS or (verdict == UNDECIDED and rule.undecided == "fail")
    numbers = {"before": level, "after": float(np.nanmean(after)), "worse by": worse, "low": low, "high": high}
    shown = {"rule": rule.title, "who": who, "jobs": jobs, **numbers, "allowed": allowed, "unit": unit}
    return shown | {"verdict": verdict, "fails": fails}


# -- in words ----------------------------------------------------------------------------------------------------------


def _headline(table: pl.DataFrame, name: str) -> str:
    rules, broken = table["rule"].n_unique(), table.filter("fails")["rule"].n_unique()
    undecided = table.filter(pl.col("verdict") == UNDECIDED)["rule"].n_unique()
    end = f"; {undecided} not decided for somebody" if undecided else ""
    return f"{name}: {'passes' if not broken else 'fails'}, {rules - broken} of {rules} rules hold{end}."


def _broken(table: pl.DataFrame) -> list[str]:
    return [
        f"Broken: {row['rule']}. {row['who']}: {_shown(row, 'before')} before, {_shown(row, 'after')} after."
        for row in table.filter("fails").sort("worse by", descending=True).head(5).iter_rows(named=True)
    ]


def _shown(row: Mapping[str, Any], column: str) -> str:
    value, unit = float(row[column]), row["unit"]
    return duration(value) if unit == "s" else f"{value:.3g} {unit}"


def _change(row: Mapping[str, Any]) -> str:
    by = row["after"] - row["before"]
    return f"{'+' if by > 0 else ''}{duration(by) if row['unit'] == 's' else f'{by:.3g}'}"


def _escaped(text: str) -> str:
    return plain(text).replace("|", "\\|").replace("<", "&lt;")


def _quoted(text: str) -> str:
    return quoteattr(plain(text))


def _timeline(runs: Runs, name: str) -> Figure:
    """Return how many jobs wait over time under both configurations, in the first replica."""
    frame, sample = runs.frames[0], runs.samples[0]
    submit = frame["submit"].to_numpy()
    ends = {run: np.sort(submit + sample.values[run]["wait"]) for run in (AS_IS, name)}
    at = np.linspace(float(submit.min()), max(float(end[-1]) for end in ends.values()), GRID)
    came = np.searchsorted(np.sort(submit), at, side="right")
    parts = [
        pl.DataFrame({"x": at / 3600, "y": came - np.searchsorted(end, at, side="right")}).with_columns(
            series=pl.lit(run)
        )
        for run, end in ends.items()
    ]
    most = {run: max(part["y"].to_list()) for run, part in zip(ends, parts, strict=True)}
    alt = "; ".join(f"{run}: at most {count} wait" for run, count in most.items())
    return Figure("Jobs that wait", "line", pl.concat(parts), "time, h", "jobs that wait", alt)
