"""Partitions of a site, and which nodes are in them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from fleetlab.core import TraceError
from fleetlab.schedulers.slurm.config import Partition
from fleetlab.schedulers.slurm.reader.conf_text import Entry
from fleetlab.schedulers.slurm.reader.conf_values import YES, given, name_of, names_of, seconds_of, weights_of, whole
from fleetlab.schedulers.slurm.reader.node_lists import expand
from fleetlab.schedulers.slurm.reader.site_text import Site


def partitions_of(site: Site) -> tuple[Partition, ...]:
    """Return the partitions of a site."""
    rows = {row["partitionname"]: row for row in site.conf.of("partitionname")}
    rows |= {row["partitionname"]: rows.get(row["partitionname"], {}) | row for row in site.partitions}
    partitions = [_partition(name, row) for names, row in rows.items() for name in names.split(",")]
    # What is shown of a partition is its own mode or, as a rule, the one of the whole cluster.
    usual = preempt_mode(site.values)
    return tuple(replace(p, preempt_mode=None) if p.preempt_mode == usual else p for p in partitions)


def _partition(name: str, row: Entry) -> Partition:
    usual = Partition(name)
    priority = row.get("priority", "1")  # of versions before 17: of both
    mode = preempt_mode(row) if row.get("preemptmode") else None
    default_time = row.get("defaulttime", "")
    return Partition(
        name,
        default=row.get("default", "").lower() in YES,
        tier=whole(row.get("prioritytier", priority), 1),
        factor=whole(row.get("priorityjobfactor", priority), 1),
        state=row.get("state", "up").lower(),
        max_time=seconds_of(row.get("maxtime", ""), math.inf),
        default_time=seconds_of(default_time, math.inf) if given(default_time) else None,
        max_nodes=whole(row.get("maxnodes", ""), math.inf),
        min_nodes=int(whole(row.get("minnodes", ""), 0)),
        qos=name_of(row.get("qos", "")),
        oversubscribe=_oversubscribe(row.get("oversubscribe", row.get("shared", "no"))),
        preempt_mode=mode,
        grace=seconds_of(row.get("gracetime", ""), usual.grace, seconds=True),
        allow_accounts=names_of(row.get("allowaccounts", "")),
        deny_accounts=names_of(row.get("denyaccounts", "")),
        allow_qos=names_of(row.get("allowqos", "")),
        deny_qos=names_of(row.get("denyqos", "")),
        billing=weights_of(row.get("tresbillingweights", ""), per_mib=True),
        over_time=seconds_of(row["overtimelimit"], 0.0) if given(row.get("overtimelimit", "")) else None,
    )


def _oversubscribe(text: str) -> int:
    """How many jobs share what each holds: with FORCE several, with YES only those that ask for it."""
    word, _, number = text.lower().partition(":")
    if word == "exclusive":
        return 0
    return int(number or 4) if word == "force" else 1


def partition_nodes(site: Site, nodes: Iterable[str]) -> dict[str, list[str]]:
    """Return the partitions of each node, as the configuration says."""
    there = list(nodes)
    sets = {row["nodeset"]: row.get("nodes", "") for row in site.conf.of("nodeset")}
    rows = {row["partitionname"]: row.get("nodes", "") for row in [*site.conf.of("partitionname"), *site.partitions]}
    partitions: dict[str, list[str]] = {}
    for partition, text in rows.items():
        text = ",".join(sets.get(part, part) for part in re.split(r",(?![^\[]*\])", text))
        names = there if "ALL" in text.upper().split(",") else expanded(text)
        for name in names:
            partitions.setdefault(name, []).append(partition)
    return partitions


def expanded(text: str) -> list[str]:
    """Return the nodes of a list in the configuration."""
    try:
        return expand(text)
    except ValueError as e:
        msg = f"not a list of nodes in the configuration: {text[:80]}"
        raise TraceError(msg, hint=str(e)) from None


def preempt_mode(values: Mapping[str, str]) -> str:
    """Return how the cluster preempts: off, requeue, cancel or suspend."""
    modes = (word.strip().lower() for word in values.get("preemptmode", "off").split(","))
    return next((mode for mode in modes if mode not in ("gang", "within", "")), "off")
