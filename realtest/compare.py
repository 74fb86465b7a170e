"""Our schedule beside the real one, job by job: `python -m realtest.compare RUN…`."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

import fleetlab
from fleetlab.core import Scenario
from fleetlab.traces.slurm.events import node_events
from realtest.everything import ALL
from realtest.settings import PLAIN

WAIT = pl.col("start") - pl.coalesce("eligible", "submit")
COLUMNS = (
    "| run | jobs | mean wait s | simulated / real | P90 | within 2 s | within 10 s | mean difference s | correlation |"
)
LINE = "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
FEWEST = 20  # jobs of a partition or account that has a row


def starts(run: Path, **words: Any) -> pl.DataFrame:  # noqa: ANN401
    """Return a row for each job that started in both: its real start, the simulated one, and what it waited."""
    trace = Scenario.of(fleetlab.read(run, "slurm")).trace  # a row for each job, not for each of its runs
    if words.get("scheduler") == "site" and trace.scheduler is not None:
        words["scheduler"] = replace(trace.scheduler, **hooks(run))
    result = fleetlab.simulate(trace, events=node_events(trace), **words)
    jobs = result.jobs.join(trace.workload.frame.select("job", "runtime"), on="job")
    # The log tells of the last run of a job.
    again = pl.col("preemptions") + pl.col("failures") > 0
    last = pl.when(again).then(pl.col("end") - pl.col("runtime").ceil()).otherwise("start")
    simulated = jobs.select("job", simulated=last)
    both = trace.workload.frame.join(simulated, on="job").drop_nulls(["start", "simulated"])
    return both.select(
        "job",
        pl.col("partitions").list.join(",").alias("partition"),
        pl.coalesce("queue", "group").cast(pl.String).alias("account"),
        real="start",
        simulated="simulated",
        real_wait=WAIT,
        simulated_wait=WAIT - pl.col("start") + pl.col("simulated"),
    )


def hooks(run: Path) -> dict[str, float]:
    """Return how long prolog and epilog took in a run; slurm.conf only names their scripts."""
    about = run / "run.json"
    setting = json.loads(about.read_text()).get("setting") if about.exists() else None
    slurm = ALL[setting].slurm if setting in ALL else PLAIN
    return {"prolog": slurm.prolog, "epilog": slurm.epilog}


def row(name: str, jobs: pl.DataFrame) -> str:
    """Return a line of the table."""
    apart = (pl.col("real") - pl.col("simulated")).abs()
    tail = pl.col("simulated_wait").quantile(0.9) / pl.col("real_wait").quantile(0.9)
    said = jobs.select(
        pl.col("real_wait").mean(),
        ratio=pl.col("simulated_wait").mean() / pl.col("real_wait").mean(),
        tail=tail,
        near=(apart <= 2).mean() * 100,
        close=(apart <= 10).mean() * 100,
        apart=apart.mean(),
        correlation=pl.corr("real_wait", "simulated_wait"),
    ).row(0)
    real, ratio, tail_ratio, near, close, difference, correlation = said
    shares = f"{near:.0f}% | {close:.0f}%"
    ratios = f"{real:.1f} | {ratio:.3f} | {tail_ratio:.2f}"
    return f"| {name} | {jobs.height} | {ratios} | {shares} | {difference:.1f} | {correlation:.3f} |"


def table(runs: list[Path], **words: Any) -> str:  # noqa: ANN401
    """Return each run, and below it its partitions and accounts."""
    lines = [COLUMNS, LINE]
    for run in runs:
        jobs = starts(run, **words)
        lines.append(row(run.name, jobs))
        for by in ("partition", "account"):
            groups = [(str(name), part) for (name,), part in jobs.sort(by).group_by(by, maintain_order=True)]
            if len(groups) > 1:
                lines += [row(f"· {by} {name}", part) for name, part in groups if part.height >= FEWEST]
    return "\n".join(lines)


def main() -> None:
    """Compare runs with a simulation of the site as it is configured, or with words of a scenario."""
    parser = argparse.ArgumentParser(prog="realtest.compare", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--scheduler", default="site")
    parser.add_argument("--backfill", help="a backfill rule of our own instead")
    given = parser.parse_args()
    words = {"backfill": given.backfill} if given.backfill else {"scheduler": given.scheduler}
    print(table(given.runs, **words))


if __name__ == "__main__":
    main()
