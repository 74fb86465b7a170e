"""Lists of a Slurm cluster's nodes: `scontrol show node` (blocks, `-o`, `--json`) and `sinfo` (a table, `--json`).

Whatever wrote a list, its rows become the same few words: name, cpus, memory, gres, tres, pool, disk, state, features,
weight; scontrol also tells what is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

from fleetlab.core import TraceError
from fleetlab.traces.input.files import SourceFile
from fleetlab.traces.input.json_walk import Walk

# -- Slurm's shorthand for many nodes: `gpu[001-003,007],login1` -------------------------------------------------------
# A list comes from a stranger, and nine characters can name a billion nodes: they are counted before any is written
# out.

MOST = 100_000  # nodes in one list; the largest machine there is has a tenth of it
LONGEST = 253  # characters of a name, as in DNS
NO_NODES = frozenset({"", "none assigned", "none", "(null)", "n/a", "unknown"})

# What is plain in a name, what is in brackets, and what stands between two names.
_PIECE = re.compile(r"([^\s\[\],|]+)|\[([^\[\]]*)\]|(,)")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")

Span = tuple[int, int, int]  # first, last, digits to pad to
Name = list[list[Span] | str]  # its pieces: plain, or ranges of numbers


def expand(text: str) -> list[str]:
    """Every node that a list names, in its order; ValueError for what is not one, or names too many.

    >>> expand("gpu[08-10],login1")
    ['gpu08', 'gpu09', 'gpu10', 'login1']
    """
    names, _ = _counted(text)
    return ["".join(spelt) for name in names for spelt in product(*(_spellings(piece) for piece in name))]


def count_named(text: str) -> int:
    """Return how many nodes a list names, none of which is written out; ValueError as of `expand`.

    >>> count_named("gpu[08-10],login1")
    4
    """
    return _counted(text)[1]


def _counted(text: str) -> tuple[list[Name], int]:
    names = [] if text.strip().lower() in NO_NODES else _names(text.strip())
    count = sum(_size(name) for name in names)
    if count > MOST:
        msg = f"more than {MOST:,} nodes in a list"
        raise ValueError(msg)
    return names, count


def _names(text: str) -> list[Name]:
    names: list[Name] = [[]]
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        if not match:
            raise ValueError(_NOT_A_LIST)
        at = match.end()
        plain, ranges, comma = match.groups()
        if comma:
            names.append([])
        else:
            names[-1].append(_spans(ranges) if plain is None else plain)
    if any(not name or _length(name) > LONGEST for name in names):
        raise ValueError(_NOT_A_LIST)
    return names


def _length(name: Name) -> int:
    return sum(len(p) if isinstance(p, str) else max(len(str(last)) for _, last, _ in p) for p in name)


def _spans(ranges: str) -> list[Span]:
    spans = []
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text)
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        if int(first) > int(last):
            raise ValueError(_NOT_A_LIST)
        spans.append((int(first), int(last), len(first)))
    return spans


def _size(name: Name) -> int:
    return prod(sum(last - first + 1 for first, last, _ in p) for p in name if not isinstance(p, str))


def _spellings(piece: list[Span] | str) -> list[str]:
    if isinstance(piece, str):
        return [piece]
    return [f"{n:0{width}d}" for first, last, width in piece for n in range(first, last + 1)]


_NOT_A_LIST = "not a list of nodes"


LARGEST = 1 << 30  # bytes of a list of nodes, unpacked
KINDS = ("scontrol", "json", "sinfo")  # the best first

# By what each list calls them; the first that is there counts.
_SCONTROL = {
    "name": ("NodeName",),
    "cpus": ("CPUEfctv", "CPUTot"),
    "memory": ("RealMemory",),
    "gres": ("Gres",),
    "tres": ("CfgTRES",),
    "pool": ("Partitions",),
    "disk": ("TmpDisk",),
    "state": ("State",),
    "features": ("ActiveFeatures", "AvailableFeatures"),
    "weight": ("Weight",),
    "used": ("AllocTRES",),
}
_SINFO = {
    "name": ("NODELIST", "HOSTNAMES"),
    "cpus": ("CPUS", "CPUS(A/I/O/T)"),
    "memory": ("MEMORY",),
    "gres": ("GRES",),
    "pool": ("PARTITION",),
    "disk": ("TMP_DISK",),
    "state": ("STATE",),
    "features": ("ACTIVE_FEATURES", "AVAIL_FEATURES"),
    "weight": ("WEIGHT",),
}
_NOTHING = {"", "(null)", "N/A", "n/a"}

NodeFields = dict[str, str]


def kind_of(beginning: str) -> str | None:
    """Which of KINDS a file is, by its first characters."""
    # The configuration file has such lines too, but for CPUTot.
    if re.search(r"^NodeName=\S", beginning, re.MULTILINE) and "CPUTot=" in beginning:
        return "scontrol"
    others = '"items"' in beginning or re.search(r'"jobs"\s*:', beginning)
    if beginning.startswith("{") and re.search(r'"(?:nodes|sinfo)"\s*:', beginning) and not others:
        return "json"
    if any(_header(line) for line in beginning.splitlines()[:3]):
        return "sinfo"
    return None


def rows_of(source: SourceFile, kind: str) -> Iterator[tuple[int, NodeFields]]:
    """Each row of a list with the line it begins on."""
    return {"scontrol": _scontrol, "json": _json, "sinfo": _sinfo}[kind](source.name, _text(source))


def _text(source: SourceFile) -> str:
    with source.open() as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        msg = f"{source.name}: larger than any list of nodes: more than {LARGEST:,} bytes"
        raise TraceError(msg, hint="is this the right file?")
    return data.decode("utf-8-sig", "replace")


def scontrol_rows(text: str) -> list[NodeFields]:
    """Return the words of each node in what `scontrol show node` printed."""
    return [words for _, words in _scontrol("", text)]


def _scontrol(_name: str, text: str) -> Iterator[tuple[int, NodeFields]]:
    starts = [m.start() for m in re.finditer(r"^NodeName=", text, re.MULTILINE)]
    line, at = 1, 0
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        line, at = line + text.count("\n", at, start), start
        block = text[start:end]
        yield line, _pick({k: _value(block, k) for names in _SCONTROL.values() for k in names}, _SCONTROL)


def _value(block: str, key: str) -> str:
    match = re.search(rf"(?<!\S){key}=(\S*)", block)
    return match[1] if match else ""


def _sinfo(_name: str, text: str) -> Iterator[tuple[int, NodeFields]]:
    header: list[str] | None = None
    bar = False
    for line, row in enumerate(text.splitlines(), 1):
        if header is None:
            # `sinfo -l` puts the date above it.
            header, bar = _header(row), "|" in row
        elif row.strip() and set(row) - set("- "):
            # The last column may be a reason, in several words.
            fields = row.split("|") if bar else row.split(None, len(header) - 1)
            words = _pick(dict(zip(header, map(str.strip, fields), strict=False)), _SINFO)
            yield line, words if len(fields) == len(header) else words | {"short": str(len(fields))}


def _header(line: str) -> list[str] | None:
    names = [name.strip() for name in (line.split("|") if "|" in line else line.split())]
    # Its state, its features and its weight tell nothing that a node has.
    kinds = [names for word, names in _SINFO.items() if word not in ("state", "features", "weight")]
    known = {name for names in kinds for name in names}
    return names if {"NODELIST", "HOSTNAMES"} & set(names) and len(known & set(names)) > 2 else None


def _pick(row: NodeFields, names: dict[str, tuple[str, ...]]) -> NodeFields:
    return {word: next((row[n] for n in keys if row.get(n, "") not in _NOTHING), "") for word, keys in names.items()}


def _json(name: str, text: str) -> Iterator[tuple[int, NodeFields]]:
    hint = "write it again: scontrol show nodes --json"
    walk = Walk(text, name, hint=hint)
    listed = False
    for key in walk.members():
        if key not in ("nodes", "sinfo") or walk.next() != "[":
            walk.value()
            continue
        listed = True
        for line, row in walk.elements():
            yield line, (_of_sinfo(row) if "nodes" in row else _of_scontrol(row)) if isinstance(row, dict) else {}
    if walk.next():
        why = "more than one object"
        raise walk.broken(why, walk.at)
    if not listed:
        msg = f"{name}: no list of nodes in it"
        raise TraceError(msg, hint=hint)


def _of_scontrol(row: dict[str, Any]) -> NodeFields:
    words = {"cpus": ("effective_cpus", "cpus"), "memory": ("real_memory",), "disk": ("temporary_disk",)}
    words |= {"name": ("name",), "gres": ("gres",), "tres": ("tres",), "pool": ("partitions",)}
    words |= {"state": ("state",), "features": ("active_features", "features"), "weight": ("weight",)}
    return _pick({k: _plain(row.get(k)) for names in words.values() for k in names}, words)


def _of_sinfo(row: dict[str, Any]) -> NodeFields:
    def at(*keys: str) -> str:
        value: Any = row
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return _plain(value)

    words = {"name": at("nodes", "nodes"), "cpus": at("cpus", "minimum"), "memory": at("memory", "minimum")}
    words |= {"gres": at("gres", "total"), "pool": at("partition", "name"), "disk": at("disk", "minimum")}
    words |= {"features": at("features", "active"), "weight": at("weight", "minimum")}
    return words | {"state": at("node", "state")}


def _plain(value: Any) -> str:  # noqa: ANN401  JSON may hold anything
    """A value as text; Slurm writes a number that may be missing as an object."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    if isinstance(value, list):
        return ",".join(v for v in value if isinstance(v, str))
    return "" if value is None or isinstance(value, (bool, dict)) else str(value)
