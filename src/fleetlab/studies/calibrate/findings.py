"""What a calibration found, in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Estimate
from fleetlab.core.durations import duration, plural
from fleetlab.core.result import amount
from fleetlab.stats import POSITIVE, BlockBootstrap
from fleetlab.studies.calibrate.gaps import AFTER, BEFORE, Gaps
from fleetlab.studies.calibrate.identifiable import NO, PARTLY, POLICY, YES, Evidence
from fleetlab.studies.calibrate.policies import CLOSE, name_of
from fleetlab.studies.calibrate.recorded import WHOLE, Recorded
from fleetlab.studies.calibrate.search import Fitted
from fleetlab.studies.sentences import percent

HIDDEN = 0.02  # of the GPUs
NEAR = 0.1  # of the recorded mean wait: closer is close enough
LISTED = 4  # policies named in a sentence


def first_line(log: Recorded, compared: NDArray[np.bool_]) -> str:
    """Return which jobs are compared, and which are not."""
    jobs, hours = len(log), log.gpu_hours.sum()
    share = f", {percent(log.gpu_hours[compared].sum() / hours)} of the GPU-hours" if hours else ""
    unknown, no_start = int((~log.told).sum()), int((np.isnan(log.start) & ~log.initial).sum())
    early = int((log.wait < 0).sum())
    left = [f"{unknown:,} without a run time"] if unknown else []
    left += [f"{no_start:,} without a start"] if no_start else []
    left += [f"{log.initial.sum():,} there when the log begins"] if log.initial.any() else []
    left += [f"{early:,} that start before their submission"] if early else []
    why = f" ({', '.join(left)})" if left else ""
    return f"{compared.sum():,} of {plural(jobs, 'job')} are compared{share}{why}."


def statement(why: str, log: Recorded) -> tuple[str, ...]:
    """Return that a log has nothing to calibrate by, and what it recorded all the same."""
    sentence = f"This log cannot calibrate a simulation: {why}."
    waits = log.wait[log.known]
    if not waits.any():
        return (sentence,)
    median, p90, p99 = (duration(float(x)) for x in np.quantile(waits, (0.5, 0.9, 0.99)))
    mean = amount(Estimate("", *BlockBootstrap.of_times(log.submit[log.known]).mean(waits, POSITIVE).interval(), "s"))
    recorded = f"Recorded: mean wait {mean}, median {median}, P90 {p90}, P99 {p99}"
    return sentence, f"{recorded}; {log.use.peak / WHOLE:,.0f} GPUs are in use at once at the most."


def findings(
    log: Recorded, evidence: Evidence, fitted: Fitted, judged: Gaps, questions: pl.DataFrame
) -> tuple[str, ...]:
    """Return the sentences, the most important first."""
    answers = dict(questions.select("question", "can this log tell").iter_rows())
    return (
        first_line(log, log.known),
        _gap(judged),
        _policy(fitted, told=answers[POLICY] != NO),
        _latency(fitted),
        *_nodes(fitted),
        *_quota(fitted),
        *_load(fitted),
        *_left(judged),
        _can(questions),
        *_cannot(questions),
    )


def _gap(judged: Gaps) -> str:
    """Return the recorded and the simulated mean wait of the held-out jobs, before and after."""
    recorded = judged.means()["recorded"].value
    parts = []
    for side, name in ((BEFORE, "as given"), (AFTER, "calibrated")):
        error, mean = judged.error(side), float(judged.waits[side].mean())
        off = amount(Estimate("", *error, "s"), recorded or mean)
        off += ", too few jobs for a 95 % CI" if math.isnan(error.low) else ""
        relative = f", {100 * error.value / recorded:+.0f} %".replace("-", "−") if recorded else ""
        parts.append(f"{duration(mean)} {name} (error {off}{relative})")
    jobs = plural(len(judged.rows), "held-out job")
    return f"Mean wait of the {jobs}: recorded {duration(recorded)}; simulated {parts[0]} and {parts[1]}."


def _policy(fitted: Fitted, *, told: bool) -> str:
    identified = fitted.identification
    best, own = name_of(identified.best.words), identified.best
    if not told:
        return f"The policy cannot be told from this log: {best} is kept."
    kept = name_of(identified.chosen.words)
    same = [name_of(s.words) for s in identified.same()[1:]]
    close = identified.names(CLOSE)
    others = [s for s in identified.scores if name_of(s.words) not in (best, *same, *close)]
    text = f"{best} explains the recorded starts best (log-likelihood {own.total:,.0f}"
    text += f"; next {name_of(others[0].words)}, {others[0].total:,.0f})" if others else ")"
    if same:
        text += f"; every job starts at the same time under {_listed(same)}"
    if close:
        text += f"; not significantly worse: {_listed(close)}"
    return f"{text}." if kept == best else f"{text}; {kept}, the policy as given, is as likely and is kept."


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


def _latency(fitted: Fitted) -> str:
    if not fitted.law:
        return (
            "No start-up latency is seen: jobs that had nothing in their way started at once."
            if fitted.free
            else ("A start-up latency cannot be fitted: hardly any job had nothing in its way.")
        )
    rows = fitted.latency.rows(named=True)
    parts = [f"{duration(row['median wait'])}{'' if len(rows) == 1 else ' for ' + row['class']}" for row in rows]
    source = f"from {plural(fitted.free, 'job')} with nothing in their way"
    if len(rows) == 1:
        source = f"P10 to P90 {duration(rows[0]['P10 wait'])} to {duration(rows[0]['P90 wait'])}, {source}"
    return f"The median start-up latency is {', '.join(parts)} ({source})."


def _nodes(fitted: Fitted) -> list[str]:
    names = {t: n for t, n in fitted.nodes.items() if n}
    if not names:
        return []
    rows = {row["gpu_type"]: row for row in fitted.pools.table.iter_rows(named=True)}
    parts = [f"{n:,} of {plural(rows[t]['nodes'], t + ' node')}" for t, n in names.items()]
    return [f"Starts are explained best if nobody may use {', '.join(parts)}: they are left out."]


def _quota(fitted: Fitted) -> list[str]:
    if fitted.quota is None:
        return []
    if isinstance(fitted.quota, float | int):
        return [f"Starts are explained best by a quota of {fitted.quota:,.3g} GPUs for each user."]
    parts = [f"{user} {gpus:,.3g}" for user, gpus in list(fitted.quota.items())[:LISTED]]
    return [f"Starts are explained best by quotas of {len(fitted.quota):,} users, in GPUs: {', '.join(parts)}."]


def _load(fitted: Fitted) -> list[str]:
    if fitted.load is None or fitted.load.more.value < HIDDEN or fitted.load.more.low <= 0:
        return []
    recorded, simulated, more = fitted.load
    share = amount(Estimate("", *more.scaled(100), "%"))
    return [
        f"While jobs of at most one GPU waited, {percent(recorded.value)} of the GPUs were not in recorded use, and "
        f"{percent(simulated)} in the calibrated simulation: load that the log does not show holds {share} of them."
    ]


def _left(judged: Gaps) -> list[str]:
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
