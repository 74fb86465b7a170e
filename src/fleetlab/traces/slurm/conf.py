"""A site's Slurm, from its configuration: slurm.conf with includes, `scontrol show`, `sacctmgr`, `sshare`.

What was running counts before what stands in a file: `scontrol show` before slurm.conf. How long a prolog or an epilog
takes is in none of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from fleetlab.core import TraceError
from fleetlab.core.queues import QueueTree
from fleetlab.core.slurm import Partition, Priority, Qos, Reservation, Slurm, Weights
from fleetlab.traces.input.times import moments
from fleetlab.traces.slurm.accounts import (
    HEADER_LINES,
    Account,
    is_accounts,
    is_qos,
    is_shares,
    queue_tree,
    read_accounts,
    read_dump,
    read_qos,
    read_shares,
    resource,
)
from fleetlab.traces.slurm.conf_text import ConfText, Entry, parse, read_text, shown_blocks, shown_config
from fleetlab.traces.slurm.events import is_events
from fleetlab.traces.slurm.hostlist import expand
from fleetlab.traces.slurm.scheduler_parameters import backfill_loop, left_over, main_loop
from fleetlab.traces.slurm.time_limit import limit

COLLECTED = "collected.txt"
YES = frozenset({"yes", "true", "1", "on"})
# What a file is, by how it begins.
KINDS: dict[str, re.Pattern[str]] = {
    "config": re.compile(r"^Configuration data as of", re.MULTILINE),
    "partition": re.compile(r"^PartitionName=\S+[^\n]*\n\s+Allow|^PartitionName=\S+ AllowGroups=", re.MULTILINE),
    "reservation": re.compile(r"^ReservationName=\S+ StartTime=|No reservations in the system", re.MULTILINE),
    "dump": re.compile(r"^Cluster - '", re.MULTILINE),
    "sdiag": re.compile(r"^sdiag output at", re.MULTILINE),
}
OTHERS = ("gres.conf", "topology.conf", "cgroup.conf", "slurmdbd.conf", "acct_gather.conf", "helpers.conf")
_CONF = re.compile(
    r"^\s*(?:ClusterName|PartitionName|NodeName|Priority\w+|Scheduler\w+|Preempt\w+|Select\w+|include)\s*[= ]",
    re.MULTILINE | re.IGNORECASE,
)


@dataclass
class Site:
    """What is known of a site so far, as text."""

    conf: ConfText = field(default_factory=ConfText)
    shown: ConfText = field(default_factory=ConfText)
    partitions: list[Entry] = field(default_factory=list)
    reservations: list[Entry] = field(default_factory=list)
    accounts: list[Account] = field(default_factory=list)
    shares: list[Account] = field(default_factory=list)
    qos: list[Qos] = field(default_factory=list)
    events: list[str] = field(default_factory=list)  # lists of what happened to nodes, as text
    collected: Entry = field(default_factory=dict)  # zone and since, as the collecting script wrote them
    files: list[str] = field(default_factory=list)

    @property
    def values(self) -> Entry:
        """Its settings: those that were running before those in a file."""
        return {key: value for key, value in (self.conf.values | self.shown.values).items() if value}

    @property
    def seen(self) -> set[str]:
        """The names of all files that tell of it, also of those that others include."""
        return {*self.files, *self.conf.files}

    def __bool__(self) -> bool:
        """Whether anything tells how it is configured."""
        listed = self.shown.values or self.partitions or self.accounts or self.qos or self.shares or self.reservations
        return bool(self.conf.files or listed)


def read_conf(*paths: Path | str) -> Slurm:
    """Read a site's Slurm from its files, in any order; of a folder, each file that tells of it."""
    site = read_site(*(Path(path) for path in paths))
    if not site:
        msg = f"no configuration of Slurm in: {', '.join(str(path) for path in paths)}"
        raise TraceError(msg, hint="slurm.conf, or what `scontrol show config` and `scontrol show partition` print")
    return slurm_of(site)


def kind_of_conf(name: str, beginning: str) -> str | None:
    """Tell what a file says of a site: conf, config, partition, reservation, accounts, qos, shares, dump, sdiag."""
    for kind, form in KINDS.items():
        if form.search(beginning):
            return kind
    lines = [line for line in beginning.splitlines() if line.strip()][:HEADER_LINES]
    for kind, fits in (("accounts", is_accounts), ("shares", is_shares), ("qos", is_qos)):
        if any(fits(line) for line in lines):
            return kind
    if any(is_events(line) for line in lines[:1]):
        return "events"
    if any(is_reservation_log(line) for line in lines[:1]):
        return "reservation log"
    if name == COLLECTED and lines and lines[0].startswith("collected="):
        return "collected"
    conf = name.endswith(".conf") and name not in OTHERS and "CPUTot=" not in beginning
    return "conf" if conf and _CONF.search(beginning) else None


def is_reservation_log(header: str) -> bool:
    """Whether a line is the header of `sacctmgr show reservation -P`."""
    names = set(header.lower().replace(" ", "").split("|"))
    return {"name", "timestart", "timeend"} <= names and bool(names & {"nodename", "nodenames"})


def read_site(*paths: Path) -> Site:
    """Collect what the files say; pieces that another file includes are read in their place."""
    folders = [path if path.is_dir() else path.parent for path in paths]
    files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path]) if file.is_file()]
    site, confs = Site(), []
    for file in files:
        text = read_text(file)
        kind = kind_of_conf(file.name, text[:65_536])
        kind = kind or ("conf" if file in paths else None)
        if kind == "conf":
            confs.append(file)
        elif kind:
            add_listing(site, kind, text, file.name)
    add_confs(site, confs, folders)
    return site


def add_confs(site: Site, confs: Iterable[Path], folders: Iterable[Path]) -> None:
    """Read slurm.conf with what it includes, then pieces that nothing includes."""
    whole_first = sorted(dict.fromkeys(confs), key=lambda file: (file.name != "slurm.conf", file.name))
    for file in whole_first:
        if file.name not in site.conf.files:
            parse(file, site.conf, folders)
            site.files.append(file.name)


def add_listing(site: Site, kind: str, text: str, name: str) -> None:
    """Add what a command printed."""
    if kind == "config":
        shown_config(text, site.shown)
    elif kind == "partition":
        site.partitions += shown_blocks(text, "PartitionName")
    elif kind == "reservation":
        site.reservations += shown_blocks(text, "ReservationName")
    elif kind == "accounts":
        site.accounts += read_accounts(text)
    elif kind == "qos":
        site.qos += read_qos(text)
    elif kind == "shares":
        site.shares += read_shares(text)
    elif kind == "dump":
        site.accounts += read_dump(text)
    elif kind == "reservation log":
        site.reservations += _logged_reservations(text)
    elif kind == "events":
        site.events.append(text)
    elif kind == "collected":
        site.collected |= dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    if kind != "sdiag":
        site.files.append(name)


def slurm_of(site: Site, zone: str = "UTC") -> Slurm:
    """Make the record of a site; times of reservations by the clock of `zone`."""
    values = site.values
    parameters = values.get("schedulerparameters", "")
    preempt = values.get("preempttype", "preempt/none").removeprefix("preempt/")
    modes = [word.strip().lower() for word in values.get("preemptmode", "off").split(",")]
    backfill = backfill_loop(parameters)
    on = values.get("schedulertype", "sched/backfill").endswith("backfill") and backfill.on
    return Slurm(
        partitions=_partitions(site),
        qos=tuple(site.qos),
        queues=QueueTree(queue_tree(site.accounts, site.shares)),
        priority=_priority(values),
        main=main_loop(parameters),
        backfill=replace(backfill, on=on),
        enforce=_enforced(values.get("accountingstorageenforce", "")),
        preempt={"partition_prio": "partition"}.get(preempt, preempt),
        preempt_mode=_preempt_mode(values),
        gang="gang" in modes,
        exempt=_seconds(values.get("preemptexempttime", ""), 0.0, seconds=True),
        reservations=_reservations(site, zone),
        complete_wait=_seconds(values.get("completewait", ""), 0.0, seconds=True),
        kill_wait=_seconds(values.get("killwait", ""), 30.0, seconds=True),
        over_time=_seconds(values.get("overtimelimit", ""), 0.0),
        select=_select(site, values),
        select_flags=_words(values.get("selecttypeparameters", "").upper()),
        parameters=(*left_over(parameters), *_words(values.get("dependencyparameters", ""))),
        version=values.get("slurm_version", ""),
    )


def site_notes(site: Site, slurm: Slurm) -> tuple[str, ...]:
    """Say what was read of a site, and what could not be."""
    values = site.values
    scripts = [key for key in ("prolog", "epilog", "prologslurmctld", "epilogslurmctld") if values.get(key)]
    notes = {
        f"the site's Slurm is read from: {', '.join(dict.fromkeys(site.files))}": True,
        f"files that the configuration includes are missing: {', '.join(site.conf.missing)}": site.conf.missing,
        f"the site runs {', '.join(scripts)}, but no file says for how long: set `prolog` and `epilog`": scripts,
        f"settings of the scheduler that are kept and not used: {', '.join(slurm.parameters)}": slurm.parameters,
        "no partition is configured: a job may use any node": not slurm.partitions,
        "jobs are ordered by fair share, but no file has the accounts: `sacctmgr show assoc -P`":
            slurm.priority.weights.fair_share and not slurm.queues,
        "jobs are ordered by QOS, but no file has these: `sacctmgr show qos -P`":
            slurm.priority.weights.qos and not slurm.qos,
    }  # fmt: skip
    return tuple(note for note, holds in notes.items() if holds)


# -- parts ---------------------------------------------------------------------------------------------------------


def _preempt_mode(values: Mapping[str, str]) -> str:
    modes = (word.strip().lower() for word in values.get("preemptmode", "off").split(","))
    return next((mode for mode in modes if mode != "gang"), "off")


def _enforced(text: str) -> tuple[str, ...]:
    """What is enforced; `safe` and `qos` imply limits, and all of these associations."""
    words = set(_words(text.lower()))
    words |= {"associations", "limits", "qos"} if "all" in words else set()
    words |= {"limits"} if words & {"safe"} else set()
    words |= {"associations"} if words & {"limits", "qos", "wckeys"} else set()
    return tuple(sorted(words - {"none", "0", "all"}))


def _select(site: Site, values: Mapping[str, str]) -> str:
    whole = "clustername" in site.conf.values and not site.shown.values
    default = "linear" if whole else Slurm().select  # slurm.conf(5): select/linear where it says nothing
    return values.get("selecttype", f"select/{default}").removeprefix("select/")


def _priority(values: Mapping[str, str]) -> Priority:
    def number(key: str) -> float:
        text = values.get(f"priorityweight{key}", "") or "0"
        return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else 0.0

    tres = values.get("priorityweighttres", "")
    weights = Weights(
        age=number("age"),
        association=number("assoc"),
        fair_share=number("fairshare"),
        job_size=number("jobsize"),
        partition=number("partition"),
        qos=number("qos"),
        tres=weights_of(tres, per_mib=False),
    )
    usual = Priority()
    return Priority(
        multifactor=values.get("prioritytype", "").endswith("multifactor"),
        weights=weights,
        max_age=_seconds(values.get("prioritymaxage", ""), usual.max_age),
        half_life=_seconds(values.get("prioritydecayhalflife", ""), usual.half_life, zero=True),
        calc_period=_seconds(values.get("prioritycalcperiod", ""), usual.calc_period),
        flags=_words(values.get("priorityflags", "").upper()),
        favor_small=values.get("priorityfavorsmall", "").lower() in YES,
    )


def weights_of(text: str, *, per_mib: bool) -> dict[str, float]:
    """Return weights by resource; a weight of memory is for a MiB, or with a suffix for that much.

    >>> weights_of("CPU=1.0,Mem=0.25G,GRES/gpu=2.0", per_mib=True)
    {'cpu': 1.0, 'memory': 0.000244140625, 'gpu': 2.0}
    """
    found = {}
    for name, _, value in (part.strip().partition("=") for part in text.split(",")):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", value.strip().upper())
        if name and match:
            unit = {"K": 1 / 1024, "G": 1024, "T": 1024**2, "P": 1024**3}.get(match[2], 1) if per_mib else 1
            found[resource(name)] = float(match[1]) / unit
    return found


def _partitions(site: Site) -> tuple[Partition, ...]:
    rows = {row["partitionname"]: row for row in site.conf.of("partitionname")}
    rows |= {row["partitionname"]: rows.get(row["partitionname"], {}) | row for row in site.partitions}
    found = [_partition(name, row) for names, row in rows.items() for name in names.split(",")]
    # What is shown of a partition is its own mode or, as a rule, the one of the whole cluster.
    usual = _preempt_mode(site.values)
    return tuple(replace(p, preempt_mode=None) if p.preempt_mode == usual else p for p in found)


def _partition(name: str, row: Entry) -> Partition:
    usual = Partition(name)
    priority = row.get("priority", "1")  # of versions before 17: of both
    mode = row.get("preemptmode", "").split(",")[0].lower()
    default_time = row.get("defaulttime", "")
    return Partition(
        name,
        default=row.get("default", "").lower() in YES,
        tier=_whole(row.get("prioritytier", priority), 1),
        factor=_whole(row.get("priorityjobfactor", priority), 1),
        state=row.get("state", "up").lower(),
        max_time=_seconds(row.get("maxtime", ""), math.inf),
        default_time=_seconds(default_time, math.inf) if _given(default_time) else None,
        max_nodes=_whole(row.get("maxnodes", ""), math.inf),
        min_nodes=int(_whole(row.get("minnodes", ""), 0)),
        qos=_name(row.get("qos", "")),
        oversubscribe=_oversubscribe(row.get("oversubscribe", row.get("shared", "no"))),
        preempt_mode=mode or None,
        grace=_seconds(row.get("gracetime", ""), usual.grace, seconds=True),
        allow_accounts=_names(row.get("allowaccounts", "")),
        deny_accounts=_names(row.get("denyaccounts", "")),
        allow_qos=_names(row.get("allowqos", "")),
        deny_qos=_names(row.get("denyqos", "")),
        billing=weights_of(row.get("tresbillingweights", ""), per_mib=True),
        over_time=_seconds(row["overtimelimit"], 0.0) if _given(row.get("overtimelimit", "")) else None,
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
    found: dict[str, list[str]] = {}
    for partition, text in rows.items():
        text = ",".join(sets.get(part, part) for part in re.split(r",(?![^\[]*\])", text))
        names = there if "ALL" in text.upper().split(",") else _expanded(text)
        for name in names:
            found.setdefault(name, []).append(partition)
    return found


def _expanded(text: str) -> list[str]:
    try:
        return expand(text)
    except ValueError as e:
        msg = f"not a list of nodes in the configuration: {text[:80]}"
        raise TraceError(msg, hint=str(e)) from None


def _logged_reservations(text: str) -> list[Entry]:
    """Rows of `sacctmgr show reservation -P`, with the keys of `scontrol show reservation`."""
    lines = text.splitlines()
    names = lines[0].lower().replace(" ", "").split("|")
    same = {"name": "reservationname", "timestart": "starttime", "timeend": "endtime", "nodename": "nodes"}
    same |= {"nodenames": "nodes", "assoc": "assocs"}
    rows = [dict(zip([same.get(n, n) for n in names], line.split("|"), strict=False)) for line in lines[1:]]
    return [row for row in rows if row.get("reservationname")]


def _reservations(site: Site, zone: str) -> tuple[Reservation, ...]:
    by_id = {row.texts["id"].strip(): row for row in site.accounts if row.texts.get("id", "").strip()}
    found: dict[tuple[str, float], Reservation] = {}
    for row in site.reservations:
        times = pl.Series([row.get("starttime"), row.get("endtime")], dtype=pl.String)
        begin, end = moments(times, zone)[0]
        if begin is None or end is None:
            continue
        # The log of reservations names who may use one by associations.
        who = [by_id[k] for k in row.get("assocs", "").split(",") if k in by_id]
        users = _names(row.get("users", "")) or tuple(dict.fromkeys(a.user for a in who if a.user))
        accounts = _names(row.get("accounts", "")) or tuple(a.account for a in who if not a.user)
        nodes, flags = tuple(_expanded(row.get("nodes", ""))), _words(row.get("flags", ""))
        name = row["reservationname"]
        found.setdefault((name, begin), Reservation(name, begin, end, nodes, users, accounts, flags))
    return tuple(found.values())


# -- values --------------------------------------------------------------------------------------------------------


def _given(text: str) -> bool:
    return text.strip().lower() not in ("", "none", "n/a", "(null)")


def _name(text: str) -> str | None:
    return text if _given(text) else None


def _names(text: str) -> tuple[str, ...]:
    return () if not _given(text) or text.upper() == "ALL" else _words(text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for part in text.split(",") if (word := part.strip()) and _given(word))


def _whole(text: str, default: float) -> int:
    return int(text) if text.isdigit() else default  # type: ignore[return-value]


def _seconds(text: str, default: float, *, seconds: bool = False, zero: bool = False) -> float:
    """A length of time: a number alone is in minutes, or in `seconds`; `300 sec` as `scontrol show config` writes."""
    text = text.strip().lower()
    if not _given(text):
        return default
    if text in ("unlimited", "infinite", "-1"):
        return math.inf
    if match := re.fullmatch(r"(\d+)\s*(sec|min|usec)", text):
        return float(match[1]) * {"sec": 1, "min": 60, "usec": 1e-6}[match[2]]
    if seconds and text.isdigit():
        return float(text)
    try:
        return limit(text) or 0.0
    except ValueError as e:
        msg = f"the configuration has {e}"
        raise TraceError(msg, hint="minutes, minutes:seconds, hours:minutes:seconds or days-hours") from None
