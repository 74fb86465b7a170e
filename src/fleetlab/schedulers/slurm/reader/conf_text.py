"""The text of slurm.conf and of what `scontrol show` prints: keys and values, nothing interpreted.

Keys are told without case. A line that ends in a backslash goes on in the next; `#` begins a comment; `include` names
another file: where it is not there, a file of that name beside the configuration is taken, as in a copy of /etc/slurm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fleetlab.core import TraceError
from fleetlab.core.files import may_include
from fleetlab.traces.input.times import LATEST

# -- the time that a user asked for: sacct's Timelimit (`1-00:00:00`) and TimelimitRaw (in minutes) --------------------

NONE = frozenset({"", "unlimited", "partition_limit", "invalid", "not_set", "none", "n/a", "unknown", "(null)"})
_LIMIT = re.compile(r"(?:(\d{1,9})-)?(\d{1,12})(?::(\d{1,4}))?(?::(\d{1,4}))?")


def limit(text: str) -> float | None:
    """Seconds of a limit, None where there is none, as also 0 means; ValueError for what is no length of time.

    A number alone is minutes, two are minutes and seconds, three begin with hours; after days the first is hours.

    >>> [limit(text) for text in ("1-12", "01:30:00", "90:00", "90", "UNLIMITED")]
    [129600.0, 5400.0, 5400.0, 5400.0, None]
    """
    if text.strip().lower() in NONE:
        return None
    match = _LIMIT.fullmatch(text.strip())
    days, *parts = match.groups("0") if match else ("0",)
    hours = bool(match and (match[1] or match[4]))
    units = (3600, 60, 1) if hours else (60, 1, 1)
    seconds = 86_400 * int(days) + sum(int(part) * unit for part, unit in zip(parts, units, strict=False))
    if not match or seconds > LATEST:
        msg = f"not a length of time: {text[:80]}"
        raise ValueError(msg)
    return float(seconds) or None


LARGEST = 64 << 20  # bytes of a configuration
DEEPEST = 20  # includes in includes
LISTS = ("nodename", "partitionname", "reservationname", "nodeset", "downnodes", "frontendname", "qos", "account")
_PAIR = re.compile(r'([A-Za-z][\w./-]*(?:\[\d+\])?)\s*\+?=\s*("[^"]*"|[^\s"]+(?:"[^"]*")?|)(?=\s|$)')
_INCLUDE = re.compile(r"include\s+(\S+)", re.IGNORECASE)
_SHOWN = re.compile(r"([A-Za-z]\w*(?:\[\d+\])?)\s*=[ \t]*(.*)")

Entry = dict[str, str]


@dataclass
class ConfText:
    """What a configuration says: one value a key, and a table for each node, partition and so on."""

    values: Entry = field(default_factory=dict)
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)  # files that it includes, and that are not there
    files: list[str] = field(default_factory=list)

    def add(self, line: Entry) -> None:
        """Add the pairs of one line; `DEFAULT` holds for those after it."""
        kind = next(iter(line), "")
        if kind not in LISTS:
            self.values |= line
            return
        rows = self.entries.setdefault(kind, [])
        defaults = self.entries.setdefault(f"{kind} default", [{}])[0]
        if line[kind].upper() == "DEFAULT":
            defaults |= line
        else:
            rows.append(defaults | line)

    def of(self, kind: str) -> list[Entry]:
        """Return the tables of one kind, as they stand."""
        return self.entries.get(kind, [])


def read_text(path: Path) -> str:
    """Return the text of a configuration or a listing."""
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
    except OSError as e:
        msg = f"cannot read {path}: {e.strerror or e}"
        raise TraceError(msg, hint="check the path and its permissions") from None
    if len(data) > LARGEST:
        msg = f"{path.name}: larger than any configuration: more than {LARGEST:,} bytes"
        raise TraceError(msg, hint="is this the right file?")
    return data.decode("utf-8-sig", "replace")


def parse(path: Path, into: ConfText, beside: Iterable[Path] = ()) -> ConfText:
    """Read slurm.conf, or a piece of it, with what it includes; `beside`: folders to look in for these."""
    _parse(path, into, (path.parent, *beside), 0)
    return into


def _parse(path: Path, into: ConfText, folders: tuple[Path, ...], depth: int) -> None:
    if depth > DEEPEST:
        msg = f"{path.name}: includes itself"
        raise TraceError(msg, hint="an include names another file")
    into.files.append(path.name)
    for line in lines_of(read_text(path)):
        if include := _INCLUDE.fullmatch(line):
            there = find_include(include[1], folders)
            if there is None:
                into.missing.append(include[1])
            else:
                _parse(there, into, folders, depth + 1)
        elif pairs := pairs_of(line):
            into.add(pairs)


def find_include(name: str, folders: Iterable[Path]) -> Path | None:
    """Find an included file: where it is said to be, or by its name in one of the folders."""
    path = Path(name)
    spots = [path] if path.is_absolute() else []
    for folder in folders:
        spots += [folder / path, folder / path.name] if not path.is_absolute() else [folder / path.name]
    return next((spot for spot in spots if may_include(spot) and spot.is_file()), None)


def lines_of(text: str) -> Iterator[str]:
    """Lines without comments, those that go on in the next one put together."""
    whole = ""
    for line in text.splitlines():
        part = re.sub(r"(?<!\\)#.*", "", line).rstrip()
        if part.endswith("\\"):
            whole += part[:-1] + " "
            continue
        if (whole + part).strip():
            yield (whole + part).strip()
        whole = ""
    if whole.strip():
        yield whole.strip()


def pairs_of(line: str) -> Entry:
    """Return the pairs of a line by their keys in lower case.

    >>> pairs_of('PartitionName=gpu Nodes=n[1-6] TRESBillingWeights="CPU=1.0,Mem=0.25G"')
    {'partitionname': 'gpu', 'nodes': 'n[1-6]', 'tresbillingweights': 'CPU=1.0,Mem=0.25G'}
    """
    return {key.lower(): value.replace('"', "") for key, value in _PAIR.findall(line)}


def shown_config(text: str, into: ConfText) -> ConfText:
    """Read what `scontrol show config` prints: a key a line, and values that may be several words."""
    for line in text.splitlines():
        if match := _SHOWN.fullmatch(line.strip()):
            value = match[2].strip()
            into.values[match[1].lower()] = "" if value in ("(null)", "N/A", "n/a") else value
    return into


def shown_blocks(text: str, key: str) -> list[Entry]:
    """Read what `scontrol show partition` or `reservation` prints: a block for each, which begins with its name."""
    blocks = re.split(rf"^(?={key}=)", text, flags=re.MULTILINE)[1:]
    return [{k: v for k, v in pairs_of(b).items() if v not in ("(null)", "N/A", "n/a")} for b in blocks]
