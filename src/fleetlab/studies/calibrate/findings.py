"""What a log can and cannot tell, and what a calibration says of it in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Estimate
from fleetlab.core.durations import duration, plural
from fleetlab.core.result import amount
from fleetlab.stats import POSITIVE, BlockBootstrap
from fleetlab.studies.calibrate.choice import CONFIGURED, Choice
from fleetlab.studies.calibrate.hidden import ENOUGH_OF_A_CLASS, LONG
from fleetlab.studies.calibrate.policies import CLOSE, EXACT, name_of
from fleetlab.studies.calibrate.recorded import AFTER, BEFORE, WHOLE, RecordedJobs, WaitErrors
from fleetlab.studies.calibrate.search import FITTED, FitResult
from fleetlab.studies.sentences import percent

# -- what a log can tell -----------------------------------------------------------------------------------------------

YES, NO, PARTLY = "yes", "no", "partly"
FEW_WAITS = 30  # jobs that waited, below which nothing is said of who was taken
LATENCY, POLICY, NODES, QUOTA, LOAD = (
    "start-up latency", "queue order and backfill", "nodes that nobody may use", "quotas of users",
    "load that the log does not show",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Evidence:
    """What there is to go by."""

    starts: int  # jobs with a recorded start
    compared: int  # jobs with a recorded start and a run time
    waited: int  # of them, for more than a minute
    longest: float  # seconds
    demanded: float  # the most GPUs running or waited for at once
    used: float  # the most GPUs in use at once
    gpus: int | None  # of the cluster
    users: int
    simulated: int = 0  # jobs that wait for more than a minute in a simulation of the scenario as given

    @classmethod
    def of(cls, log: RecordedJobs, cluster: Cluster | None) -> Evidence:
        """Count what a log has."""
        waits = log.wait[log.compared]
        return cls(
            int((log.wait >= 0).sum()), len(waits), int((waits > LONG).sum()), float(waits.max(initial=0.0)),
            log.demanded(log.everyone).peak / WHOLE, log.use.peak / WHOLE, cluster.gpus if cluster else None,
            len([name for name in log.users if name]),
        )  # fmt: skip

    def obstacle(self) -> str | None:
        """Return why nothing can be compared, if so."""
        if not self.starts:
            return "the log has no start times"
        if not self.compared:
            return "the log has no job with both a start and a run time"
        if not self.longest:
            return "every recorded start is the submission: the log has no waits"
        if self.gpus is None:
            return "the log has no cluster, and without one nothing can be simulated"
        return None

    def has_spare_gpus(self) -> bool:
        """Whether there are always enough GPUs."""
        return self.gpus is not None and self.demanded <= self.gpus / 2

    def idle(self) -> str | None:
        """Return why no job had to wait for GPUs, if so."""
        if self.has_spare_gpus():
            return f"at most {self.demanded:,.0f} of {self.gpus:,} GPUs are ever wanted at once: no job has to wait"
        if max(self.waited, self.simulated) < FEW_WAITS:
            return (
                f"{self.waited:,} jobs waited for more than {duration(LONG)}: too few to see whom the scheduler takes"
            )
        return None


def identifiable(evidence: Evidence, fit: FitResult | None) -> pl.DataFrame:
    """Return for each question whether this log answers it, and why."""
    obstacle = evidence.obstacle()
    if fit is None:
        rows = [(question, NO, obstacle or "") for question in (LATENCY, POLICY, NODES, QUOTA, LOAD)]
    else:
        rows = [
            _latency_answer(fit),
            _policy_answer(evidence, fit),
            _nodes_answer(evidence, fit),
            _quota_answer(evidence, fit),
        ]
        rows.append(_load_answer(evidence, fit))
    return pl.DataFrame(rows, schema=["question", "can this log tell", "because"], orient="row")


def _latency_answer(fit: FitResult) -> tuple[str, str, str]:
    if fit.free < ENOUGH_OF_A_CLASS:
        return LATENCY, NO, f"{fit.free:,} jobs had nothing in their way when they were submitted: too few"
    return LATENCY, YES, f"{fit.free:,} jobs had nothing in their way when they were submitted"


def _policy_answer(evidence: Evidence, fit: FitResult) -> tuple[str, str, str]:
    identified = fit.identification
    if identified is None:
        return POLICY, YES, "the configuration of the site has its rules"
    if why := evidence.idle():
        return POLICY, NO, why
    same, policies = len(identified.same()), len(identified.scores)
    if same == policies:
        return POLICY, NO, f"all {policies} policies start every job at the same time"
    if not identified.fit.blocks.enough and identified.best.error >= EXACT:
        jobs = int(identified.fit.compared.sum())
        return POLICY, PARTLY, f"{jobs:,} jobs are too few for intervals; the best of {policies} policies is not exact"
    close = len(identified.names(CLOSE))
    if same + close > 1:
        what = f"{identified.contested:,} starts at which another job could have been taken"
        return POLICY, PARTLY, f"{same + close} of {policies} policies explain it equally well; {what}"
    return POLICY, YES, f"one of {policies} policies explains it better than all others"


def _nodes_answer(evidence: Evidence, fit: FitResult) -> tuple[str, str, str]:
    assert evidence.gpus is not None
    if why := evidence.idle():
        return NODES, NO, why
    peak = f"at most {evidence.used:,.0f} of {evidence.gpus:,} GPUs are in use at once"
    if not any(fit.pools.spare.values()):
        return NODES, YES, f"{peak}: none can be hidden"
    if fit.identification is None:
        return NODES, NO, f"{peak}, and nodes are as configured"
    return NODES, YES, f"{peak}, and {evidence.waited:,} jobs waited for more than {duration(LONG)}"


def _quota_answer(evidence: Evidence, fit: FitResult) -> tuple[str, str, str]:
    if evidence.users < 2:
        return QUOTA, NO, "the log does not tell users apart"
    if why := evidence.idle():
        return QUOTA, NO, why
    waiting = fit.limits.height
    if not waiting:
        first = plural(fit.jobs, "job")
        return QUOTA, NO, f"none of the first {first} waited for more than {duration(LONG)} beyond its start-up latency"
    return QUOTA, YES, f"jobs of {waiting:,} users waited: what each never exceeds is a limit or a coincidence"


def _load_answer(evidence: Evidence, fit: FitResult) -> tuple[str, str, str]:
    if why := evidence.idle():
        return LOAD, NO, why
    if fit.identification is None:
        return LOAD, NO, "it is looked for under simple policies only"
    if fit.load is None:
        return LOAD, NO, "no job of at most one GPU of any type waited: others may wait for GPUs on one node"
    unused = f"while jobs of one GPU waited, {percent(fit.load.recorded.value)} of the GPUs were not in recorded use"
    return LOAD, PARTLY, f"{unused}, {percent(fit.load.simulated)} in simulation"


# -- sentences ---------------------------------------------------------------------------------------------------------

HIDDEN = 0.02  # of the GPUs
NEAR = 0.1  # of the recorded mean wait: closer is close enough
LISTED = 4  # policies named in a sentence


def first_line(log: RecordedJobs, compared: NDArray[np.bool_]) -> str:
    """Return which jobs are compared, and which are not."""
    jobs, hours = len(log), log.gpu_hours.sum()
    share = f", {percent(log.gpu_hours[compared].sum() / hours)} of the GPU-hours" if hours else ""
    unknown, no_start = int((~log.has_runtime).sum()), int((np.isnan(log.start) & ~log.initial).sum())
    early = int((log.wait < 0).sum())
    left_out = [f"{unknown:,} without a run time"] if unknown else []
    left_out += [f"{no_start:,} without a start"] if no_start else []
    left_out += [f"{log.initial.sum():,} there when the log begins"] if log.initial.any() else []
    left_out += [f"{early:,} that start before their submission"] if early else []
    why = f" ({', '.join(left_out)})" if left_out else ""
    return f"{compared.sum():,} of {plural(jobs, 'job')} are compared{share}{why}."


def statement(why: str, log: RecordedJobs) -> tuple[str, ...]:
    """Return that a log has nothing to calibrate by, and what it recorded all the same."""
    sentence = f"This log cannot calibrate a simulation: {why}."
    waits = log.wait[log.compared]
    if not waits.any():
        return (sentence,)
    median, p90, p99 = (duration(float(x)) for x in np.quantile(waits, (0.5, 0.9, 0.99)))
    mean = amount(
        Estimate("", *BlockBootstrap.of_times(log.submit[log.compared]).mean(waits, POSITIVE).interval(), "s")
    )
    recorded = f"Recorded: mean wait {mean}, median {median}, P90 {p90}, P99 {p99}"
    return sentence, f"{recorded}; {log.use.peak / WHOLE:,.0f} GPUs are in use at once at the most."


def findings(
    log: RecordedJobs, evidence: Evidence, fit: FitResult, choice: Choice, judged: WaitErrors, questions: pl.DataFrame
) -> tuple[str, ...]:
    """Return the sentences, the most important first."""
    answers = dict(questions.select("question", "can this log tell").iter_rows())
    return (
        first_line(log, log.compared),
        _gap(judged),
        _used(choice, fit),
        _policy(fit, answerable=answers[POLICY] != NO) if fit.identification else _settings(fit, choice),
        _latency(fit),
        *_nodes(fit),
        *_quota(fit),
        *_load(fit),
        *_unexplained(judged),
        _can(questions),
        *_cannot(questions),
    )


def _gap(judged: WaitErrors) -> str:
    """Return the recorded and the simulated mean wait of the held-out jobs, before and after."""
    recorded = judged.means()["recorded"].value
    parts = []
    for side, name in ((BEFORE, CONFIGURED), (AFTER, "calibrated")):
        error, mean = judged.error(side), float(judged.waits[side].mean())
        off = amount(Estimate("", *error, "s"), recorded or mean)
        off += ", too few jobs for a 95 % CI" if math.isnan(error.low) else ""
        relative = f", {100 * error.value / recorded:+.0f} %".replace("-", "−") if recorded else ""
        parts.append(f"{duration(mean)} {name} (error {off}{relative})")
    jobs = plural(len(judged.rows), "held-out job")
    return f"Mean wait of the {jobs}: recorded {duration(recorded)}; simulated {parts[0]} and {parts[1]}."


def _used(choice: Choice, fit: FitResult) -> str:
    """Return which candidate is used, and by which jobs that was chosen."""
    jobs = plural(choice.table["jobs"][0], "job")
    if not fit.candidates:
        return "Nothing explains the recorded starts better than the scenario as configured: it stays."
    if choice.name == CONFIGURED:
        return f"On the {jobs} that choose, nothing fitted is closer than the scenario as configured: it stays."
    return f"On the {jobs} that choose, the scenario with the {choice.name} is closest, and is used."


def _settings(fit: FitResult, choice: Choice) -> str:
    """Return which settings of the site's scheduler were fitted."""
    site = choice.scenario.scheduler
    assert site is not None
    changes = [f"{one.name} = {one.becomes}" for one in fit.settings]
    fitted = f"with {', '.join(changes)} it explains the first {plural(fit.jobs, 'job')} best"
    if changes and choice.name != FITTED:
        fitted += ", but not those that choose"
    return f"{site.title} is simulated with its own rules; {fitted if changes else 'no other setting explains more'}."


def _policy(fit: FitResult, *, answerable: bool) -> str:
    identified = fit.identification
    assert identified is not None
    best, own = name_of(identified.best.words), identified.best
    if not answerable:
        return f"This log does not show the policy: {best} stays."
    chosen = name_of(identified.chosen.words)
    same = [name_of(s.words) for s in identified.same()[1:]]
    close = identified.names(CLOSE)
    others = [s for s in identified.scores if name_of(s.words) not in (best, *same, *close)]
    text = f"{best} explains the recorded starts best (log-likelihood {own.total:,.0f}"
    text += f"; next {name_of(others[0].words)}, {others[0].total:,.0f})" if others else ")"
    if same:
        text += f"; every job starts at the same time under {_listed(same)}"
    if close:
        text += f"; not significantly worse: {_listed(close)}"
    return f"{text}." if chosen == best else f"{text}; {chosen}, the policy as given, is as likely and is kept."


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


def _latency(fit: FitResult) -> str:
    if not fit.law:
        return (
            "No start-up latency is seen: jobs that had nothing in their way started at once."
            if fit.free
            else ("A start-up latency cannot be fitted: hardly any job had nothing in its way.")
        )
    rows = fit.latency.rows(named=True)
    parts = [f"{duration(row['median wait'])}{'' if len(rows) == 1 else ' for ' + row['class']}" for row in rows]
    source = f"from {plural(fit.free, 'job')} with nothing in their way"
    if len(rows) == 1:
        source = f"P10 to P90 {duration(rows[0]['P10 wait'])} to {duration(rows[0]['P90 wait'])}, {source}"
    return f"The median start-up latency is {', '.join(parts)} ({source})."


def _nodes(fit: FitResult) -> list[str]:
    names = {t: n for t, n in fit.nodes.items() if n}
    if not names:
        return []
    rows = {row["gpu_type"]: row for row in fit.pools.table.iter_rows(named=True)}
    parts = [f"{n:,} of {plural(rows[t]['nodes'], t + ' node')}" for t, n in names.items()]
    return [f"Starts are explained best if nobody may use {', '.join(parts)}: they are left out."]


def _quota(fit: FitResult) -> list[str]:
    quota = fit.candidates[FITTED].policy.quota if FITTED in fit.candidates else None
    if quota is None:
        return []
    if isinstance(quota, float | int):
        return [f"Starts are explained best by a quota of {quota:,.3g} GPUs for each user."]
    parts = [f"{user} {gpus:,.3g}" for user, gpus in list(quota.items())[:LISTED]]
    return [f"Starts are explained best by quotas of {len(quota):,} users, in GPUs: {', '.join(parts)}."]


def _load(fit: FitResult) -> list[str]:
    if fit.load is None or fit.load.more.value < HIDDEN or fit.load.more.low <= 0:
        return []
    recorded, simulated, more = fit.load
    share = amount(Estimate("", *more.scaled(100), "%"))
    return [
        f"While jobs of at most one GPU waited, {percent(recorded.value)} of the GPUs were not in recorded use, and "
        f"{percent(simulated)} in the calibrated simulation: load that the log does not show holds {share} of them."
    ]


def _unexplained(judged: WaitErrors) -> list[str]:
    """Return what calibration does not explain, where that is much."""
    recorded, error = judged.means()["recorded"].value, judged.error(AFTER)
    if abs(error.value) <= NEAR * recorded or (error.low <= 0 <= error.high):
        return []
    missing = "what is missing may be dependencies, partitions, reservations, or load that the log does not show"
    return [f"The calibrated simulation is still {percent(abs(error.value) / recorded)} off: {missing}."]


def _can(questions: pl.DataFrame) -> str:
    by_answer = {
        answer: questions.filter(pl.col("can this log tell") == answer)["question"].to_list()
        for answer in (YES, PARTLY)
    }
    parts = [f"This log can tell: {', '.join(by_answer[YES])}"] if by_answer[YES] else []
    parts += [f"{'o' if parts else 'O'}nly partly: {', '.join(by_answer[PARTLY])}"] if by_answer[PARTLY] else []
    return f"{'; '.join(parts)}." if parts else "This log can answer none of these questions."


def _cannot(questions: pl.DataFrame) -> list[str]:
    no = questions.filter(pl.col("can this log tell") == NO)
    reasons = no.group_by("because", maintain_order=True).agg("question").iter_rows()
    parts = [f"{', '.join(names)} ({why})" for why, names in reasons]
    return [f"It cannot tell: {'; '.join(parts)}."] if parts else []
