"""The schedulers that a scenario may have in place of an order and a backfill, and how they are written down.

A scheduler is a frozen noun of `core` with a `kind` (its name in files and options), a `title` (in sentences), whether
it takes the instances of a job `apart` and gives `whole_gpus` alone, and `to_values` and `from_values`. A further one
is an entry here, of `traces.schedulers` (which files configure it) and of `sim.schedulers` (how it is simulated).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from fleetlab.core.kai import Kai
from fleetlab.core.kubernetes import KubeScheduler
from fleetlab.core.kueue import Kueue
from fleetlab.core.names import lookup
from fleetlab.core.slurm import Slurm
from fleetlab.core.volcano import Volcano

Scheduler: TypeAlias = Slurm | KubeScheduler | Kueue | Volcano | Kai
KINDS: dict[str, type[Slurm] | type[KubeScheduler] | type[Kueue] | type[Volcano] | type[Kai]] = {
    one.kind: one for one in (Slurm, KubeScheduler, Kueue, Volcano, Kai)
}
NAMED = (KubeScheduler.kind, Volcano.kind, Kai.kind)  # whose defaults are a scheduler: a word is enough


def scheduler_values(scheduler: Scheduler) -> dict[str, Any]:
    """Return a scheduler as plain tables; Slurm is the one that does not say its kind."""
    kind = {} if isinstance(scheduler, Slurm) else {"kind": scheduler.kind}
    return kind | scheduler.to_values()


def scheduler_of(values: Mapping[str, Any]) -> Scheduler:
    """Build a scheduler from plain tables; undo `scheduler_values`."""
    kind = str(values.get("kind", Slurm.kind))
    lookup("scheduler", kind, list(KINDS))
    return KINDS[kind].from_values({name: value for name, value in values.items() if name != "kind"})


def kind_of(word: Any) -> str:  # noqa: ANN401
    """Return the kind of a scheduler by its word as plain values have it: a table, or a name."""
    if isinstance(word, Mapping):
        return str(word.get("kind", Slurm.kind))
    return str(word) if word in KINDS else Slurm.kind
