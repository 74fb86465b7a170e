"""Is the tuned policy better, week by week, in weeks that nobody has learnt on? And than which built-in ones?

Differences are taken within a week, and their interval is Student's over weeks. To say that it beats *every* built-in
policy each difference has to be sure by itself (a claim that needs all of several tests is no surer for having several,
Berger 1982); what is said of one line of the table counts all lines (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.core import Estimate, say
from fleetlab.studies._spread import USUAL, Mean, over_runs
from fleetlab.studies.tune._rivals import Means, Rival, best, mean


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """What was played in the held-out weeks."""

    tuned: Means
    rivals: Mapping[str, Means]  # by name
    listed: Sequence[Rival]
    train: float  # the mean of the tuned one over the weeks it was chosen on

    @property
    def best(self) -> Rival:
        """The built-in policy that one would have taken without a search."""
        return best(self.listed)

    def beyond(self, name: str) -> Mean:
        """How much more the tuned policy has than a rival, within a week."""
        return over_runs([value - self.rivals[name][week] for week, value in self.tuned.items()])

    @property
    def calm(self) -> list[str]:
        """Rivals that let jobs run to their end, as the tuned policy does."""
        return [rival.name for rival in self.listed if not rival.interrupts]

    @property
    def unbeaten(self) -> list[str]:
        """Those of them that it is not surely better than, the best in these weeks first."""
        some = [name for name in self.calm if not self.beyond(name).between()[1] < 0]
        return sorted(some, key=lambda name: mean(self.rivals[name]))

    @property
    def better(self) -> bool:
        """Is it surely better than every one of them?"""
        return not self.unbeaten


def table(judged: Judged) -> pl.DataFrame:
    """A row for each policy, best first; intervals of the differences hold all at once."""
    sure = 1 - (1 - USUAL) / max(1, len(judged.listed))
    rows = [_row("tuned", judged.train, judged.tuned, None, sure, interrupts=False)]
    for rival in judged.listed:
        train = mean(rival.train) if rival.train else None
        change = judged.beyond(rival.name)
        rows.append(_row(rival.name, train, judged.rivals[rival.name], change, sure, interrupts=rival.interrupts))
    kinds = dict.fromkeys(("training", "tuned less this", "low", "high"), pl.Float64())
    return pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None).sort("held out", maintain_order=True)


def _row(
    name: str, train: float | None, held: Means, change: Mean | None, sure: float, *, interrupts: bool
) -> dict[str, object]:
    low, high = change.between(sure) if change else (None, None)
    return {
        "policy": name, "interrupts": interrupts, "training": train, "held out": mean(held),
        "tuned less this": change and change.value, "low": low, "high": high,
        "tuned is": "" if change is None or low is None or high is None else _word(change, low, high),
    }  # fmt: skip


def _word(change: Mean, low: float, high: float) -> str:
    if change.error == 0 and change.value == 0:
        return "the same"
    return "better" if high < 0 else "worse" if low > 0 else "not surely either"


def sentences(judged: Judged, what: str, unit: str) -> tuple[str, ...]:
    """The verdict, plainly; what became of the gain in training; and those that interrupt."""
    first, change = judged.best.name, judged.beyond(judged.best.name)
    low, high = change.between()
    apart = f"{what}{say(Estimate('', change.value, low, high, unit))} against {first}, the best in training"
    if judged.better:
        verdict = f"the tuned policy beats every built-in one: on held-out weeks {apart}"
    elif _same(judged, first):
        verdict = f"nothing beats the best built-in policy, {first}: on held-out weeks the tuned one is no different"
    elif high < 0:
        others = ", ".join(name for name in judged.unbeaten)
        verdict = f"the tuned policy is better than {first}, but not surely than {others}: on held-out weeks {apart}"
    else:
        worse = "the tuned one is worse" if low > 0 else "the tuned one is not surely better"
        verdict = f"nothing beats the best built-in policy, {first}: on held-out weeks {worse}, {apart}"
    return (verdict, *_stayed(judged), *_interrupting(judged))


def _same(judged: Judged, name: str) -> bool:
    return all(value == judged.rivals[name][week] for week, value in judged.tuned.items())


def _stayed(judged: Judged) -> list[str]:
    before = mean(judged.best.train)
    gain = 1 - judged.train / before if before else 0.0
    if gain <= 0:
        return ["in training too nothing that was tried is better"]
    reference = mean(judged.rivals[judged.best.name])
    stayed = -judged.beyond(judged.best.name).value / reference if reference else 0.0
    return [f"in training, where it was chosen, it is {gain:.1%} lower; on held-out weeks {_lower(stayed)}"]


def _lower(share: float) -> str:
    return f"{share:.1%} lower" if share >= 0 else f"{-share:.1%} higher"


def _interrupting(judged: Judged) -> list[str]:
    ahead = [rival.name for rival in judged.listed if rival.interrupts and judged.beyond(rival.name).between()[0] > 0]
    if not ahead:
        return []
    return [f"lower still: {', '.join(ahead)}; it is assumed there that to interrupt running jobs costs nothing"]


def weekly(judged: Judged) -> pl.DataFrame:
    """Week by week: the tuned policy beside the best built-in one."""
    beside = judged.rivals[judged.best.name]
    weeks = np.array(list(judged.tuned))
    mine, other = (np.array([means[int(w)] for w in weeks]) for means in (judged.tuned, beside))
    return pl.DataFrame({"week": weeks + 1, "tuned": mine, judged.best.name: other, "difference": mine - other})
