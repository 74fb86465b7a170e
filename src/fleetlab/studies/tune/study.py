"""Search for a policy on training weeks of a trace, and judge it on held-out weeks beside every built-in policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import polars as pl

from fleetlab.core import Cluster, Provenance, Trace, TraceError, WorkloadError
from fleetlab.core.catalog import PLACEMENTS
from fleetlab.studies.tune import _rivals, _weeks
from fleetlab.studies.tune._journal import Journal, opened
from fleetlab.studies.tune._rivals import Means, Rival, Rules, mean
from fleetlab.studies.tune._search import Progress, Trial, engine, search
from fleetlab.studies.tune._terms import ALL, Params, Space, rules_of
from fleetlab.studies.tune._verdict import Judged
from fleetlab.studies.tune._weeks import Stretch
from fleetlab.studies.tune.result import Tuned, told

# What may be made small: the column of a run, how it is called, its unit.
GOALS = {
    "wait": ("wait", "mean wait", "s"),
    "jct": ("jct", "mean JCT", "s"),
    "bsld": ("bounded_slowdown", "mean bounded slowdown", ""),
}
MOST = 100_000  # trials


def tune(
    trace: Trace,
    *,
    trials: int = 100,
    train_weeks: int | None = None,
    held_out: int | None = None,
    days: float = 7.0,
    warm: float = 1.0,
    goal: str = "wait",
    backfill: str = "greedy",
    estimate: str = "group",
    against: Sequence[str] = (),
    seed: int = 0,
    store: Path | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Search for weights of order and place terms on training weeks; judge them on held-out weeks.

    The last `held_out` weeks (of so many `days`) are played once, at the end; those before them are learnt on, half of
    all unless told. `warm` days before the weeks fill the cluster and do not count. Run times are what `estimate` has
    learnt of finished jobs: nobody knows them beforehand. Built-in policies are the first trials, so that in training
    nothing is lost against those that the terms can express; `against` names the orders to be held against, all unless
    told. Trials are kept in `store`, and a search that was killed goes on there.
    """
    progress = progress or (lambda *_: None)
    cluster = _checked(trace, trials, goal, seed)
    names = _rivals.orders(against, backfill)
    engine()
    cuts = {"train": train_weeks, "held_out": held_out, "days": days, "warm": warm, "estimate": estimate}
    train, held = _weeks.cut(trace, **cuts)  # type: ignore[arg-type]
    if store is not None:
        opened(store)  # before work starts: what cannot be kept is not begun
    settings = {"trials": trials, "goal": goal, "backfill": backfill, "cluster": cluster.source, **cuts}
    asked = _Asked(cluster, goal, backfill, seed)
    rivals = _rivals.in_training(asked.player(train), names, progress)
    found, chosen = asked.chosen(train, rivals, trials, store, progress)
    judged = asked.judged(held, rivals, chosen, progress)
    notes = _notes(train, held, judged, estimate, backfill)
    _, what, unit = GOALS[goal]
    return told(judged, found, chosen, what, unit, Provenance("tune", trace.workload.source, settings, seed), notes)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is the same for every policy."""

    cluster: Cluster
    goal: str
    backfill: str
    seed: int

    def player(self, stretch: Stretch) -> Callable[[Rules], Means]:
        """How to play weeks by the rules of a policy: the mean of each."""

        def play(rules: Rules) -> Means:
            found = stretch.means(self.cluster, GOALS[self.goal][0], {**rules, "backfill": self.backfill}, self.seed)
            if not found:
                msg = f"{stretch.workload.source}: no job of these weeks can run on {self.cluster.source}"
                raise WorkloadError(msg, hint="`fleetlab simulate` lists who is refused, and why")
            return found

        return play

    def chosen(
        self, train: Stretch, rivals: Sequence[Rival], trials: int, store: Path | None, progress: Progress
    ) -> tuple[list[Trial], Trial]:
        """All trials, and the best of them; of two alike the first."""
        play = self.player(train)
        space = Space.of(train.workload, PLACEMENTS.names)
        corners: list[Params] = []
        for rival in rivals:
            like = space.corner(rival.order, rival.placement)
            if like is not None and like not in corners:
                corners.append(like)
        found = search(
            space, lambda params: mean(play(rules_of(params))), corners,
            trials=trials, seed=self.seed, journal=Journal(self._name(train, corners), store), progress=progress,
        )  # fmt: skip
        return found, min(found, key=lambda trial: trial.value)

    def judged(self, held: Stretch, rivals: Sequence[Rival], chosen: Trial, progress: Progress) -> Judged:
        """Play the held-out weeks, once for each policy."""
        play, found = self.player(held), {}
        for k, rival in enumerate(rivals):
            progress("held-out weeks", k, k / (len(rivals) + 1))
            found[rival.name] = play(rival.rules)
        mine = play(rules_of(chosen.params))
        progress("held-out weeks", len(rivals) + 1, 1.0)
        return Judged(mine, found, rivals, chosen.value)

    def _name(self, train: Stretch, corners: Sequence[Params]) -> str:
        """Of a search: all that decides what a trial gives, and what is tried next."""
        estimate = train.estimate if isinstance(train.estimate, str) else _digest(train.estimate.hash().to_list())
        told = [self.goal, self.backfill, self.seed, estimate, [repr(term) for term in ALL], corners, _code()]
        frames = [train.workload.frame.drop("user", "group", "app"), self.cluster.frame]
        rows = [frame.hash_rows().to_list() for frame in frames]
        people = train.workload.frame.select(_text("user"), _text("group"), _text("app")).hash_rows().to_list()
        return _digest([told, rows, people, train.week.tolist()])


def _text(column: str) -> pl.Expr:
    """Categories by their names: the numbers behind them differ from one process to the next."""
    return pl.col(column).cast(pl.String)


def _digest(value: object) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@cache
def _code() -> str:
    """The text of the simulator: trials of another one would be something else."""
    spec = find_spec("fleetlab.sim")
    assert spec is not None
    assert spec.origin is not None
    files = sorted(Path(spec.origin).parent.glob("*.py"))
    return sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def _checked(trace: Trace, trials: int, goal: str, seed: int) -> Cluster:
    if trace.cluster is None:
        msg = f"the trace has no cluster: {trace.workload.source}"
        raise TraceError(msg, hint="--cluster FILE.toml gives it one")
    if goal not in GOALS:
        msg = f"no goal by that name: `{goal}`"
        raise WorkloadError(msg, hint=f"there are {', '.join(GOALS)}")
    if not 1 <= trials <= MOST:
        msg = f"a number of trials is from 1 to {MOST:,}: {trials}"
        raise WorkloadError(msg, hint="100 unless told")
    if seed < 0:
        msg = f"a seed is a whole number from 0 on: {seed}"
        raise WorkloadError(msg, hint="seed=0 unless told")
    return trace.cluster


def _notes(train: Stretch, held: Stretch, judged: Judged, estimate: str, backfill: str) -> list[str]:
    said = [
        f"weeks {_listed(judged.best.train)} to learn on, {_listed(judged.tuned)} held out; "
        f"{len(train.workload):,} and {len(held.workload):,} jobs, warm-up included",
    ]
    if estimate == "oracle":
        said.append("every policy knew run times beforehand, which nobody does")
    if backfill in _rivals.RESERVING:
        said.append(f"orders that interrupt jobs do not go with {backfill} and were left out")
    if len(judged.tuned) < 4:
        said.append("few held-out weeks: only a large difference can be sure")
    return said


def _listed(weeks: Means) -> str:
    names = sorted(week + 1 for week in weeks)
    whole = names == list(range(names[0], names[-1] + 1)) and len(names) > 1
    return f"{names[0]} to {names[-1]}" if whole else ", ".join(map(str, names))
