"""A scheduling policy: queue order, backfill, placement, and what else a scheduler decides by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fleetlab.core.catalog import BACKFILLS, ORDERS, SHARINGS
from fleetlab.core.cells import noun_cell, words_table
from fleetlab.core.durations import duration, in_seconds
from fleetlab.core.errors import PolicyError
from fleetlab.core.events import Recovery
from fleetlab.core.names import clip
from fleetlab.core.schedulers import Scheduler, kind_of
from fleetlab.core.words import EVENT, POLICY, WORDS, check, plain, shorthand, text

RULES = ("order", "backfill")  # every policy is named after these


@dataclass(frozen=True, eq=False, repr=False)
class Policy:
    """How a cluster schedules: its queue order, backfill, placement, and what else a scheduler decides by.

    Parameters
    ----------
    order
        The queue order: a name, MODULE:NAME, or a function of your own.
    scheduler
        A scheduler with its own order, backfill and placement; site: the trace's.
    backfill
        What happens behind a job that does not fit.
    placement
        Which node an instance is placed on: a name, MODULE:NAME, or a function of your own.
    estimate
        Runtimes as the scheduler estimates them: a name, or a column of seconds.
    sharing
        How fractional requests share a GPU.
    preemption
        Whether running jobs are preempted for jobs ahead of them.
    quota
        GPUs that each user may hold, or those that some users, queues, groups or apps may.
    recovery
        What checkpoints keep, and cost.
    speed
        How jobs on one GPU slow each other down: a name, a file, or a profile.
    speed_classes
        Class of a profile by app, user, group or queue of a job.
    cycle
        Seconds between two looks of the scheduler; 0: it looks at every event.
    weights
        Numbers that a policy of your own reads as `s.weights`.

    Raises
    ------
    PolicyError
        If a name is not known, or two words cannot be combined.

    Notes
    -----
    Each is a word, with the values and the default that `fleetlab simulate --help` lists and
    `fleetlab.core.words.WORDS[name].help` returns.

    Examples
    --------
    >>> Policy(order="sjf", backfill="easy")
    <Policy sjf/easy>
    """

    order: Any = "fifo"  # a name, MODULE:NAME, or a function
    scheduler: Scheduler | str | None = None  # with its own order, backfill and placement; site: the trace's
    backfill: str = "greedy"
    placement: Any = "best_fit"  # a name, MODULE:NAME, or a function
    estimate: Any = "oracle"  # a name, or a column of seconds
    sharing: str = "fractional"
    preemption: bool = False
    quota: float | Mapping[str, float] | None = None
    recovery: Recovery | None = None
    speed: Any = None  # a name, a file, or a profile
    speed_classes: Mapping[str, str] | None = None  # class of a profile by app, user, group or queue of a job
    cycle: float = 0.0  # seconds; 0: the scheduler looks at every event
    weights: tuple[float, ...] = field(default=())

    def __post_init__(self) -> None:
        for name in POLICY:
            object.__setattr__(self, name, WORDS[name].read(getattr(self, name)))
        if self.preempts and BACKFILLS[self.backfill].reserves:
            who = "preemption" if self.preemption else f"order {self.order}, which preempts,"
            msg = f"{who} cannot be combined with backfill {self.backfill}: it assumes that running jobs keep running"
            others = " or ".join(f"backfill={rule.name}" for rule in BACKFILLS if not rule.reserves)
            raise PolicyError(msg, hint=f"{others}{'' if self.preemption else ', or an order that does not preempt'}")
        speed_option = (
            "speed" if self.speed is not None else "speed_classes" if self.speed_classes is not None else None
        )
        if speed_option and not SHARINGS[self.sharing].needs_speed:
            msg = f"a speed profile has no effect with sharing `{self.sharing}`"
            raise PolicyError(
                msg, hint=f"choose sharing {', '.join(SHARINGS.where('needs_speed'))}, or leave {speed_option} out"
            )

    @classmethod
    def of(cls, policy: Policy | str, **words: Any) -> Policy:  # noqa: ANN401
        """Take a policy, or its shorthand, and change some of its words.

        Parameters
        ----------
        policy
            A policy, or ORDER/BACKFILL/PLACEMENT/ESTIMATE/SHARING, of which the last may be left out.
        **words
            The words to change.

        Returns
        -------
        Policy
            The policy.

        Raises
        ------
        PolicyError
            If the shorthand or a value is not understood.

        Examples
        --------
        >>> Policy.of("sjf/easy", estimate="group")
        <Policy sjf/easy, estimate group>
        """
        if isinstance(policy, str):
            words_of_text = shorthand(policy)
            check(words_of_text, POLICY)
            policy = cls(**words_of_text)  # type: ignore[arg-type]
        return policy.replace(**words)

    @property
    def preempts(self) -> bool:
        """Whether running jobs may be preempted, as asked for or by the order itself."""
        return self.preemption or (self.order in ORDERS and ORDERS[self.order].preemptive)

    def replace(self, **words: Any) -> Policy:  # noqa: ANN401
        """Return the policy with other values for some words.

        Parameters
        ----------
        **words
            The words to change.

        Returns
        -------
        Policy
            The other policy; this one stays as it is.

        Raises
        ------
        WorkloadError
            If there is no such word.

        Examples
        --------
        >>> Policy().replace(order="sjf")
        <Policy sjf/greedy>
        """
        check(words, POLICY)
        return replace(self, **words) if words else self

    def words(self) -> dict[str, Any]:
        """Return the words that differ from their defaults.

        Returns
        -------
        dict
            Plain values by word.

        Examples
        --------
        >>> Policy(order="sjf").words()
        {'order': 'sjf'}
        """
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: plain(v) for name in POLICY if not _is_default(v := values[name], WORDS[name].default)}

    @property
    def title(self) -> str:
        """Its order and backfill, and what else differs from the defaults."""
        return title(self.words())

    def _repr_html_(self) -> str:
        values = {name: getattr(self, name) for name in POLICY}  # of which one may be a column: compared with nothing
        words = {
            name: None if v is None or (isinstance(v, tuple) and not v) else text(plain(v))
            for name, v in values.items()
        }
        return noun_cell(f"Policy {self.title}", {"words": words_table(words)})

    def __repr__(self) -> str:
        return f"<Policy {self.title}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and all(
            _is_default(getattr(self, name), getattr(other, name)) for name in POLICY
        )

    def __hash__(self) -> int:
        return hash(str(self.words()))


def _is_default(value: object, default: object) -> bool:
    """Whether two values are equal; columns are compared as a whole."""
    if hasattr(value, "equals"):
        return hasattr(default, "equals") and bool(value.equals(default))
    return not hasattr(default, "equals") and bool(value == default)


def title(words: Mapping[str, Any]) -> str:
    """Return words as tables and legends have them: order/backfill always, then the others by name.

    >>> title({"order": "sjf", "load": 1.2, "preemption": True})
    'sjf/greedy, load 1.2, preemption'
    """
    rules = "/".join(str(words.get(name, WORDS[name].default)) for name in RULES)
    if words.get("scheduler", EVENT) != EVENT:  # which has an order and a backfill of its own
        word = words["scheduler"]
        rules = _scheduler_title(word) if isinstance(word, Mapping) else str(word)
    others = (_titled(name, value) for name, value in words.items() if name not in (*RULES, "scheduler"))
    return ", ".join([rules, *others])


def _scheduler_title(values: Mapping[str, Any]) -> str:
    lines = "; ".join(str(values.get("conf", "")).split("\n"))
    changes = [*([clip(lines)] if lines else []), *(["other quotas"] if "amounts" in values else [])]
    return " with ".join([kind_of(values), *([" and ".join(changes)] if changes else [])])


def _titled(name: str, value: Any) -> str:  # noqa: ANN401
    if value is True:
        return name
    if name == "latency" and isinstance(value, Mapping):
        return "latency by class"
    if name == "window":
        begin, _, end = value.partition("..")
        return f"window {duration(float(begin or 0))} to {duration(float(end)) if end else 'the end'}"
    seconds = in_seconds(value) if name in ("until", "cycle", "warm_up") else math.nan
    return f"{name} {text(value) if math.isnan(seconds) else duration(seconds)}"
