"""A site's Slurm with some lines of its configuration changed, and what that changes, line by line.

What is not named stays as it is. Beside lines of slurm.conf there may be an entry of SchedulerParameters alone
(`bf_interval=60`), and lines for what sacctmgr sets: `QOS=normal MaxTRESPerUser=gres/gpu=8`, `Account=vision
Fairshare=40`, `Account=vision User=ann MaxJobs=2`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from fleetlab.core import Cluster, TraceError
from fleetlab.core.names import clip, lookup
from fleetlab.core.queues import Qos, Queue, QueueTree
from fleetlab.core.schedulers import NOT_SET, ConfigChange, Setting
from fleetlab.schedulers.slurm.config import Slurm
from fleetlab.schedulers.slurm.reader import conf_keys as keys
from fleetlab.schedulers.slurm.reader.accounts import Account, qos_of, queue_of
from fleetlab.schedulers.slurm.reader.conf import read_site, slurm_of
from fleetlab.schedulers.slurm.reader.conf_keys import BACKFILL, BACKFILL_FLAGS, MAIN, MAIN_FLAGS, settings
from fleetlab.schedulers.slurm.reader.conf_text import ConfText, Entry, lines_of, pairs_of
from fleetlab.schedulers.slurm.reader.conf_values import YES
from fleetlab.schedulers.slurm.reader.conf_writer import qos_words, queue_words, slurm_conf
from fleetlab.schedulers.slurm.reader.partitions import partition_nodes
from fleetlab.schedulers.slurm.reader.site_text import Site

FIELDS = (  # of a site that slurm.conf sets, beside those of select
    *("partitions", "priority", "main", "backfill", "enforce", "enforce_partitions", "preempt", "gang"),
    *("preempt_mode", "within", "exempt", "requeue", "complete_wait", "kill_wait", "over_time"),
)
HINT = "a file of lines as in slurm.conf, or one line: bf_interval=60, PartitionName=long MaxTime=1-0"


def change_conf(slurm: Slurm, cluster: Cluster, conf: Path | str) -> ConfigChange:
    """Change some lines of a site's configuration: those of a file, or one line."""
    given, name, inline = _given(conf)
    unknown = _check(given, name)
    if unknown and inline and "\n" not in name:  # of a whole file most lines are of no concern here, and a note says so
        keys.known_key(unknown[0], (*keys.KEYS, *keys.PARAMETERS, *keys.LINES))
    text = _written(slurm, cluster)
    _same_partitions(slurm, given)
    _override(text, given)
    site = Site(conf=text)
    rules = slurm_of(site)
    changed = replace(
        slurm,
        **{field: getattr(rules, field) for field in FIELDS},
        select=rules.select,
        select_flags=rules.select_flags,
        parameters=tuple(dict.fromkeys(rules.parameters)),
        qos=_qos(slurm, given.of("qos")),
        queues=_queues(slurm, given.of("account")),
    )
    moved = any("nodes" in row for row in given.of("partitionname"))
    nodes = _with_partitions(cluster, site) if moved else cluster
    differences = tuple(_differences(slurm, cluster, changed, nodes))
    return ConfigChange(name, changed, differences, _notes(given, unknown), nodes if moved else None)


# -- what is given -----------------------------------------------------------------------------------------------------


def _given(conf: Path | str) -> tuple[ConfText, str, bool]:
    """Read a file, or lines given as text."""
    text = str(conf)
    if not text.strip():
        msg = "an empty name instead of a slurm.conf"
        raise TraceError(msg, hint=HINT)
    path = Path(text)
    if isinstance(conf, str) and ("\n" in conf or ("=" in conf and not path.exists())):
        given = ConfText()
        for line in lines_of(conf):
            given.add(pairs_of(line))
        if not given.values and not given.entries:
            msg = f"not a line of slurm.conf: `{clip(conf)}`"
            raise TraceError(msg, hint=HINT)
        return given, text.strip(), True
    if not path.exists():
        msg = f"no such file: {clip(text)}"
        raise TraceError(msg, hint=HINT)
    site = read_site(path)
    given = site.conf
    given.values |= {key: value for key, value in site.running.values.items() if value}
    given.entries.setdefault("partitionname", []).extend(site.partitions)
    if not given.values and not any(given.entries.values()):
        msg = f"no line of slurm.conf in: {path.name}"
        raise TraceError(msg, hint=HINT)
    return given, path.name, False


def _check(given: ConfText, where: str) -> list[str]:
    """Refuse values of another form; return the keys that change nothing here."""
    unknown = keys.check_pairs(where, given.values, keys.KEYS | keys.PARAMETERS)
    unknown += keys.check_parameters(where, given.values.get("schedulerparameters", ""))
    for first, known in keys.LINES.items():
        for row in given.of(first.lower()):
            rest = {key: value for key, value in row.items() if key != first.lower()}
            unknown += keys.check_pairs(f"{where}: {first}={row[first.lower()]}", rest, known)
    return list(dict.fromkeys(unknown))


def _same_partitions(slurm: Slurm, given: ConfText) -> None:
    """Refuse partitions that the site does not have, unless their nodes are given."""
    names = [part.name for part in slurm.partitions]
    for row in given.of("partitionname"):
        name = row["partitionname"]
        if name.lower() != "default" and name not in names and "nodes" not in row:
            msg = f"no partition by that name: `{clip(name)}`"
            raise TraceError(msg, hint=f"the site has {', '.join(names)}; a new one needs Nodes=")


def _notes(given: ConfText, unknown: Iterable[str]) -> tuple[str, ...]:
    nodes = "lines of nodes are passed over: they stay those of the trace"
    passed = f"settings that change nothing here: {', '.join(map(keys.with_closest, sorted(unknown)))}"
    missing = f"files that it includes are missing: {', '.join(given.missing)}"
    return tuple(
        note for note, holds in ((nodes, given.of("nodename")), (passed, unknown), (missing, given.missing)) if holds
    )


# -- the rules of the site, and what is put over them ------------------------------------------------------------------


def _written(slurm: Slurm, cluster: Cluster) -> ConfText:
    """Return the site's configuration as text, also what has no effect as long as something is off."""
    preempt = slurm.preempt if slurm.preempt != "none" else "qos"
    everything = replace(slurm, priority=replace(slurm.priority, multifactor=True), preempt=preempt)
    text = ConfText()
    for line in lines_of(slurm_conf(cluster, everything)):
        text.add(pairs_of(line))
    text.values = {name.lower(): "0" for name, form in keys.KEYS.items() if form is keys.NUMBER} | text.values
    if not slurm.priority.multifactor:
        text.values["prioritytype"] = "priority/basic"
    if slurm.preempt == "none":
        text.values["preempttype"] = "preempt/none"
    return text


def _override(text: ConfText, given: ConfText) -> None:
    """Put what is given over what is there."""
    text.values |= {key: value for key, value in given.values.items() if key not in keys.PARAMETERS}
    entries = settings(text.values.get("schedulerparameters", ""))
    for key in keys.PARAMETERS:
        if key in given.values:
            entries.pop(key, None)
            if key in keys.NUMBERS or given.values[key].lower() in YES:
                entries[key] = given.values[key] if key in keys.NUMBERS else ""
    text.values["schedulerparameters"] = ",".join(f"{k}={v}" if v else k for k, v in entries.items())
    rows = {row["partitionname"]: row for row in text.of("partitionname")}
    for row in given.of("partitionname"):
        for name in row["partitionname"].split(","):
            rows[name] = rows.get(name, {}) | row | {"partitionname": name}
    text.entries["partitionname"] = list(rows.values())
    text.entries["nodeset"] = given.of("nodeset")


def _with_partitions(cluster: Cluster, site: Site) -> Cluster:
    """Return the cluster with its nodes in the partitions that the configuration puts them in."""
    names = cluster.frame["node"].to_list()
    of_node = partition_nodes(site, names)
    lists = pl.Series("partitions", [of_node.get(name, []) for name in names], dtype=pl.List(pl.String))
    return Cluster.of(cluster.frame.with_columns(lists), source=cluster.source)


def _qos(slurm: Slurm, rows: Iterable[Entry]) -> tuple[Qos, ...]:
    there = {qos.name: qos for qos in slurm.qos}
    for row in rows:
        name = lookup("QOS", row["qos"], there, error=TraceError)
        there[name] = qos_of(_modified(qos_words(there[name]), row, keys.QOS) | {"name": name})
    return tuple(there.values())


def _queues(slurm: Slurm, rows: Iterable[Entry]) -> QueueTree:
    there = dict(slurm.queues)
    for row in rows:
        name = f"{row['account']}/{row['user']}" if "user" in row else row["account"]
        lookup("account", name, there, error=TraceError)
        there[name] = _queue(there[name], row)
    return QueueTree(there.values())


def _queue(queue: Queue, row: Entry) -> Queue:
    texts = _modified(queue_words(queue), row, keys.ACCOUNT)
    made = queue_of(Account(row["account"], row.get("user", ""), queue.parent, texts), {})
    same = ("shares", "limits", "per_user", "job", "priority")
    return replace(queue, **{field: getattr(made, field) for field in same})


def _texts(words: Iterable[str]) -> Entry:
    """Return words of sacctmgr by what they are called in its listings."""
    pairs = (word.partition("=") for word in words)
    return {keys.listed(key): value for key, _, value in pairs}


def _modified(words: Iterable[str], row: Entry, known: Mapping[str, keys.Form]) -> Entry:
    """Return the words with those of a line in their place; of resources, those that it names."""
    texts = _texts(words)
    for key, value in row.items():
        if name := keys.spelled(key, known):
            both = f"{texts.get(name.lower(), '')},{value}" if known[name] is keys.TRES else value
            texts[name.lower()] = both.strip(",")
    return texts


# -- what changes ------------------------------------------------------------------------------------------------------


def _differences(old: Slurm, nodes: Cluster, new: Slurm, moved: Cluster) -> list[Setting]:
    """Return the settings that differ, each side as text."""
    texts = _written(old, nodes), _written(new, moved)
    was, becomes = (text.values | _parameters(slurm) for text, slurm in zip(texts, (old, new), strict=True))
    others = {name: name for name in settings(",".join((*old.parameters, *new.parameters)))}
    names = {name.lower(): name for name in (*keys.KEYS, *keys.PARAMETERS)} | others
    changes = _changed("", was, becomes, names)
    partitions = [{row["partitionname"]: row for row in text.of("partitionname")} for text in texts]
    changes += _changed_rows("PartitionName", partitions, keys.PARTITION)
    classes = [{q.name: _texts(qos_words(q)) for q in slurm.qos} for slurm in (old, new)]
    changes += _changed_rows("QOS", classes, keys.QOS)
    queues = [{name: _texts(queue_words(q)) for name, q in slurm.queues.items()} for slurm in (old, new)]
    return changes + _changed_rows("Account", queues, keys.ACCOUNT)


def _changed_rows(first: str, sides: Sequence[Mapping[str, Entry]], known: Iterable[str]) -> list[Setting]:
    was, becomes = sides
    names, changes = {name.lower(): name for name in known}, []
    for row, after in becomes.items():
        before = was.get(row, {})
        if before != after:
            user = row.replace("/", " User=") if first == "Account" else row
            changes += _changed(f"{first}={user} ", before, after, names)
    return changes


def _changed(prefix: str, was: Entry, becomes: Entry, names: Mapping[str, str]) -> list[Setting]:
    return [
        Setting(prefix + names[key], before, after)
        for key in names
        if key != "schedulerparameters" and (before := was.get(key, NOT_SET)) != (after := becomes.get(key, NOT_SET))
    ]


def _parameters(slurm: Slurm) -> Entry:
    """Return every entry of SchedulerParameters, also those at their defaults."""
    entries = {}
    for loop, numbers, flags in ((slurm.main, MAIN, MAIN_FLAGS), (slurm.backfill, BACKFILL, BACKFILL_FLAGS)):
        for name, (field, times) in numbers.items():
            value = getattr(loop, field)
            entries[name] = NOT_SET if value is None else f"{round(value / times)}"
        entries |= {name: "yes" if getattr(loop, field) else "no" for name, field in flags.items()}
    entries["bf_one_resv_per_job"] = "yes" if slurm.backfill.one_reservation else "no"
    del entries["max_job_bf"]  # an older name of bf_max_job_test
    return entries | {name: value or "yes" for name, value in settings(",".join(slurm.parameters)).items()}
