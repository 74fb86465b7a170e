"""A site's Slurm, from its configuration: slurm.conf with includes, `scontrol show`, `sacctmgr`, `sshare`.

What was running counts before what stands in a file: `scontrol show` before slurm.conf. How long a prolog or an epilog
takes is in none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl

from fleetlab.core import TraceError
from fleetlab.core.queues import QueueTree
from fleetlab.schedulers.slurm.config import Priority, Reservation, Slurm, Weights
from fleetlab.schedulers.slurm.reader.accounts import (
    HEADER_LINES,
    is_accounts,
    is_qos,
    is_shares,
    queue_tree,
    read_accounts,
    read_dump,
    read_qos,
    read_shares,
)
from fleetlab.schedulers.slurm.reader.conf_keys import backfill_loop, left_over, main_loop, not_numbers
from fleetlab.schedulers.slurm.reader.conf_text import Entry, parse, read_text, shown_blocks, shown_config
from fleetlab.schedulers.slurm.reader.conf_values import YES, names_of, seconds_of, weights_of, words_of
from fleetlab.schedulers.slurm.reader.events import is_events
from fleetlab.schedulers.slurm.reader.partitions import expanded, partitions_of, preempt_mode
from fleetlab.schedulers.slurm.reader.site_text import Site
from fleetlab.schedulers.slurm.reader.summary import cycles_note
from fleetlab.traces.input.times import moments

COLLECTED = "collected.txt"
NUMBER = re.compile(r"\d+(\.\d+)?")
WEIGHTS = ("Age", "Assoc", "FairShare", "JobSize", "Partition", "QOS")
# What a file is, by how it begins.
KINDS: dict[str, re.Pattern[str]] = {
    "config": re.compile(r"^Configuration data as of", re.MULTILINE),
    "partition": re.compile(r"^PartitionName=\S+[^\n]*\n\s+Allow|^PartitionName=\S+ AllowGroups=", re.MULTILINE),
    "reservation": re.compile(r"^ReservationName=\S+ StartTime=|No reservations in the system", re.MULTILINE),
    "dump": re.compile(r"^Cluster - '", re.MULTILINE),
    "sdiag": re.compile(r"^sdiag output at", re.MULTILINE),
}
# Entries of SchedulerParameters and DependencyParameters that the simulation knows, beside those with fields.
USED = ("assoc_limit_stop", "kill_invalid_depend", "preempt_youngest_first", "preempt_strict_order",
        "preempt_reorder_count")  # fmt: skip
OTHERS = ("gres.conf", "topology.conf", "cgroup.conf", "slurmdbd.conf", "acct_gather.conf", "helpers.conf")
_CONF = re.compile(
    r"^\s*(?:ClusterName|PartitionName|NodeName|Priority\w+|Scheduler\w+|Preempt\w+|Select\w+|include)\s*[= ]",
    re.MULTILINE | re.IGNORECASE,
)


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
        shown_config(text, site.running)
    elif kind == "partition":
        site.partitions += shown_blocks(text, "PartitionName")
    elif kind == "reservation":
        site.reservations += shown_blocks(text, "ReservationName")
    elif kind == "accounts":
        site.accounts += read_accounts(text)
    elif kind == "qos":
        try:
            site.qos += read_qos(text)
        except ValueError as e:
            msg = f"{name}: {e}"
            raise TraceError(msg, hint="write it again: sacctmgr show qos -P") from None
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
    elif kind == "sdiag":
        site.statistics.append(text)
    site.files.append(name)


def slurm_of(site: Site, zone: str = "UTC") -> Slurm:
    """Make the record of a site; times of reservations by the clock of `zone`."""
    try:
        return _slurm(site, zone)
    except ValueError as e:
        msg = f"the configuration of Slurm cannot be read: {e}"
        raise TraceError(msg, hint=f"it is in {', '.join(sorted(site.all_files))}") from None


def _slurm(site: Site, zone: str) -> Slurm:
    values = site.values
    parameters = values.get("schedulerparameters", "")
    preempt = values.get("preempttype", "preempt/none").removeprefix("preempt/")
    modes = [word.strip().lower() for word in values.get("preemptmode", "off").split(",")]
    backfill = backfill_loop(parameters)
    on = values.get("schedulertype", "sched/backfill").endswith("backfill") and backfill.on
    return Slurm(
        partitions=partitions_of(site),
        qos=tuple(site.qos),
        queues=QueueTree(queue_tree(site.accounts, site.shares)),
        priority=_priority(values),
        main=main_loop(parameters),
        backfill=replace(backfill, on=on),
        enforce=_enforced(values.get("accountingstorageenforce", "")),
        enforce_partitions=_enforced_partitions(values.get("enforcepartlimits", "no")),
        preempt={"partition_prio": "partition"}.get(preempt, preempt),
        preempt_mode=preempt_mode(values),
        gang="gang" in modes,
        within="within" in modes,
        exempt=seconds_of(values.get("preemptexempttime", ""), 0.0, seconds=True),
        requeue=values.get("jobrequeue", "1").strip() not in ("0", "no", "false"),
        reservations=_reservations(site, zone),
        complete_wait=seconds_of(values.get("completewait", ""), 0.0, seconds=True),
        kill_wait=seconds_of(values.get("killwait", ""), 30.0, seconds=True),
        over_time=seconds_of(values.get("overtimelimit", ""), 0.0),
        select=_select(site, values),
        select_flags=words_of(values.get("selecttypeparameters", "").upper()),
        parameters=(*left_over(parameters), *words_of(values.get("dependencyparameters", ""))),
        version=values.get("slurm_version", ""),
    )


def runs_epilog(site: Site) -> bool:
    """Whether the site runs something on its nodes after each job."""
    return any(site.values.get(key, "(null)") not in ("", "(null)") for key in ("epilog", "epilogslurmctld"))


def site_notes(site: Site, slurm: Slurm) -> tuple[str, ...]:
    """Say what was read of a site, and what could not be."""
    wrong = (*not_numbers(site.values.get("schedulerparameters", "")), *_wrong_weights(site.values))
    unused = [word for word in slurm.parameters if word.partition("=")[0] not in USED]
    notes = {
        f"the site's Slurm is read from: {', '.join(sorted(site.all_files))}": True,
        f"files that the configuration includes are missing: {', '.join(site.conf.missing)}": site.conf.missing,
        f"the site runs an epilog: nodes take {slurm.epilog:g} s after a job before the next starts there, by the log":
            runs_epilog(site),
        f"settings of the scheduler that are kept and not used: {', '.join(unused)}": unused,
        f"settings that are not numbers, their defaults hold: {', '.join(wrong)}": wrong,
        "no partition is configured: a job may use any node": not slurm.partitions,
        "jobs are ordered by fair share, but no file has the accounts: `sacctmgr show assoc -P`":
            slurm.priority.weights.fair_share and not slurm.queues,
        "jobs are ordered by QOS, but no file has these: `sacctmgr show qos -P`":
            slurm.priority.weights.qos and not slurm.qos,
    }  # fmt: skip
    cycles = (cycles_note(text) for text in site.statistics)
    return (*(note for note, holds in notes.items() if holds), *(note for note in cycles if note))


# -- parts ---------------------------------------------------------------------------------------------------------


def _enforced(text: str) -> tuple[str, ...]:
    """What is enforced; `safe` and `qos` imply limits, and all of these associations."""
    words = set(words_of(text.lower()))
    words |= {"associations", "limits", "qos"} if "all" in words else set()
    words |= {"limits"} if words & {"safe"} else set()
    words |= {"associations"} if words & {"limits", "qos", "wckeys"} else set()
    return tuple(sorted(words - {"none", "0", "all"}))


def _enforced_partitions(text: str) -> str:
    """Return which of its partitions must admit a job: yes and true are all."""
    word = text.strip().lower()
    return {"yes": "all", "true": "all"}.get(word, word if word in ("any", "all") else "no")


def _select(site: Site, values: Mapping[str, str]) -> str:
    whole = "clustername" in site.conf.values and not site.running.values
    default = "linear" if whole else Slurm().select  # slurm.conf(5): select/linear where it says nothing
    return values.get("selecttype", f"select/{default}").removeprefix("select/")


def _wrong_weights(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the weights of priorities that are not numbers."""
    given = {f"PriorityWeight{key}": values.get(f"priorityweight{key.lower()}", "") for key in WEIGHTS}
    return tuple(f"{name}={text}" for name, text in given.items() if text and not NUMBER.fullmatch(text))


def _priority(values: Mapping[str, str]) -> Priority:
    def number(key: str) -> float:
        text = values.get(f"priorityweight{key}", "") or "0"
        return float(text) if NUMBER.fullmatch(text) else 0.0

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
        max_age=seconds_of(values.get("prioritymaxage", ""), usual.max_age),
        half_life=seconds_of(values.get("prioritydecayhalflife", ""), usual.half_life),
        calc_period=seconds_of(values.get("prioritycalcperiod", ""), usual.calc_period),
        flags=words_of(values.get("priorityflags", "").upper()),
        favor_small=values.get("priorityfavorsmall", "").lower() in YES,
    )


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
    reserved: dict[tuple[str, float], Reservation] = {}
    for row in site.reservations:
        times = pl.Series([row.get("starttime"), row.get("endtime")], dtype=pl.String)
        begin, end = moments(times, zone)[0]
        if begin is None or end is None:
            continue
        # The log of reservations names who may use one by associations.
        who = [by_id[k] for k in row.get("assocs", "").split(",") if k in by_id]
        users = names_of(row.get("users", "")) or tuple(dict.fromkeys(a.user for a in who if a.user))
        accounts = names_of(row.get("accounts", "")) or tuple(a.account for a in who if not a.user)
        nodes, flags = tuple(expanded(row.get("nodes", ""))), words_of(row.get("flags", ""))
        name = row["reservationname"]
        reserved.setdefault((name, begin), Reservation(name, begin, end, nodes, users, accounts, flags))
    return tuple(reserved.values())
