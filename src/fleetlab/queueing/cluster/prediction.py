"""Pools and classes of jobs in a cluster, and what queueing theory predicts of their waits.

A job of n servers for X seconds brings work nX. Work and variability decide the wait at high load, whatever the sizes
(Grosof, Harchol-Balter and Scheller-Wolf 2022 for orders that keep servers filled), so the pool is taken for m servers
that each have the n of the usual server second, with jobs of the same work. Whitt's GI/G/m gives their wait. Over a
day it is evaluated at the modified offered load of each hour. The probability of waiting of a class, relative to the
pool, is proportional to its blocking probability by Kaufman and Roberts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Workload
from fleetlab.core.job_classes import FRACTION, NO_GPU, ONE, SEVERAL
from fleetlab.queueing.distributions import Floats
from fleetlab.queueing.formulas.mg1 import whitt_factor
from fleetlab.queueing.formulas.mmc import carried, erlang_c, occupancy
from fleetlab.stats import BLOCKS, POSITIVE, BlockBootstrap, Interval, Replicates

HOUR, DAY = 3600.0, 86_400.0
WINDOWS = (60.0, 600.0, HOUR, 6 * HOUR, DAY)
FEWEST = 20  # windows, to tell how counts vary
RESAMPLES = 199  # of blocks of time: the model is solved for each
LEAST = 2 * DAY  # of a log, to tell a daily pattern


class Dispersion(NamedTuple):
    """Variance of counts by their mean, in windows of so many seconds; 1 for Poisson's law."""

    window: float
    value: float
    low: float
    high: float
    around: Floats  # the same about the daily pattern: replicates, first of the whole log


def blocks_of(times: Floats, span: float) -> BlockBootstrap:
    """Return the blocks of time; every pool has the same, so that their replicates can be added up."""
    return BlockBootstrap.of_times(times, span, resamples=RESAMPLES, least=0)


def interval(replicates: Floats) -> Interval:
    """Return the 95 % interval of a number, from its replicates over blocks of time."""
    return Replicates(replicates, BLOCKS).interval(POSITIVE)


def pattern(submit: Floats, span: float, begins: float) -> Floats | None:
    """Jobs a second by hour of the day; none where the log is too short to tell."""
    if span < LEAST or not len(submit):
        return None
    counts = np.bincount(np.asarray(((submit + begins) // HOUR).astype(np.int64) % 24), minlength=24).astype(np.float64)
    return np.asarray(counts / _seconds(span, begins))


def midnight(workload: Workload) -> float:
    """Seconds of the day at which the log begins, by the clock of its people, where it tells."""
    if workload.epoch is None:
        return 0.0
    # Clocks that are changed in summer are taken as they were at the beginning.
    at = datetime.fromtimestamp(workload.epoch, ZoneInfo(workload.zone or "UTC"))
    return at.hour * HOUR + at.minute * 60.0 + at.second


def dispersions(submit: Floats, span: float, begins: float) -> list[Dispersion]:
    """Over windows from a minute to a day, as far as the log has twenty of them."""
    rows = []
    for window in WINDOWS:
        n = int(span // window)
        if n < FEWEST or not len(submit):
            continue
        counts = np.bincount((submit // window).astype(np.int64), minlength=n)[:n].astype(np.float64)
        blocks = blocks_of(np.arange(0.5, n, dtype=np.float64), n)

        def summed(values: Floats, blocks: BlockBootstrap = blocks) -> Floats:
            return blocks.totals(blocks.sums(values))

        many, first = summed(np.ones(n)), summed(counts)
        expected = _expected(submit, span, begins, window, n)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = summed(counts**2) / first - first / many
            about = ratio if expected is None else summed((counts - expected) ** 2) / summed(expected)
        if expected is not None:
            about = about / (1 - DAY / span)  # the pattern was learnt from the same days, and is too near to them
        rows.append(Dispersion(window, *interval(ratio), about))
    return rows


def _expected(submit: Floats, span: float, begins: float, window: float, n: int) -> Floats | None:
    """How many jobs the daily pattern lets one expect in each window; none where there is no pattern."""
    rates = pattern(submit, span, begins)
    if rates is None:
        return None
    edges = np.arange(math.ceil((span + begins) / HOUR) + 2) * HOUR - begins
    upto = np.concatenate([[0.0], np.cumsum(np.tile(rates, len(edges) // 24 + 1)[: len(edges) - 1] * HOUR)])
    return np.asarray(np.diff(np.interp(np.arange(n + 1) * window, edges, upto)))


def gaps_scv(submit: Floats) -> float:
    """The SCV of the gaps between arrivals; nan where there are too few."""
    gaps = np.diff(submit)
    return float(gaps.var() / gaps.mean() ** 2) if len(gaps) > 1 and gaps.any() else math.nan


def _seconds(span: float, begins: float) -> Floats:
    """How many seconds of each hour of the day the log has."""
    edges = np.clip(np.arange(math.ceil((span + begins) / HOUR) + 1) * HOUR, begins, begins + span)
    return np.asarray(np.bincount(np.arange(len(edges) - 1) % 24, np.diff(edges), minlength=24), dtype=np.float64)


CLASSES = (FRACTION, ONE, SEVERAL, "gang", NO_GPU)
WHOLE = 1000  # milli of one


class GpuPool(NamedTuple):
    """The nodes of one GPU type, or all nodes for what they have of CPUs."""

    name: str
    servers: float  # GPUs, or CPU cores
    most: tuple[int, int, int]  # GPU milli, CPU milli and memory of its largest nodes
    cores: float


class PoolJobs(NamedTuple):
    """The jobs of one pool, in order of arrival; one number a job."""

    submit: Floats
    service: Floats
    need: Floats  # servers that it holds
    cores: Floats
    kind: NDArray[np.int64]  # its class
    bound: NDArray[np.bool_]  # may it run here only?

    @property
    def work(self) -> Floats:
        """Server seconds."""
        return self.need * self.service


def pools(cluster: Cluster) -> list[GpuPool]:
    """The GPU types of a cluster, the largest first, and last all its CPUs."""
    frame = cluster.frame.with_columns(pl.col("gpus").cast(pl.Int64))
    pools_by_type = [
        _pool(name, nodes, float(nodes["gpus"].sum()))
        for (name,), nodes in frame.filter(pl.col("gpus") > 0).partition_by("gpu_type", as_dict=True).items()
    ]
    pools_by_type.sort(key=lambda p: (-p.servers, p.name))
    return [*pools_by_type, _pool(NO_GPU, frame, float(frame["cpu_milli"].sum()) / WHOLE)]


def _pool(name: object, nodes: pl.DataFrame, servers: float) -> GpuPool:
    most = nodes.select(pl.col("gpus") * WHOLE, "cpu_milli", "memory_mib").max().row(0)
    return GpuPool(str(name), servers, most, float(nodes["cpu_milli"].sum()) / WHOLE)


def split(workload: Workload, among: list[GpuPool], seed: int) -> tuple[list[PoolJobs], tuple[str, ...], pl.DataFrame]:
    """Split jobs by pool; a job that may run in several is assigned to one at random, weighted by GPUs.

    The table has the jobs that fit no pool, with that reason.
    """
    jobs = workload.frame.filter(pl.col("runtime").is_not_null())
    requested = {name: jobs[name].cast(pl.Int64).to_numpy() for name in ("gpu_milli", "cpu_milli", "memory_mib")}
    many = jobs["instances"].cast(pl.Int64).to_numpy()
    none, need = requested["gpu_milli"] == 0, requested["gpu_milli"] * many / WHOLE
    cores = requested["cpu_milli"] * many / WHOLE
    names = jobs["gpu_types"].to_frame().unique(maintain_order=True).with_row_index("kind")
    lists = jobs.select("gpu_types").join(names, on="gpu_types", how="left", maintain_order="left")["kind"].to_numpy()
    may = np.zeros((len(many), len(among)), dtype=bool)
    for k, pool in enumerate(among):
        fits = np.logical_and.reduce([v <= most for v, most in zip(requested.values(), pool.most, strict=True)])
        if pool.name == NO_GPU:
            may[:, k] = none & fits & (cores <= pool.servers)
        else:
            named = np.array([not types or pool.name in types for types in names["gpu_types"].to_list()], dtype=bool)
            may[:, k] = ~none & fits & named[lists] & (need <= pool.servers)
    # One of the pools that each job may use, -1 where there is none
    upto = np.cumsum(may * np.array([p.servers for p in among]), axis=1)
    points = np.random.default_rng(seed).random(len(may)) * upto[:, -1]
    where = np.where(upto[:, -1] > 0, (upto <= points[:, None]).sum(axis=1), -1)
    kind, alone = _classes(requested["gpu_milli"], many), may.sum(axis=1) == 1
    columns = (jobs["submit"].to_numpy(), jobs["runtime"].to_numpy(), np.where(none, cores, need), cores, kind, alone)
    parts = [PoolJobs(*(column[where == k] for column in columns)) for k in range(len(among))]
    without_runtime = len(workload) - jobs.height
    nowhere = jobs.filter(pl.Series(where < 0)).select("job", reason=pl.lit("fits no pool of this cluster"))
    return parts, _notes(without_runtime, nowhere.height, int((may.sum(axis=1) > 1).sum())), nowhere


def _classes(milli: NDArray[np.int64], many: NDArray[np.int64]) -> NDArray[np.int64]:
    rules = [milli == 0, many > 1, milli < WHOLE, milli == WHOLE]
    return np.select(rules, [4, 3, 0, 1], 2).astype(np.int64)


def _notes(unknown: int, never: int, several: int) -> tuple[str, ...]:
    notes = {
        f"{unknown:,} jobs without a runtime in the log are left out": unknown,
        f"{never:,} jobs that fit no pool of this cluster are left out": never,
        f"{several:,} jobs may run on several GPU types: each is assigned to one at random, weighted by GPUs": several,
    }
    return tuple(note for note, count in notes.items() if count)


UNITS = 2000  # into which a pool is divided to see who does not fit
FINEST = 0.05  # servers
SHORTEST = 1e-3  # seconds that are a wait
RATIO = 1.1  # between needs that are told apart


class OfferedLoad(NamedTuple):
    """What the jobs of a pool ask for; first of the whole log, then of each draw of its blocks."""

    rate: Floats  # jobs a second
    time: Floats  # mean runtime
    load: Floats  # servers that would be busy if nobody waited
    scv: Floats  # of a job's work
    usual: Floats  # servers that the job behind a busy server holds


class Day(NamedTuple):
    """Loads over the day, as parts of the mean, and the share of arrivals that sees each."""

    load: Floats
    weight: Floats


class WaitDistribution(NamedTuple):
    """Chance to wait and mean wait: draws × hours; and how often each hour is seen."""

    chance: Floats
    mean: Floats
    weight: Floats


STEADY = Day(np.ones(1), np.ones(1))


def demand(part: PoolJobs, span: float) -> OfferedLoad:
    """Add up, block by block."""
    blocks = blocks_of(part.submit, span)

    def summed(values: Floats) -> Floats:
        return blocks.totals(blocks.sums(values))

    count, work = summed(np.ones(len(part.submit))), summed(part.work)
    with np.errstate(invalid="ignore", divide="ignore"):
        time = summed(part.service) / count
        scv = summed(part.work**2) * count / work**2 - 1
        usual = summed(part.need * part.work) / work
    return OfferedLoad(count / span, time, work / span, scv, usual)


def day(part: PoolJobs, rates: Floats | None) -> Day:
    """How the load would follow the arrivals over a day, if nobody waited."""
    if rates is None or not part.work.any():
        return STEADY
    need = part.need.mean()
    share = part.need / need

    def transform(omega: Floats) -> NDArray[np.complex128]:
        return np.array([np.mean(share * np.exp(-1j * w * part.service)) for w in omega])

    load = np.maximum(carried(rates * need, DAY, float(part.work.mean() / need), transform), 0.0)
    return Day(load / load.mean(), rates / rates.sum())


def predict(offered: OfferedLoad, servers: float, ca2: Floats, over: Day) -> WaitDistribution:
    """The pool's waits, by draw and hour; infinite where the load is not below the servers."""
    m = servers_of(offered, servers)
    rho = (offered.load / servers)[:, None] * over.load
    chance = erlang_c(m, rho * m)
    factor = np.array([_variability(r, m, a, s) for r, a, s in zip(rho, ca2, offered.scv, strict=True)])
    with np.errstate(invalid="ignore", divide="ignore"):
        time = offered.load / servers * m / offered.rate  # of jobs of equal work that hold a server each
        steady = chance * time[:, None] / (m * (1 - rho))
        waits = np.where(rho < 1, steady * factor, math.inf)
    idle = (offered.load == 0)[:, None]
    return WaitDistribution(np.where(idle, 0.0, chance), np.where(idle, 0.0, waits), over.weight)


def servers_of(offered: OfferedLoad, servers: float) -> int:
    """How many servers of the usual size a pool has."""
    return max(1, round(servers / offered.usual[0])) if offered.usual[0] > 0 else 1


def _variability(rho: Floats, m: int, ca2: float, cs2: float) -> Floats:
    if not math.isfinite(ca2 + cs2):  # a draw without jobs
        return np.ones(len(rho))
    # At one server Pollaczek and Khinchine are exact for Poisson arrivals: the correction is for more.
    factor = np.ones(len(rho)) if m == 1 else whitt_factor(np.clip(rho, 1e-9, 1.0), m, ca2, max(cs2, 0.0))
    return np.asarray((ca2 + cs2) / 2 * factor)


def of_class(waits: WaitDistribution, ratio: float) -> WaitDistribution:
    """The waits of a class whose probability of waiting is `ratio` times that of the pool."""
    chance = np.minimum(1.0, waits.chance * ratio)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(waits.chance > 0, waits.mean * chance / waits.chance, waits.mean)
    return WaitDistribution(chance, mean, waits.weight)


def means(waits: WaitDistribution) -> Floats:
    """The mean wait of each draw; what is below a millisecond is none."""
    # An hour without arrivals may be as bad as it likes: nobody sees it.
    offered = np.asarray(np.where(waits.weight > 0, waits.mean, 0.0) @ waits.weight)
    return np.where(offered < SHORTEST, 0.0, offered)


def quantile(waits: WaitDistribution, q: float) -> Floats:
    """The time that a share q waits no longer than, by draw: waits of each hour are 0 or exponential."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.where(waits.mean > 0, waits.chance / waits.mean, math.inf)

    def longer(t: Floats) -> Floats:
        with np.errstate(invalid="ignore"):
            tail = np.where(np.isinf(rate), 0.0, waits.chance * np.exp(-rate * t[:, None]))
        return np.asarray(tail @ waits.weight)

    low, high = np.zeros(len(rate)), np.ones(len(rate))
    for _ in range(60):  # as far as needed, at most 10¹⁸ s
        high = np.where(longer(high) > 1 - q, high * 2, high)
    for _ in range(60):
        middle = (low + high) / 2
        over = longer(middle) > 1 - q
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    offered = np.where(longer(np.zeros(len(rate))) > 1 - q, high, 0.0)
    return np.where(np.isinf(means(waits)), math.inf, np.where(offered < SHORTEST, 0.0, offered))


def together(waits: Sequence[WaitDistribution], share: Sequence[float]) -> WaitDistribution:
    """The waits of several classes as of one, by the share that each has of the jobs."""
    if not waits:
        return WaitDistribution(np.zeros((1, 1)), np.zeros((1, 1)), np.ones(1))
    weight = np.concatenate([w.weight * part for w, part in zip(waits, share, strict=True)])
    return WaitDistribution(np.hstack([w.chance for w in waits]), np.hstack([w.mean for w in waits]), weight)


def ratios(part: PoolJobs, servers: float, offered: OfferedLoad, span: float) -> Floats:
    """For each job, how many times as likely it does not fit as one of the usual size."""
    if not 0 < offered.load[0] < servers:
        return np.ones(len(part.submit))
    unit = max(FINEST, servers / UNITS)
    c = max(1, math.floor(servers / unit))
    sizes = _units(part.need, unit, c)
    distinct, which = np.unique(sizes, return_inverse=True)
    busy = np.bincount(which, part.service) / span
    short = np.cumsum(occupancy(c, busy, tuple(distinct.tolist()))[::-1])  # the chance that fewer than n are free
    middle = short[int(_units(offered.usual[:1], unit, c)[0]) - 1]
    return short[distinct - 1][which] / middle if middle > 0 else np.ones(len(which))


def _units(need: Floats, unit: float, c: int) -> NDArray[np.int64]:
    """Needs in whole units; large ones that are nearly alike are taken together."""
    units = np.clip(np.ceil(need / unit - 1e-9), 1, c)
    steps = np.round(np.log(units) / math.log(RATIO))
    return np.where(units <= 8, units, np.clip(np.round(RATIO**steps), 8, c)).astype(np.int64)
