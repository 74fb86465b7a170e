"""The words of a scenario as options, with the help and the defaults of the table of words."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from fleetlab.core.words import WORDS

if TYPE_CHECKING:
    from fleetlab.core import Scenario


def option(name: str) -> Parameter:
    """Return the option of a word: its help says its values and its default."""
    return Parameter(help=WORDS[name].help, show_default=False, negative=())


@Parameter(name="*")
@dataclass(frozen=True)
class ScenarioOptions:
    """A cluster, a policy, and what happens; text is read as the table of words says."""

    cluster: Annotated[Path | None, option("cluster")] = None
    nodes: Annotated[str, option("nodes")] = ""
    load: Annotated[float, option("load")] = 1.0
    order: Annotated[str, option("order")] = "fifo"
    backfill: Annotated[str, option("backfill")] = "greedy"
    placement: Annotated[str, option("placement")] = "best_fit"
    estimate: Annotated[str, option("estimate")] = "oracle"
    sharing: Annotated[str, option("sharing")] = "fractional"
    speed: Annotated[str | None, option("speed")] = None
    preemption: Annotated[bool, option("preemption")] = False
    quota: Annotated[str | None, option("quota")] = None
    recovery: Annotated[str | None, option("recovery")] = None
    events: Annotated[str, option("events")] = ""
    weights: Annotated[str, option("weights")] = ""
    prices: Annotated[str | None, option("prices")] = None
    seed: Annotated[int, option("seed")] = 0
    until: Annotated[str | None, option("until")] = None

    def scenario(self, trace: str) -> "Scenario":
        """Build the scenario."""
        from fleetlab.core import Scenario

        given = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}
        return Scenario.of(trace, **given)


DEFAULTS = ScenarioOptions()
