"""What a log can and cannot tell, and why."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from fleetlab.core import Cluster
from fleetlab.core.durations import duration
from fleetlab.studies.calibrate.hidden import LONG
from fleetlab.studies.calibrate.latency import ENOUGH
from fleetlab.studies.calibrate.policies import CLOSE, EXACT
from fleetlab.studies.calibrate.recorded import WHOLE, Recorded
from fleetlab.studies.calibrate.search import Fitted
from fleetlab.studies.sentences import percent

YES, NO, PARTLY = "yes", "no", "partly"
FEW = 30  # jobs that waited, below which nothing is said of who was taken
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
    wanted: float  # the most GPUs running or waited for at once
    used: float  # the most GPUs in use at once
    gpus: int | None  # of the cluster
    users: int
    simulated: int = 0  # jobs that wait for more than a minute in a simulation of the scenario as given

    @classmethod
    def of(cls, log: Recorded, cluster: Cluster | None) -> Evidence:
        """Count what a log has."""
        waits = log.wait[log.known]
        return cls(
            int((log.wait >= 0).sum()), len(waits), int((waits > LONG).sum()), float(waits.max(initial=0.0)),
            log.wanted(log.everyone).peak / WHOLE, log.use.peak / WHOLE, cluster.gpus if cluster else None,
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

    def roomy(self) -> bool:
        """Whether there are always enough GPUs."""
        return self.gpus is not None and self.wanted <= self.gpus / 2

    def idle(self) -> str | None:
        """Return why no job had to wait for GPUs, if so."""
        if self.roomy():
            return f"at most {self.wanted:,.0f} of {self.gpus:,} GPUs are ever wanted at once: no job has to wait"
        if max(self.waited, self.simulated) < FEW:
            return (
                f"{self.waited:,} jobs waited for more than {duration(LONG)}: too few to see whom the scheduler takes"
            )
        return None


def identifiable(evidence: Evidence, fitted: Fitted | None) -> pl.DataFrame:
    """Return for each question whether this log answers it, and why."""
    obstacle = evidence.obstacle()
    if fitted is None:
        rows = [(question, NO, obstacle or "") for question in (LATENCY, POLICY, NODES, QUOTA, LOAD)]
    else:
        rows = [_latency(fitted), _policy(evidence, fitted), _nodes(evidence, fitted), _quota(evidence, fitted)]
        rows.append(_load(evidence, fitted))
    return pl.DataFrame(rows, schema=["question", "can this log tell", "because"], orient="row")


def _latency(fitted: Fitted) -> tuple[str, str, str]:
    if fitted.free < ENOUGH:
        return LATENCY, NO, f"{fitted.free:,} jobs had nothing in their way when they were submitted: too few"
    return LATENCY, YES, f"{fitted.free:,} jobs had nothing in their way when they were submitted"


def _policy(evidence: Evidence, fitted: Fitted) -> tuple[str, str, str]:
    identified = fitted.identification
    same, tried = len(identified.same()), len(identified.scores)
    if why := evidence.idle():
        return POLICY, NO, why
    if same == tried:
        return POLICY, NO, f"all {tried} policies start every job at the same time"
    if not identified.fit.blocks.enough and identified.best.error >= EXACT:
        jobs = int(identified.fit.compared.sum())
        return POLICY, PARTLY, f"{jobs:,} jobs are too few for intervals; the best of {tried} policies is not exact"
    close = len(identified.names(CLOSE))
    if same + close > 1:
        what = f"{identified.contested:,} starts at which another job could have been taken"
        return POLICY, PARTLY, f"{same + close} of {tried} policies explain it equally well; {what}"
    return POLICY, YES, f"one of {tried} policies explains it better than all others"


def _nodes(evidence: Evidence, fitted: Fitted) -> tuple[str, str, str]:
    assert evidence.gpus is not None
    if why := evidence.idle():
        return NODES, NO, why
    peak = f"at most {evidence.used:,.0f} of {evidence.gpus:,} GPUs are in use at once"
    if not any(fitted.pools.spare.values()):
        return NODES, YES, f"{peak}: none can be hidden"
    return NODES, YES, f"{peak}, and {evidence.waited:,} jobs waited for more than {duration(LONG)}"


def _quota(evidence: Evidence, fitted: Fitted) -> tuple[str, str, str]:
    if evidence.users < 2:
        return QUOTA, NO, "the log does not tell users apart"
    if why := evidence.idle():
        return QUOTA, NO, why
    waiting = fitted.limits.height
    if not waiting:
        return QUOTA, NO, "no user's jobs waited"
    return QUOTA, YES, f"jobs of {waiting:,} users waited: what each never exceeds is a limit or a coincidence"


def _load(evidence: Evidence, fitted: Fitted) -> tuple[str, str, str]:
    if why := evidence.idle():
        return LOAD, NO, why
    if fitted.load is None:
        return LOAD, NO, "no job of at most one GPU of any type waited: others may wait for GPUs on one node"
    unused = f"while jobs of one GPU waited, {percent(fitted.load.recorded.value)} of the GPUs were not in recorded use"
    return LOAD, PARTLY, f"{unused}, {percent(fitted.load.simulated)} in simulation"
