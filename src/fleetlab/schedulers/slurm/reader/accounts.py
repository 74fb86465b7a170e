"""Accounts, their users and QOS, from `sacctmgr show assoc|qos -P`, `sacctmgr dump` and `sshare -P`, as queues."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from fleetlab.core.queues import JobLimits, Limits, Qos, Queue
from fleetlab.schedulers.slurm.reader.conf_text import limit
from fleetlab.schedulers.slurm.reader.tres import mebibytes, tres

ROOT = "root"
PARENT = ("parent", "2147483647")  # no share of its own: as a word, and as a dump has it
HEADER_LINES = 3  # a listing may begin with the time when it was made
# Names of columns by those that they had, or have in a dump, without case and spaces.
SAME = {
    "parname": "parent", "parentname": "parent", "share": "shares", "rawshares": "shares",
    "defqos": "defaultqos", "grpsubmitjobs": "grpsubmit", "maxsubmitjobs": "maxsubmit", "maxtresperjob": "maxtres",
    "maxtresminsperjob": "maxtresmins", "maxwalldurationperjob": "maxwall", "maxwallpj": "maxwall",
    "maxtrespj": "maxtres", "maxtrespn": "maxtrespernode", "maxtresperuser": "maxtrespu", "maxjobsperuser": "maxjobspu",
    "maxsubmitjobspu": "maxsubmitpu", "maxsubmitjobsperuser": "maxsubmitpu", "maxtresperaccount": "maxtrespa",
    "maxjobsperaccount": "maxjobspa", "maxsubmitjobspa": "maxsubmitpa", "mintresperjob": "mintres",
    "maxtresminspj": "maxtresmins", "mintrespj": "mintres",
}  # fmt: skip
_RESOURCES = {"gres/gpu": "gpu", "mem": "memory"}
_DUMP = re.compile(r"(Cluster|Parent|Account|User) - '([^']*)'(.*)")

Texts = dict[str, str]


@dataclass(frozen=True)
class Account:
    """An account, or a user in one, as it is listed."""

    account: str
    user: str = ""
    parent: str | None = None  # None: the listing does not say
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its queue."""
        return f"{self.account}/{self.user}" if self.user else self.account


def is_accounts(header: str) -> bool:
    """Whether a line is the header of `sacctmgr show assoc -P`."""
    names = set(_columns(header))
    return {"cluster", "account", "user", "shares"} <= names and "jobid" not in names


def is_shares(header: str) -> bool:
    """Whether a line is the header of `sshare -P`."""
    names = set(_columns(header))
    return {"account", "user"} <= names and bool({"shares", "rawusage"} & names) and "cluster" not in names


def is_qos(header: str) -> bool:
    """Whether a line is the header of `sacctmgr show qos -P`."""
    names = set(_columns(header))
    return {"name", "priority"} <= names and bool({"preempt", "gracetime", "usagefactor", "maxtrespu"} & names)


def _columns(header: str) -> list[str]:
    names = [re.sub(r"[ _]", "", name).lower() for name in header.split("|")]
    return [SAME.get(name, name) for name in names]


def _rows(text: str, fits: Callable[[str], bool]) -> Iterator[Texts]:
    """The rows below the header, with what each column is called here."""
    lines = [line for line in text.splitlines() if line.strip()]
    at = next((k for k, line in enumerate(lines[:HEADER_LINES]) if fits(line)), None)
    if at is None:
        return
    names = _columns(lines[at])
    for line in lines[at + 1 :]:
        values = line.split("|")
        if len(values) >= len(names):
            yield dict(zip(names, values, strict=False))


# -- listings ------------------------------------------------------------------------------------------------------


def read_accounts(text: str) -> list[Account]:
    """Read `sacctmgr show assoc -P`; what holds for one partition alone is passed over."""
    rows = [row for row in _rows(text, is_accounts) if not row.get("partition", "").strip()]
    parents = _indented([row["account"] for row in rows])
    accounts = []
    for row, above in zip(rows, parents, strict=True):
        account, user = row["account"].strip(), row.get("user", "").strip()
        parent = account if user else row.get("parent", "").strip() or above
        accounts.append(Account(account, user, parent, row))
    return accounts


def read_shares(text: str) -> list[Account]:
    """Read `sshare -a -P`, whose accounts are indented by their depth in the tree."""
    rows = list(_rows(text, is_shares))
    parents = _indented([row["account"] for row in rows])
    return [
        Account(row["account"].strip(), row["user"].strip(), row["account"].strip() if row["user"].strip() else above,
                {k: v for k, v in row.items() if k in ("shares", "rawusage")})
        for row, above in zip(rows, parents, strict=True)
    ]  # fmt: skip


def _indented(names: list[str]) -> list[str | None]:
    """The account above each, by how far it is indented; None where none is."""
    deep = any(name.startswith(" ") for name in names)
    path: list[tuple[int, str]] = []
    above: list[str | None] = []
    for name in names:
        depth = len(name) - len(name.lstrip())
        path = [(d, n) for d, n in path if d < depth]
        above.append(path[-1][1] if deep and path else None)
        path.append((depth, name.strip()))
    return above


def read_dump(text: str) -> list[Account]:
    """Read the file that `sacctmgr dump` writes: the children of each account stand below `Parent - 'it'`."""
    accounts: list[Account] = []
    parent = ROOT
    for line in text.splitlines():
        if not (match := _DUMP.fullmatch(line.strip())):
            continue
        kind, name, more = match.groups()
        pairs = (part.partition("=") for part in re.split(r":(?=[A-Z]\w*=)", more) if part)
        texts = {SAME.get(key.lower(), key.lower()): value.strip("'") for key, _, value in pairs}
        texts |= {"shares": texts["fairshare"]} if "fairshare" in texts else {}
        if kind == "Parent":
            parent = name
        elif kind == "Cluster":
            accounts.append(Account(ROOT, "", None, texts))
        elif kind == "Account":
            accounts.append(Account(name, "", parent, texts))
        elif "partition" not in texts:
            accounts.append(Account(parent, name, parent, texts))
    return accounts


# -- the tree ------------------------------------------------------------------------------------------------------


def queue_tree(accounts: Iterable[Account], shares: Iterable[Account] = ()) -> list[Queue]:
    """Put listings of the same accounts together: the first that tells something counts, and usage is of `shares`."""
    merged: dict[str, Account] = {}
    for row in [*accounts, *shares]:
        before = merged.get(row.name, row)
        texts = {k: v for k, v in row.texts.items() if v.strip()} | {k: v for k, v in before.texts.items() if v.strip()}
        merged[row.name] = Account(row.account, row.user, before.parent or row.parent, texts)
    if not merged:
        return []
    merged.setdefault(ROOT, Account(ROOT))
    for row in list(merged.values()):  # a user of an account that no row tells of
        merged.setdefault(row.account, Account(row.account))
    return [queue_of(row, merged) for row in merged.values()]


def queue_of(row: Account, known: Mapping[str, Account]) -> Queue:
    """Return the queue that a row of a listing tells of; below the root, where its parent is not known."""
    parent = row.account if row.user else row.parent
    if row.name == ROOT:
        parent = None
    elif parent is None or parent not in known or (parent == row.name):
        parent = ROOT
    shares = row.texts.get("shares", "1")
    return Queue(
        row.name,
        parent,
        user=row.user or None,
        shares=None if shares in PARENT else _number(shares, 1.0),
        usage=_number(row.texts.get("rawusage", ""), 0.0),
        limits=_limits(row.texts, "grp"),
        per_user=_limits(row.texts, "max"),  # of a user's own jobs, and of users below who have none
        job=_job_limits(row.texts),
        priority=int(_number(row.texts.get("priority", ""), 0)),
        qos=_names(row.texts.get("qos", "")),
        default_qos=row.texts.get("defaultqos") or None,
    )


def read_qos(text: str) -> list[Qos]:
    """Read `sacctmgr show qos -P`."""
    return [qos_of(row) for row in _rows(text, is_qos) if row.get("name")]


def qos_of(row: Texts) -> Qos:
    """Return the class of service that a row of a listing tells of."""
    modes = [mode for word in row.get("preemptmode", "").lower().split(",") if (mode := word.strip())]
    preempts_by = next((mode for mode in modes if mode not in ("within", "gang", "cluster")), None)
    exempt = row.get("preemptexempttime", "")
    return Qos(
        row["name"],
        priority=int(_number(row.get("priority", ""), 0)),
        preempts=_names(row.get("preempt", "")),
        preempt_mode=preempts_by,
        within="within" in modes,
        grace=_seconds(row.get("gracetime", "")) or 0.0,
        exempt=_seconds(exempt) or 0.0 if exempt else None,
        flags=_names(row.get("flags", "")),
        usage_factor=_number(row.get("usagefactor", ""), 1.0),
        limits=_limits(row, "grp"),
        per_user=_limits(row, "max", "pu"),
        per_account=_limits(row, "max", "pa"),
        job=_job_limits(row),
    )


# -- values --------------------------------------------------------------------------------------------------------


def resource(name: str) -> str:
    """Return what a trackable resource is called here: `gres/gpu:a100` is `gpu:a100`, `mem` is `memory` in MiB.

    >>> [resource(name) for name in ("gres/gpu", "GRES/gpu:a100", "Mem", "cpu", "license/matlab")]
    ['gpu', 'gpu:a100', 'memory', 'cpu', 'license/matlab']
    """
    name = name.strip().lower()
    return _RESOURCES.get(name, name.removeprefix("gres/"))


def amounts(text: str) -> dict[str, float]:
    """Return the resources of a limit, memory in MiB; -1 takes a limit away.

    >>> amounts("cpu=64,gres/gpu=8,mem=64G")
    {'cpu': 64.0, 'gpu': 8.0, 'memory': 65536.0}
    """
    parts = {name: value for name, value in tres(text).items() if value and not value.startswith("-")}
    return {resource(k): float(mebibytes("mem", v)) if k == "mem" else float(v) for k, v in parts.items()}


def _limits(row: Mapping[str, str], kind: str, of: str = "") -> Limits:
    def whole(key: str) -> int | None:
        text = row.get(f"{kind}{key}{of}", "").strip()
        return int(text) if text.isdigit() else None

    if kind == "max" and not of:  # of an association: MaxTRES is for one job
        return Limits(jobs=whole("jobs"), submitted=whole("submit"))
    wall = _seconds(row.get(f"{kind}wall{of}", ""))
    return Limits(
        jobs=whole("jobs"),
        submitted=whole("submit"),
        resources=amounts(row.get(f"{kind}tres{of}", "")),
        minutes=amounts(row.get(f"{kind}tresmins{of}", "")),
        running_minutes=amounts(row.get(f"{kind}tresrunmins{of}", "")),
        wall_minutes=wall / 60 if wall and kind == "grp" else None,
    )


def _job_limits(row: Mapping[str, str]) -> JobLimits:
    return JobLimits(
        resources=amounts(row.get("maxtres", "")),
        at_least=amounts(row.get("mintres", "")),
        per_node=amounts(row.get("maxtrespernode", "")),
        minutes=amounts(row.get("maxtresmins", "")),
        wall=_seconds(row.get("maxwall", "")),
    )


def _seconds(text: str) -> float | None:
    return limit(text) if re.fullmatch(r"[\d:-]+", text.strip()) and not text.strip().startswith("-") else None


def _number(text: str, default: float) -> float:
    return float(text) if re.fullmatch(r"\d+(?:\.\d+)?", text.strip()) else default


def _names(text: str) -> tuple[str, ...]:
    return tuple(word for part in text.split(",") if (word := part.strip().lstrip("+")))
