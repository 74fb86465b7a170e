"""A scheduler of one's own in plain Python, as any other scheduler: any object with a method `decide`."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from inspect import signature
from math import inf
from typing import TYPE_CHECKING, Any, Self

from fleetlab.core.errors import PolicyError
from fleetlab.core.progress import Progress
from fleetlab.core.schedulers import Feature, Scheduler

if TYPE_CHECKING:
    from fleetlab.core.scenario import Scenario


@dataclass(frozen=True, eq=False)
class OwnScheduler(Scheduler):
    """Schedule by an object of the user that decides at every event, or every so many seconds.

    Each simulation begins with a copy of the object: what it learns in one does not change the next.
    """

    name = "own"
    title = "a scheduler of one's own"
    honors = frozenset(
        {Feature.NODE_EVENTS, Feature.CHECKPOINTS, Feature.RUNNING_JOBS, Feature.FRACTIONS, Feature.GANGS}
    )
    has_defaults = False

    decides: Any
    spelled: str = ""  # MODULE:NAME, where it can be imported

    def __post_init__(self) -> None:
        """Call it what the user does."""
        object.__setattr__(self, "title", self.spelled or type(self.decides).__name__)

    @classmethod
    def of(cls, value: Any) -> Self:  # noqa: ANN401
        """Take an object with a method `decide`, or its class; or import it, by MODULE:NAME."""
        from fleetlab.sim.kernel.decide import line_of
        from fleetlab.sim.load import imported

        spelled = value if isinstance(value, str) else ""
        if spelled:
            module, _, name = spelled.partition(":")
            value = getattr(imported(module), name, None)
        hint = "a scheduler of one's own is a class with `def decide(self, view)`"
        if not callable(getattr(value, "decide", None)):
            msg = f"{spelled} has no method `decide`" if value is not None else f"{spelled} is not there"
            raise PolicyError(msg, hint=f"{hint}; a `fleetlab.Scheduler` is called by the name that a package gives it")
        if isinstance(value, type):
            value = _built(value)
        name, where = type(value).__name__, line_of(None, value.decide)
        try:
            signature(value.decide).bind(None)
        except TypeError as error:
            msg = f"scheduler `{name}`: `decide` is called with one argument, the view: {error}"
            raise PolicyError(msg, hint=f"`{name}.decide` ({where}): {hint}") from error
        every = getattr(value, "every", 0.0)
        if not isinstance(every, int | float) or not 0 <= every < inf:
            msg = f"scheduler `{name}`: `every` is a number of seconds from 0 up, not: {every!r}"
            raise PolicyError(msg, hint="every = 60.0 decides once a minute; leave it out to decide at every event")
        return cls(value, spelled)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Refuse: an object cannot be written down."""
        msg = "a scheduler of one's own is an object in Python, and has no settings in a table"
        raise PolicyError(msg, hint="fleetlab.simulate(trace, scheduler=MyScheduler())")

    def to_values(self) -> dict[str, Any]:
        """Return its label."""
        from fleetlab.core.word_spellings import label

        return {"decides": self.spelled or label(self.decides)}

    def simulate(
        self,
        scenario: Scenario,
        world: Any,  # noqa: ANN401
        *,
        progress: Progress | None = None,
        draws: int | None = None,
    ) -> Any:  # noqa: ANN401
        """Simulate the jobs and nodes of a scenario by a copy of the object."""
        from fleetlab.core.catalog import PLACEMENTS
        from fleetlab.sim.jit import compile_notice
        from fleetlab.sim.kernel.decide import simulate_decisions

        placement = scenario.policy.placement
        if not isinstance(placement, str) or placement not in PLACEMENTS:
            msg = f"{self.title} places by a built-in placement where it names no nodes"
            raise PolicyError(msg, hint=f"choose from {', '.join(PLACEMENTS.names)}; or name the nodes in `Start`")
        try:
            scheduler = deepcopy(self.decides)
        except Exception as error:
            msg = f"scheduler `{type(self.decides).__name__}` cannot be copied: {error}"
            hint = "each simulation begins with a copy of it: define `__deepcopy__`, or open files in `decide`"
            raise PolicyError(msg, hint=hint) from error
        with compile_notice():
            return simulate_decisions(
                world, scheduler, scenario.cluster, events=scenario.node_events,
                recovery=scenario.policy.recovery, placement=placement, seed=scenario.seed, until=scenario.until,
                progress=progress,
            )  # fmt: skip


def _built(kind: type[Any]) -> Any:  # noqa: ANN401
    """Return an object of a class, which takes no arguments."""
    try:
        return kind()
    except Exception as error:
        msg = f"scheduler `{kind.__name__}` cannot be built without arguments: {type(error).__name__}: {error}"
        raise PolicyError(msg, hint=f"give its arguments defaults; or in Python pass {kind.__name__}(…)") from error
