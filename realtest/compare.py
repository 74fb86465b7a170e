"""Our schedule beside the real one, job by job: `python -m realtest.compare RUN…`, or `--all` for the page of all runs.

RUN is a folder or archive, or the name of a recorded run: plain-1.

A run is read and simulated as a user would: `fleetlab read slurm DIR`, `fleetlab simulate`. What is compared, and how,
is what two real runs are compared by (`spread`): waits from when a job is eligible to its first start.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from datetime import date
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import fleetlab
from fleetlab.core import Trace, toml
from realtest.archives import recorded_runs, run_folder
from realtest.report import with_tables
from realtest.spread import Run, compare, submission_order

PAGE = Path("docs/measurements/slurm/simulated.md")
GUIDE = Path("docs/slurm.md")
RATIOS = Path("src/fleetlab/schedulers/slurm/recorded_runs.toml")
MARKS = ("<!-- tables: python -m realtest.compare --all -->", "<!-- end of tables -->")
FEWEST = 20  # jobs of a partition or account that has a row
MEAN, TAIL, CORRELATION = 0.05, 0.10, 0.95  # how close a simulation is to be, where real runs repeat more closely
COLUMNS = (
    "| run | jobs | mean wait s | ratio | real | P90 | real | within 2 s | real | within 10 s | real "
    "| mean difference s | real | correlation | real |"
)
LINE = "|---" + "|--:" * 14 + "|"


Closeness = tuple[str, dict[str, float], list[dict[str, float]]]  # of which jobs; simulated to real; real to real


@cache
def read(folder: Path) -> Trace:
    """Read a run as a user would."""
    return fleetlab.read(folder, "slurm")


def recorded(folder: Path) -> Run:
    """Return when the jobs of a run were eligible and first started, as its trace says."""
    trace = read(folder)
    frame = trace.workload.frame
    logged = trace.series.get("eligible_logged")
    if logged is not None:  # those that waited for other jobs, which a simulation decides anew
        frame = frame.join(logged.rename({"eligible": "logged"}).collect(), on="job", how="left")
        frame = frame.with_columns(eligible=pl.coalesce("logged", "eligible"))
    return _run(folder, frame.join(_names(trace), on="job").with_columns(eligible=pl.coalesce("eligible", "submit")))


def simulated(folder: Path, **words: Any) -> Run:  # noqa: ANN401
    """Return when they are eligible and start if the site is simulated as it is configured, or by words of a policy."""
    result = fleetlab.simulate(read(folder), **words)
    assert result.scenario is not None
    world = result.world
    eligible = pl.DataFrame({"job": world.frame["job"], "eligible": world.eligible})
    return _run(folder, result.jobs.join(eligible, on="job").join(_names(result.scenario.trace), on="job"))


def _names(trace: Trace) -> pl.DataFrame:
    assert trace.names is not None
    return trace.names.select("job", "name").collect()


def _run(folder: Path, jobs: pl.DataFrame) -> Run:
    """Make a run of a table with a row for each time that a job ran."""
    order = submission_order(folder)
    label = {"partition": pl.col("partitions").list.join(","), "account": pl.coalesce("queue", "group").cast(pl.String)}
    rows = jobs.drop_nulls("start").sort("start").with_columns(**label)
    first = rows.unique("name", keep="first", maintain_order=True)
    keys = [order.key(name.rpartition("/")[2]) for name in first["name"]]
    kinds = {name: dict(zip(keys, first[name].to_list(), strict=True)) for name in label}
    eligible, start = (dict(zip(keys, first[name].to_list(), strict=True)) for name in ("eligible", "start"))
    return Run(folder.name, eligible, start, len(rows), 0.0, kinds)


def groups_of(run: Run) -> dict[str, set[str]]:
    """Return the jobs of a run by partition and by account; the whole run first, small groups left out."""
    groups = {run.name: set(run.start)}
    for kind, of in run.kinds.items():
        names = sorted({name or "" for name in of.values()})
        if len(names) > 1:
            groups |= {f"· {kind} {name}": {job for job in of if (of[job] or "") == name} for name in names}
    return {name: jobs for name, jobs in groups.items() if len(jobs) >= FEWEST or name == run.name}


def repetitions(folder: Path) -> list[Path]:
    """Return the other runs of the same submissions."""
    setting, _, number = folder.name.rpartition("-")
    return [path for path in sorted(folder.parent.glob(f"{setting}-*")) if number and path != folder]


def real_pairs(folder: Path, jobs: Iterable[str]) -> list[dict[str, float]]:
    """Compare a run's repetitions with it and with each other, on some of its jobs."""
    runs = [recorded(path) for path in (folder, *repetitions(folder))]
    return [compare(one, other, jobs) for one, other in combinations(runs, 2)]


def allowed(pairs: list[dict[str, float]]) -> dict[str, float]:
    """Return how far a simulation may be: the mean, the P90 and the correlation; as far as two real runs at least."""
    far = {name: max([0.0, *(abs(np.log(pair[name])) for pair in pairs)]) for name in ("mean_ratio", "tail_ratio")}
    return {
        "mean_ratio": max(np.log1p(MEAN), far["mean_ratio"]),
        "tail_ratio": max(np.log1p(TAIL), far["tail_ratio"]),
        "correlation": min([CORRELATION, *(pair["correlation"] for pair in pairs)]),
    }


def is_met(close: dict[str, float], pairs: list[dict[str, float]]) -> dict[str, bool]:
    """Return which of the three a simulation meets."""
    bounds = allowed(pairs)
    met = {name: abs(np.log(close[name])) <= bounds[name] for name in ("mean_ratio", "tail_ratio")}
    return met | {"correlation": close["correlation"] >= bounds["correlation"]}


def row(name: str, close: dict[str, float], pairs: list[dict[str, float]]) -> str:
    """Return a line of the table; what is outside of what is allowed is bold."""
    met = is_met(close, pairs)
    cells = [name, f"{close['jobs']:.0f}", f"{close['mean_wait']:.1f}"]
    for key, form in FORMS.items():
        value = form(close[key])
        cells.append(value if met.get(key, True) else f"**{value}**")
        cells.append(_of_pairs(key, pairs, form) if pairs else "")
    return f"| {' | '.join(cells)} |"


FORMS = {
    "mean_ratio": "{:.2f}".format,
    "tail_ratio": "{:.2f}".format,
    "within_2s": "{:.0%}".format,
    "within_10s": "{:.0%}".format,
    "mean_apart": "{:.1f}".format,
    "correlation": "{:.2f}".format,
}


def _of_pairs(key: str, pairs: list[dict[str, float]], form: Callable[[float], str]) -> str:
    """Say how far real runs are apart: ratios by the farthest pair, the others by the mean of all."""
    values = [pair[key] for pair in pairs]
    return form(float(np.exp(max(abs(np.log(values)))) if key.endswith("ratio") else np.mean(values)))


def closeness(folder: Path, **words: Any) -> list[Closeness]:  # noqa: ANN401
    """Compare a run, then its partitions and accounts, with a simulation; beside the same between real runs."""
    real, ours = recorded(folder), simulated(folder, **words)
    return [(name, compare(real, ours, jobs), real_pairs(folder, jobs)) for name, jobs in groups_of(real).items()]


def table(found: Iterable[list[Closeness]]) -> str:
    """Return each run, and below it its partitions and accounts."""
    return "\n".join([COLUMNS, LINE, *(row(*line) for run in found for line in run)])


def short_table(found: Iterable[list[Closeness]]) -> str:
    """Return a line for each setting: what its runs have in the mean."""
    settings: dict[str, list[Closeness]] = {}
    for run in found:
        settings.setdefault(run[0][0].rpartition("-")[0], []).append(run[0])
    columns = ("mean wait", "ratio", "real", "P90", "real", "within 10 s", "real", "correlation", "real")
    head = [f"| setting | runs | {' | '.join(columns)} |", "|---" + "|--:" * (len(columns) + 1) + "|"]
    return "\n".join([*head, *(_setting(name, runs) for name, runs in settings.items())])


def _setting(name: str, runs: list[Closeness]) -> str:
    close, pairs = [run[1] for run in runs], runs[0][2]
    cells = [name, str(len(runs)), f"{np.mean([c['mean_wait'] for c in close]):.1f} s"]
    for key in ("mean_ratio", "tail_ratio", "within_10s", "correlation"):
        values = [c[key] for c in close]
        mean = np.exp(np.mean(np.log(values))) if key.endswith("ratio") else np.mean(values)
        cells += [FORMS[key](float(mean)), _of_pairs(key, pairs, FORMS[key])]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Compare runs with a simulation of the site as it is configured, or with words of a scenario."""
    parser = argparse.ArgumentParser(prog="realtest.compare", description=__doc__)
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--all", action="store_true", help=f"all recorded runs, into {PAGE}")
    parser.add_argument("--scheduler", default="site")
    parser.add_argument("--backfill", help="a backfill rule of our own instead")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    words = {"backfill": given.backfill} if given.backfill else {"scheduler": given.scheduler}
    every = [path.parent for path in sorted(recorded_runs("slurm").glob("*/run.json"))]
    runs = every if given.all else [run_folder(run) for run in given.runs]
    found = [closeness(run, seed=given.seed, **words) for run in runs]
    for page, said in ((PAGE, table(found)), (GUIDE, short_table(found))) if given.all else ():
        page.write_text(with_tables(page.read_text("utf-8"), said, MARKS), "utf-8")
    if given.all:
        keep_ratios(found)
    print(table(found))


def keep_ratios(found: Iterable[list[Closeness]], path: Path = RATIOS) -> None:
    """Write the ratios of mean waits for the intervals of simulated ones, as the page has them."""
    ratios: dict[str, list[float]] = {}
    for (name, close, _), *_ in found:
        ratios.setdefault(name.rpartition("-")[0], []).append(round(close["mean_ratio"], 2))
    before, head, _ = path.read_text("utf-8").partition("[ratios]")
    before = re.sub(r"date = .*", f'date = "{date.today()}"', before)
    path.write_text(f"{before}{head}\n{toml.dumps(ratios)}", "utf-8")


if __name__ == "__main__":
    main()
