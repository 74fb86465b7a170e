"""Draw the figures of the concepts, each from a run of the real thing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from docs.canvas import WIDTH, Canvas

import fleetlab
from fleetlab.core.catalog import REASONS

MEASURED = Path(__file__).parents[1] / "measurements"
# Five jobs on one node of four GPUs: small enough to be followed by hand.
FIVE = {
    "submit": [0.0, 1.0, 2.0, 3.0, 4.0],
    "runtime": [10.0, 6.0, 4.0, 16.0, 12.0],
    "gpu_milli": [2000, 3000, 4000, 1000, 1000],
    "user": ["A", "B", "C", "D", "E"],
}
COLOR = dict(zip("ABCDE", "abcde", strict=True))
LEFT, RIGHT = 130, 24


def five_jobs(backfill: str) -> fleetlab.Result:
    """Simulate the five jobs."""
    workload = fleetlab.Workload.of(pl.DataFrame(FIVE), source="five jobs")
    return fleetlab.simulate(workload, fleetlab.Cluster.uniform(1, 4), backfill=backfill)


def gantt(picture: Canvas, result: fleetlab.Result, top: float, until: float) -> None:
    """Draw GPUs × time; a job is a block on each of its GPUs."""
    scale, row = (WIDTH - LEFT - RIGHT) / until, 18
    for job in result.jobs.iter_rows(named=True):
        bits = int(result.runs(job["job"])["gpus"][0])
        mine = [k for k in range(4) if bits >> k & 1]
        for k in mine:
            x = LEFT + job["start"] * scale
            picture.bar(x, top + k * row, ((job["end"] - job["start"]) * scale - 1.5, row - 2), COLOR[job["user"]])
        picture.text(LEFT + job["start"] * scale + 6, top + mine[0] * row + 13, job["user"], kind="inside")


def seconds_axis(picture: Canvas, y: float, until: int) -> None:
    """Write seconds below."""
    for second in range(0, until + 1, 5):
        picture.text(LEFT + second * (WIDTH - LEFT - RIGHT) / until, y, f"{second} s", anchor="middle")


def events() -> str:
    """Draw what happens at each instant of five jobs."""
    result, until = five_jobs("easy"), 40
    picture = Canvas("Five jobs on four GPUs, EASY backfill: time jumps from event to event", 250)
    scale = (WIDTH - LEFT - RIGHT) / until
    for k in range(4):
        picture.text(LEFT - 10, 59 + 18 * k, f"GPU {k}", anchor="end")
    gantt(picture, result, 46, until)
    for name, y in (("submit", 150), ("start", 172), ("end", 194)):
        picture.text(LEFT - 10, y, {"submit": "submitted", "start": "starts", "end": "ends"}[name], anchor="end")
        for job in result.jobs.iter_rows(named=True):
            picture.text(LEFT + job[name] * scale, y, job["user"], anchor="middle")
        picture.grid((LEFT, WIDTH - RIGHT), y + 6)
    seconds_axis(picture, 222, until)
    return picture.svg()


def backfill() -> str:
    """Draw the same five jobs under each backfill rule."""
    rules, until = ("none", "greedy", "easy", "conservative"), 40
    picture = Canvas("The same five jobs under each rule: A runs, and B and C do not fit: who may pass them?", 420)
    for n, rule in enumerate(rules):
        result, top = five_jobs(rule), 40 + 90 * n
        gantt(picture, result, top, until)
        picture.text(LEFT - 10, top + 30, rule, anchor="end", kind="title")
        picture.text(LEFT - 10, top + 48, f"mean wait {result.jobs['wait'].mean():.1f} s", anchor="end")
    seconds_axis(picture, 410, until)
    return picture.svg()


def ledger() -> str:
    """Draw how many jobs wait when, by reason."""
    result = fleetlab.simulate("builtin:5000", load=2.2, backfill="easy")
    edges = np.linspace(0, 8 * 3600.0, 161)
    waiting = result.waiting_over_time(edges) / np.diff(edges)[:, None]
    order = np.argsort(-waiting.sum(axis=0))[:5]
    picture = Canvas(
        "Waiting jobs by reason: 5,000 jobs of the built-in trace at 2.2 times their load, EASY backfill", 320
    )
    picture.legend([(c, REASONS.names[k]) for c, k in zip("abcde", order, strict=True)], 44)
    highest = waiting[:, order].sum(axis=1).max()
    width, base = (WIDTH - LEFT - RIGHT) / (len(edges) - 1), 285
    for n, row in enumerate(waiting[:, order]):
        y = base
        for color, value in zip("abcde", row * 220 / highest, strict=True):
            y -= value
            picture.bar(LEFT + n * width, y, (width + 0.2, value), color)
    for share in (0, 0.5, 1):
        picture.text(LEFT - 10, base - 220 * share + 4, f"{highest * share:,.0f} jobs", anchor="end")
    for hour in range(0, int(edges[-1] / 3600) + 1):
        picture.text(LEFT + hour * 3600 / edges[-1] * (WIDTH - LEFT - RIGHT), 305, f"{hour} h", anchor="middle")
    return picture.svg()


def speed() -> str:
    """Draw how fast work runs beside other work."""
    profile, pairs = (
        fleetlab.Speed.named("h200"),
        [(a, b) for a in ("light", "medium", "heavy") for b in ("light", "medium", "heavy")],
    )
    picture = Canvas("Speed of a training beside another on one H200 (1: a GPU of its own), as measured", 330)
    picture.legend([("a", "time slicing"), ("b", "MPS")], 44)
    base, step = 270, (WIDTH - LEFT - RIGHT) / len(pairs)
    for value in (0, 0.5, 1):
        picture.grid((LEFT, WIDTH - RIGHT), base - 170 * value)
        picture.text(LEFT - 10, base - 170 * value + 4, f"{value:g}", anchor="end")
    for n, (mine, other) in enumerate(pairs):
        for k, (mode, color) in enumerate((("time-slicing", "a"), ("mps", "b"))):
            found, x = profile.speed(mode, mine, other), LEFT + n * step + 12 + 30 * k
            picture.bar(x, base - 170 * found.value, (24, 170 * found.value), color)
            picture.line([(x + 12, base - 170 * found.low), (x + 12, base - 170 * found.high)], "f")
        picture.text(LEFT + n * step + 40, 290, mine, anchor="middle", kind="title")
        picture.text(LEFT + n * step + 40, 308, f"by {other}", anchor="middle")
    return picture.svg()


def calibration() -> str:
    """Draw recorded and simulated waits of a real Slurm."""
    trace = fleetlab.read(MEASURED / "slurm" / "defaults-1.tar.gz", format="slurm")
    picture = Canvas("Jobs that have started within a time: a log of a real Slurm, and two simulations of it", 330)
    site, event = fleetlab.simulate(trace).recorded, fleetlab.simulate(trace, scheduler="event").recorded
    series = [("a", "recorded", site["recorded"]), ("b", "simulated as configured", site["simulated"]),
              ("c", "simulated without Slurm's rules", event["simulated"])]  # fmt: skip
    picture.legend([(color, name) for color, name, _ in series], 44, 210)
    longest = 200.0
    for share in (0, 0.5, 1):
        picture.grid((LEFT, WIDTH - RIGHT), 290 - 220 * share)
        picture.text(LEFT - 10, 294 - 220 * share, f"{share:.0%}", anchor="end")
    for color, _, waits in series:
        values = np.sort(waits.to_numpy())
        grid = np.linspace(0, longest, 201)
        shares = np.searchsorted(values, grid, side="right") / len(values)
        picture.line(
            [(LEFT + x / longest * (WIDTH - LEFT - RIGHT), 290 - 220 * y) for x, y in zip(grid, shares, strict=True)],
            color,
        )
    for wait in range(0, 201, 50):
        picture.text(LEFT + wait / longest * (WIDTH - LEFT - RIGHT), 312, f"{wait} s", anchor="middle")
    return picture.svg()


def erlang(seed: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Simulate eight servers at 90 % load; return the interval as if waits were independent, and ours."""
    rng = np.random.default_rng(seed)
    jobs = {"submit": np.cumsum(rng.exponential(1 / 7.2, 20_000)), "runtime": rng.exponential(1.0, 20_000)}
    frame = pl.DataFrame(jobs).with_columns(pl.col("submit") - pl.col("submit").min(), gpu_milli=pl.lit(1000))
    result = fleetlab.simulate(
        fleetlab.Workload.of(frame, source="Erlang"), fleetlab.Cluster.uniform(1, 8), warm_up="none"
    )
    waits, ours = result.jobs["wait"].to_numpy(), result.summary()[0]
    half = 1.96 * waits.std() / np.sqrt(len(waits))
    return (waits.mean() - half, waits.mean() + half), (ours.low, ours.high)


def intervals() -> str:
    """Draw intervals of 40 runs whose true mean is known."""
    truth = next(e.value for e in fleetlab.solve("M/M/c", lam=7.2, mu=1.0, c=8).summary() if e.metric == "mean wait")
    picture = Canvas("95 % intervals of the mean wait in 40 runs, and the true mean (Erlang C)", 330)
    found = [erlang(seed) for seed in range(40)]
    top = max(high for pair in found for _, high in pair) * 1.02
    for n, name in enumerate(("as if waits were independent", "as fleetlab has them, from blocks of time")):
        left = LEFT - 30 + n * 380
        hits = sum(pair[n][0] <= truth <= pair[n][1] for pair in found)
        picture.text(left, 46, f"{name}: {hits} of 40 hold it")
        for k, pair in enumerate(found):
            low, high = pair[n]
            color, x = "a" if low <= truth <= high else "e", left + 4 + k * 8.8
            picture.line([(x, 300 - 230 * low / top), (x, 300 - 230 * high / top)], color)
        picture.line([(left, 300 - 230 * truth / top), (left + 355, 300 - 230 * truth / top)], "f", dashed=True)
    picture.text(LEFT - 40, 304 - 230 * truth / top, f"{truth:.2f} s", anchor="end")
    picture.text(LEFT - 40, 304, "0 s", anchor="end")
    return picture.svg()


DRAWINGS = {
    "events": events,
    "backfill": backfill,
    "ledger": ledger,
    "speed": speed,
    "calibration": calibration,
    "intervals": intervals,
}
