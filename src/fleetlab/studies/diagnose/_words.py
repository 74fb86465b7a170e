"""What was found, in sentences that a busy person can read; and whether ledger and changes say the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import polars as pl

from fleetlab.core import Estimate, say
from fleetlab.sim import SimResult
from fleetlab.studies._lacks import GANG, NOWHERE
from fleetlab.studies._spread import over_time
from fleetlab.studies.diagnose._changes import NODES, Change
from fleetlab.studies.diagnose._effects import HELPS
from fleetlab.studies.diagnose._ledger import BLOCKED, MEANS
from fleetlab.studies.diagnose._runs import Fared

RULES = ("backfill", "sjf")  # they remove no shortage: others go first
MEAN = ("mean change", "mean low", "mean high")


def findings(
    summary: Sequence[Estimate], reasons: pl.DataFrame, found: pl.DataFrame, fared: Mapping[str, Fared],
    tail: tuple[float, int], heads: pl.DataFrame, jobs: pl.DataFrame, run: SimResult,
) -> list[str]:  # fmt: skip
    """Why they wait, what helps most, whether the two agree, and who carries it."""
    mean = summary[0]
    if not mean.value:
        return [_nobody(jobs, run)]
    first = reasons.row(0, named=True)
    said = [
        f"{say(mean)}; {_percent(first['share'])} of all waiting is `{first['reason']}`: {MEANS[first['reason']]}",
        *_best(found),
        agreement(reasons, found, fared),
        f"the {tail[1]:,} jobs that waited longest carry {_percent(tail[0])} of all waiting",
    ]
    if first["reason"] == BLOCKED and heads.height:
        who = heads.row(0, named=True)
        gpus = who["instances"] * who["gpu_milli"] / 1000
        said.append(
            f"who held up most was job {who['job']} ({who['instances']:,} instances, {gpus:,.4g} GPUs): at the "
            f"head for {who['blocked']:,.0f} s, while those behind it waited {who['behind']:,.0f} s in all"
        )
    return said


def _nobody(jobs: pl.DataFrame, run: SimResult) -> str:
    """Nobody waits in the replay; what the log saw, and who could not be replayed, may tell otherwise."""
    said, waits = [], jobs.select(wait=pl.col("start") - pl.col("submit"))["wait"].drop_nulls()
    seen = over_time(waits.filter(waits >= 0).to_numpy()).estimate("a mean wait of", "s")
    if seen.value > 0:
        seen = seen._replace(low=max(seen.low, 0.0))  # `max` keeps its first where that is nan
        said.append(f"the log recorded {say(seen)} (`fleetlab audit` compares them)")
    if never := run.refused.filter(pl.col("reason").is_in([NOWHERE, GANG])).height:
        said.append(f"{never:,} jobs can never run here")
    return "; ".join(["in the replay nobody waits", *said]) if said else "nobody waits: there is nothing to mend"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _best(found: pl.DataFrame) -> list[str]:
    helps = found.filter(pl.col("verdict") == HELPS)
    if helps.is_empty():
        return ["no change that was tried surely helps"]
    best = helps.row(0, named=True)
    value, low, high = (best[c] if best[c] is not None else math.nan for c in MEAN)
    change = Estimate("mean wait", value, low, high, "s")
    return [f"what helps most: {best['title']}: {say(change)}, P90 {best['P90 change']:+,.0f} s; takes {best['takes']}"]


def agreement(reasons: pl.DataFrame, found: pl.DataFrame, fared: Mapping[str, Fared]) -> str:
    """Is the best change the one that removes what the ledger says is scarce? If not, why not."""
    total = float(reasons["seconds"].sum())
    before = {r: s * total for r, s in reasons.select("reason", "with its queue").iter_rows() if s > 0}
    named = max(before, key=lambda r: before[r])
    lead = f"with the queue for it, `{named}` is first in the ledger ({_percent(before[named] / total)})"
    helps = found.filter(pl.col("verdict") == HELPS)
    if helps.is_empty():
        return f"{lead}; it stands, as nothing that was tried surely helps"
    best = fared[helps["change"][0]]
    if named in best.change.lifts:
        return f"ledger and changes agree: {lead}, and {best.change.title} removes it"
    off = 1 - best.lacked[named] / before[named]
    said = f"ledger and changes differ: {lead}, but {best.change.title} helps most, and "
    said += f"takes {_percent(off)} of it away" if off > 0 else "takes nothing of it away"
    said += f"{best.change.why}. " if off > 0 else ". "
    if best.change.name in RULES:
        said += f"{best.change.title.capitalize()} removes no shortage, it only lets others go first. "
    return said + _why(named, found, {name: f.change for name, f in fared.items()})


def _why(reason: str, found: pl.DataFrame, changes: Mapping[str, Change]) -> str:
    """What becomes of a reason when the change that removes it is made."""
    own = found.filter(pl.col("change").is_in([n for n, c in changes.items() if reason in c.lifts]))
    if own.is_empty():
        return f"No change that was tried removes `{reason}`"
    row = own.row(0, named=True)
    if row["change"].startswith(NODES):
        return f"Of what `{reason}` lacks only so much was tried: {row['title']}, {row['mean change']:+,.0f} s"
    if row["mean change"] > 0:
        return (
            f"Without that ({row['title']}) waits grow ({row['mean change']:+,.0f} s): those it held back pass others"
        )
    then = f"`{row['then first']}`" if row["then first"] else "nothing"
    return (
        f"The ledger names what was lacking at the moment; without that ({row['title']}, {row['mean change']:+,.0f} s) "
        f"jobs wait for the next thing they lack, first of all {then}"
    )
