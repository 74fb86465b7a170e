"""Which queue of Volcano or KAI a job waits in."""

from __future__ import annotations

import polars as pl

from fleetlab.core.kai import Kai
from fleetlab.core.volcano import Volcano

COLUMNS = ("queue", "group", "user")
DEFAULTS = ("default", "default-queue")


def leaves_of(site: Volcano | Kai) -> list[str]:
    """The queues that take jobs: those with none below."""
    parents = {queue.parent for queue in site.queues}
    return [queue.name for queue in site.queues if queue.name not in parents]


def queues_of(site: Volcano | Kai, frame: pl.DataFrame) -> list[str]:
    """The queue of each job: the first that its columns name, or the default; empty: there is none for it."""
    leaves = leaves_of(site)
    default = next((name for name in DEFAULTS if name in leaves), leaves[0] if len(leaves) == 1 else "")
    columns = [frame[name].cast(pl.String).to_list() for name in COLUMNS]
    known = set(leaves)
    return [next((name for name in named if name in known), default) for named in zip(*columns, strict=True)]
