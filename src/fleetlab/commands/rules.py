"""The rules of a cluster as options: the same words, with the same defaults, wherever something is played."""

from dataclasses import dataclass

from cyclopts import Parameter


@Parameter(name="*")
@dataclass(frozen=True)
class Turns:
    """Who is next, what if it does not fit, and where it goes."""

    order: str = "fifo"
    backfill: str = "greedy"
    placement: str = "best_fit"


@Parameter(name="*")
@dataclass(frozen=True)
class Rules(Turns):
    """Turns, how run times are estimated, and how a GPU is shared."""

    estimate: str = "oracle"
    sharing: str = "fractional"


TURNS, RULES = Turns(), Rules()
