"""What lies beside a log and tells of the site: its configuration, and what that says of nodes and times."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import polars as pl

from fleetlab.core import Cluster
from fleetlab.core.queues import QueueTree
from fleetlab.schedulers.slurm.config import Slurm
from fleetlab.schedulers.slurm.reader.conf import add_confs, add_listing, kind_of_conf, slurm_of
from fleetlab.schedulers.slurm.reader.conf_text import read_text
from fleetlab.schedulers.slurm.reader.events import read_events, registrations
from fleetlab.schedulers.slurm.reader.nodes import NodeInventory, read_conf_nodes
from fleetlab.schedulers.slurm.reader.partitions import partition_nodes
from fleetlab.schedulers.slurm.reader.site_text import Site
from fleetlab.traces.input.files import SourceFile
from fleetlab.traces.input.intake import Intake
from fleetlab.traces.input.times import moments

WHOLE = "slurm.conf"


def site_beside(path: Path, others: list[SourceFile]) -> Site:
    """Read what the files beside a log tell of the site.

    Of a site with several logs, slurm.conf may lie one folder above the pieces of it that differ.
    """
    folder = path if path.is_dir() else path.parent
    site, confs = Site(), []
    files = [source.path for source in others] if path.is_dir() else [p for p in folder.iterdir() if p.is_file()]
    for file in sorted(files):
        beginning = _beginning(file)
        kind = kind_of_conf(file.name, beginning)
        if kind == "conf":
            confs.append(file)
        elif kind and not _passed_over(file, kind, files):
            add_listing(site, kind, read_text(file), file.name)
    above = folder.parent / WHOLE
    if confs and WHOLE not in {file.name for file in confs} and _includes(above, {file.name for file in confs}):
        for file in sorted(folder.parent.iterdir()):
            kind = kind_of_conf(file.name, _beginning(file)) if file.is_file() else None
            if kind in ("accounts", "qos") and not (site.accounts if kind == "accounts" else site.qos):
                add_listing(site, kind, read_text(file), file.name)
        add_confs(site, [above], [folder])
    add_confs(site, confs, [folder])
    return site


def _beginning(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(65_536).decode("utf-8-sig", "replace")
    except OSError:
        return ""


def _passed_over(file: Path, kind: str, files: list[Path]) -> bool:
    """Usage counts as it was when the log began, if there is a listing of then beside one of later."""
    begins = [f.name for f in files if "begin" in f.name]
    return kind == "shares" and bool(begins) and file.name not in begins


def _includes(conf: Path, names: set[str]) -> bool:
    if not conf.is_file():
        return False
    included = re.findall(r"^\s*include\s+(\S+)", read_text(conf), re.MULTILINE | re.IGNORECASE)
    return any(Path(name).name in names for name in included)


def scheduler_of(site: Site, zero: float, zone: str) -> Slurm:
    """Return the site's Slurm with times that count from the first submission of the log."""
    slurm = slurm_of(site, zone)
    moved = tuple(replace(r, begin=r.begin - zero, end=r.end - zero) for r in slurm.reservations)
    queues = slurm.queues
    if not knows_begin(site):  # usage is listed as it was later: what it was when the log began is not known
        queues = QueueTree(replace(queue, usage=0.0) for queue in queues.values())
    return replace(slurm, reservations=moved, queues=queues, boot=boot_of(site, zero, zone))


def boot_of(site: Site, zero: float, zone: str) -> float | None:
    """Return when slurmctld started: `scontrol show config` says so, and it registers its cluster then."""
    shown = site.running.values.get("boot_time", "")
    known = moments(pl.Series([shown], dtype=pl.String), zone)[0].drop_nulls().to_list()
    registered = [moment for text in site.events for moment in registrations(text, zone)]
    before = [moment for moment in registered if moment <= zero]
    return next((moment - zero for moment in (*known, *sorted(before)[-1:])), None)


def events_of(site: Site, zero: float, zone: str) -> pl.DataFrame | None:
    """Return what happened to nodes, in times of the log."""
    lists = [read_events(text, zone, zero) for text in site.events]
    return pl.concat(lists).unique(maintain_order=True) if lists else None


def knows_begin(site: Site) -> bool:
    """Whether the usage of accounts was listed when the log began."""
    return any("begin" in name for name in site.files)


def nodes_of(site: Site, intake: Intake) -> NodeInventory | None:
    """Return the nodes that the configuration has."""
    rows = site.conf.of("nodename")
    return read_conf_nodes(rows, site.conf.files[0], intake) if rows else None


def with_site(cluster: Cluster | None, site: Site) -> Cluster | None:
    """Give nodes the partitions that the configuration puts them in."""
    if cluster is None or not (site.conf.of("partitionname") or site.partitions):
        return cluster
    known = partition_nodes(site, cluster.frame["node"])
    rows = pl.Series([known.get(node, []) for node in cluster.frame["node"]], dtype=pl.List(pl.String))
    return Cluster.of(cluster.frame.with_columns(partitions=rows), source=cluster.source)
