"""The cells of suites, read from disk: one model of a cell and its tenants, and the rates that progress is relative to.

Progress is a tenant's rate over its rate **alone on the whole GPU without MPS**, whatever the mode: what its user would
have without sharing. A tenant that was not measured so is compared with itself alone in another mode, and named.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl

from fleetlab.core import DeviceError
from fleetlab.core.files import folder_at
from fleetlab.gpu.bench.histogram import Histogram
from fleetlab.gpu.sharing.modes import MIG

Record = dict[str, Any]  # what was recorded of a cell, or of a tenant in it
Schema = dict[str, Any]
Key = TypeVar("Key")
Value = TypeVar("Value")
BASELINE = "time-slicing"  # alone in this mode a tenant has the whole GPU
REQUIRED_KEYS = ("cell", "stage", "mode", "block", "status")
MEASURED_KEYS = ("tenants", "gpu")  # of a successful cell
TENANT_KEYS = ("seat", "rate")  # of a tenant in it
PART_KEYS = {  # of what only some tenants have
    "llm": ("goals", "requests", "seconds", "refused", "itl", "running", "waiting_most", "kv_most", "kv_tokens"),
    "notebook": ("cells",),
    **dict.fromkeys(("times", "lag"), ("gaps", "counts")),
}
SEAT = re.compile(r"(.*?)(?:@(\d+))?(?:@(\d+)sms)?(?:~(\d+))?(?:!(\w+))?(?:#(\d+))?", re.DOTALL)


class Limits(NamedTuple):
    """What a tenant may use of the GPU, as its name in a cell says: `gemm@50!1`."""

    percent: int | None = None  # of the SMs, as an MPS client
    sms: int | None = None  # of a green context
    memory_mib: int | None = None
    priority: str | None = None  # of an MPS client 0 or 1, of a stream high or low
    instance: int | None = None  # of a MIG layout

    def __str__(self) -> str:
        marks = ("@{}", "@{}sms", "~{}", "!{}", "#{}")
        return "".join(mark.format(value) for mark, value in zip(marks, self, strict=True) if value is not None)

    @property
    def binding(self) -> Limits:
        """Those that limit: all SMs and normal priority do not, and a MIG instance belongs to the mode."""
        percent = None if self.percent == 100 else self.percent
        return self._replace(percent=percent, priority=None if self.priority == "0" else self.priority, instance=None)


def parse_seat(seat: str) -> tuple[str, Limits]:
    """Name and limits of a tenant in a cell.

    >>> parse_seat("gemm@50!1")
    ('gemm', Limits(percent=50, sms=None, memory_mib=None, priority='1', instance=None))
    """
    match = SEAT.fullmatch(seat)
    assert match is not None
    name, percent, sms, memory, priority, instance = match.groups()
    whole = [None if number is None else int(number) for number in (percent, sms, memory, instance)]
    return name, Limits(whole[0], whole[1], whole[2], priority, whole[3])


@dataclass(frozen=True, slots=True)
class TenantResult:
    """One tenant in one cell."""

    name: str
    limits: Limits
    about: Record = field(hash=False)  # all that was recorded
    progress: float | None = None  # None if it was not measured alone, or is in an open loop

    @classmethod
    def of(cls, record: Record) -> TenantResult:
        """From a record."""
        return cls(*parse_seat(record["seat"]), record)

    @property
    def seat(self) -> str:
        """Its name with its limits."""
        return f"{self.name}{self.limits}"

    @property
    def rate(self) -> float:
        """Items per second."""
        return float(self.about["rate"])

    @property
    def is_limited(self) -> bool:
        """Whether it may not use the whole GPU as the mode gives it."""
        return self.limits.binding != Limits()

    @property
    def is_open_loop(self) -> bool:
        """Whether its steps are scheduled; its rate is then the offered one, not its capacity."""
        return "lag" in self.about or "offered" in self.about

    def times(self) -> Histogram:
        """Step times; from the scheduled time in an open loop."""
        return Histogram.from_json(self.about["times"]) if self.about.get("times") else Histogram.of([])


@dataclass(frozen=True, slots=True)
class CellResult:
    """One cell: tenants that ran at the same time."""

    suite: Path
    cell: str
    stage: str
    mode: str
    block: int
    ok: bool
    tenants: tuple[TenantResult, ...]
    gpu: Record = field(default_factory=dict, hash=False)
    window: float = 0.0
    opens: float = 0.0
    failures: tuple[Record, ...] = field(default=(), hash=False)

    @classmethod
    def of(cls, record: Record, suite: Path = Path(), *, window: float = 0.0) -> CellResult:
        """From a record; `window` is the length of the plan."""
        return cls(
            suite,
            str(record["cell"]),
            record["stage"],
            str(record["mode"]),
            record["block"],
            record["status"] == "ok",
            tuple(TenantResult.of(one) for one in record.get("tenants") or ()),
            record.get("gpu") or {},
            record.get("window") or window,
            record.get("opens", 0.0),
            tuple(record.get("failures") or ()),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its tenants, sorted."""
        return tuple(sorted(t.name for t in self.tenants))

    @property
    def mix(self) -> str:
        """Name of the mix: `2 launch + gemm`."""
        return mix_name(list(self.names))

    @property
    def seats(self) -> list[str]:
        """Names of its tenants with their limits."""
        return [t.seat for t in self.tenants]

    @property
    def label(self) -> str:
        """Name of the mix with limits; also of a failed cell."""
        if self.ok:
            return mix_name(self.seats) or "idle"
        label = self.cell.split("/", 2)[-1]
        count, times, name = label.partition("x")
        return mix_name([name] * int(count) if times and count.isdigit() else label.split("+"))

    @property
    def alone(self) -> TenantResult | None:
        """Its only tenant."""
        return self.tenants[0] if len(self.tenants) == 1 else None

    @property
    def progress(self) -> list[float]:
        """Progress of each tenant; empty if one of them has none."""
        each = [t.progress for t in self.tenants]
        return [] if None in each else [max(p, 1e-12) for p in each if p is not None]


def rates_by_sms(tenants: Iterable[TenantResult]) -> dict[int, float]:
    """Geometric mean of the rates of one tenant by number of SMs, as far as it saw them."""
    logs = grouped((int(sms), math.log(one.rate)) for one in tenants if (sms := one.about.get("sms")))
    return {sms: math.exp(sum(some) / len(some)) for sms, some in sorted(logs.items())}


def gpu_share(cells: Iterable[CellResult], of: str) -> float:
    """Median of a utilization of the GPU; 1 if it was not recorded."""
    shares = [cell.gpu[of] / 100 for cell in cells if cell.gpu.get(of) is not None]
    return float(np.median(shares)) if shares else 1.0


def utilization_alone(cells: Iterable[CellResult]) -> float:
    """The lower of the share of time in steps and of the GPU's utilization, of cells of one tenant; 1 if not recorded.

    A program that only counts its steps says nothing of the time in them, but the GPU does.
    """
    alone = list(cells)
    under_way = [m.tenants[0].about.get("busy", 1.0) for m in alone] or [1.0]
    return min(float(np.median(under_way)), gpu_share(alone, "util"))


class AloneRates:
    """Rates and power of tenants alone on the whole GPU; without MPS, as far as that was measured."""

    def __init__(self, cells: Iterable[CellResult]) -> None:
        rates: dict[bool, dict[str, list[tuple[Path, float]]]] = {True: defaultdict(list), False: defaultdict(list)}
        watts: dict[bool, dict[str, list[float]]] = {True: defaultdict(list), False: defaultdict(list)}
        for c in cells:
            one = c.alone if c.ok and not c.mode.startswith(MIG) else None
            if one is None or one.is_open_loop or one.is_limited or one.rate <= 0:
                continue
            rates[c.mode == BASELINE][one.name].append((c.suite, one.rate))
            if (c.gpu.get("watts") or 0) > 0:
                watts[c.mode == BASELINE][one.name].append(c.gpu["watts"])
        self.under_mps = set(rates[False]) - set(rates[True])  # those that were not measured without it
        self.rates = rates[True] | {name: rates[False][name] for name in self.under_mps}
        power = watts[True] | {name: watts[False][name] for name in self.under_mps}
        self.watts = {name: sum(many) / len(many) for name, many in power.items() if many}
        self.median = {name: float(np.median([rate for _, rate in many])) for name, many in self.rates.items()}

    def rate(self, name: str) -> float | None:
        """The median rate of a tenant; None if it was not measured alone."""
        return self.median.get(name)

    def progress(self, cell: CellResult) -> CellResult:
        """The cell with the progress of each tenant."""
        return replace(cell, tenants=tuple(replace(t, progress=self._progress(t)) for t in cell.tenants))

    def _progress(self, one: TenantResult) -> float | None:
        alone = self.rate(one.name)
        return None if alone is None or one.is_open_loop else one.rate / alone

    def joules(self, name: str) -> float | None:
        """Energy of an item of a tenant."""
        rate, watts = self.rate(name), self.watts.get(name)
        return watts / rate if rate and watts else None

    def notes(self) -> list[str]:
        """Which tenants are compared with themselves under MPS."""
        names = ", ".join(sorted(self.under_mps))
        return [f"not measured alone without MPS, so relative to alone under MPS: {names}"] if names else []


# --- reading ---------------------------------------------------------------------------------------------------------


def read_text(path: Path) -> str:
    """Read a file, or its gzip-compressed copy."""
    packed = path.with_name(path.name + ".gz")
    return (
        path.read_text("utf-8")
        if path.exists() or not packed.exists()
        else gzip.decompress(packed.read_bytes()).decode()
    )


def read_records(folder: Path) -> tuple[Record, list[Record], bool]:
    """Manifest and cells (every try) as recorded; and whether the last line was truncated."""
    place = folder_at(folder)
    try:
        about = json.loads((place / "manifest.json").read_text("utf-8"))
        lines, cut = whole_lines(read_text(place / "cells.jsonl"))
        tries = [_checked(json.loads(line)) for line in lines]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as e:
        why = f"{Path(e.filename or folder).name}: {e.strerror}" if isinstance(e, OSError) else e
        msg = f"{folder}: not the results of a suite: {why}"
        raise _several(folder) or DeviceError(msg, hint="`fleetlab bench suite PLAN --out FOLDER` makes one") from None
    return about, tries, cut


def _several(folder: Path) -> DeviceError | None:
    """The error of a folder of suites that is not one; None if it has none."""
    place = folder_at(folder)
    below = sorted({str(path.parent.relative_to(place)) for path in place.glob("**/cells.jsonl*")} - {"."})
    if not below:
        return None
    some = ", ".join(below[:3]) + (", …" if len(below) > 3 else "")
    msg = f"{folder}: {len(below)} suites, not one: {some}"
    return DeviceError(msg, hint=f"show one of them, or all with `fleetlab bench analyze {folder}`")


def whole_lines(written: str) -> tuple[list[str], bool]:
    """Split into lines; a truncated last line is dropped."""
    lines = written.splitlines()
    if not lines or written.endswith("\n"):
        return lines, False
    try:
        json.loads(lines[-1])
    except ValueError:
        return lines[:-1], True
    return lines, False


def _checked(cell: Record) -> Record:
    required = REQUIRED_KEYS + (MEASURED_KEYS if cell["status"] == "ok" else ())
    missing = [key for key in required if key not in cell]
    for tenant in () if missing else cell.get("tenants") or ():
        missing += [key for key in TENANT_KEYS if key not in tenant]
        parts = [(part, keys) for part, keys in PART_KEYS.items() if tenant.get(part)]
        missing += [f"{key} of {part}" for part, keys in parts for key in keys if key not in tenant[part]]
    if missing:
        raise ValueError(f"a cell without {', '.join(dict.fromkeys(missing))}: {cell['cell']}")
    return cell


@dataclass(frozen=True, slots=True)
class SuiteFolder:
    """The folder of one suite: manifest, every try of a cell in the order of measurement, and notes."""

    path: Path
    about: Record
    tries: list[CellResult]
    notes: tuple[str, ...] = ()

    @property
    def cells(self) -> list[CellResult]:
        """The last try of each cell."""
        return list({c.cell: c for c in self.tries}.values())

    @property
    def gpu_name(self) -> str:
        """The GPU model; none for a rehearsal."""
        if self.about.get("rehearsal"):
            return "no GPU (a rehearsal on the CPU)"
        return str((self.about.get("card") or {}).get("name") or "an unknown GPU")


def suites(folder: Path) -> list[SuiteFolder]:
    """All suites in `folder` or below; they must be of one GPU model."""
    place = folder_at(folder)
    if not place.is_dir():
        msg = f"{'not a folder' if folder.exists() else 'no such folder'}: {folder}"
        raise DeviceError(msg, hint="name a folder of `fleetlab bench suite PLAN --out FOLDER`, or a folder of such")
    homes = sorted({path.parent for path in place.rglob("cells.jsonl*") if path.name.endswith(("jsonl", "jsonl.gz"))})
    suites_read = [_suite(home) for home in homes]
    if not any(s.cells for s in suites_read):
        why = f": {suites_read[0].notes[0]}" if suites_read and suites_read[0].notes else ""
        msg = f"{folder}: no results of a suite{why}"
        raise DeviceError(msg, hint="`fleetlab bench suite PLAN --out FOLDER` makes one")
    _of_one_card([s for s in suites_read if s.cells])
    return suites_read


def _of_one_card(folders: list[SuiteFolder]) -> None:
    cards = {s.gpu_name: s.path.name for s in folders}
    if len(cards) > 1:
        listed = "; ".join(f"{card} in {name}" for card, name in cards.items())
        msg = f"suites of different GPUs in one folder: {listed}"
        raise DeviceError(msg, hint="analyze the folder of each GPU model separately")


def read_suite(home: Path) -> SuiteFolder:
    """The folder of one suite."""
    about, tries, cut = read_records(home)
    if not isinstance(about, dict) or "plan" not in about:
        return SuiteFolder(home, {}, [], (f"{home.name}: ignored, its manifest has no plan",))
    notes = (f"{home.name}: its truncated last line is ignored",) if cut else ()
    return SuiteFolder(home, about, [CellResult.of(c, home, window=about.get("window") or 0.0) for c in tries], notes)


def _suite(home: Path) -> SuiteFolder:
    try:
        return read_suite(home)
    except DeviceError as e:
        why = str(e).rpartition("suite: ")[2]
        return SuiteFolder(home, {}, [], (f"{home.name}: ignored, it cannot be read: {why}",))


def time_slice_record(folder: Path) -> dict[str, Any] | None:
    """The measured time slices, if there is a `slices.json` in the folder."""
    for path in sorted(folder_at(folder).rglob("slices.json")):
        try:
            record = json.loads(path.read_text("utf-8"))
            if record["device"] != "cpu" and len(record[BASELINE]["2"]["slice_ms"]) == 6:
                return dict(record[BASELINE]["2"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


# --- names, groups and tables ----------------------------------------------------------------------------------------


def mix_name(seats: list[str]) -> str:
    """Name of a mix, with equal tenants counted: `3 launch + gemm`."""
    return " + ".join(f"{n} {name}" if (n := seats.count(name)) > 1 else name for name in dict.fromkeys(sorted(seats)))


def neighbors(seats: Sequence[str], seat: str) -> str:
    """Name of the mix of the other tenants."""
    others = list(seats)
    others.remove(seat)
    return mix_name(others)


def grouped(keyed: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Values by key, both in the order in which they come.

    >>> grouped([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    groups: dict[Key, list[Value]] = {}
    for key, value in keyed:
        groups.setdefault(key, []).append(value)
    return groups


def table(rows: Iterable[dict[str, Any]], schema: Schema | None = None) -> pl.DataFrame:
    """Make a table; `schema` gives the columns if there are no rows."""
    listed = list(rows)
    return pl.DataFrame(listed, infer_schema_length=None) if listed else pl.DataFrame(schema=schema or {})


def mean(values: Iterable[float]) -> float | None:
    """Mean; None if empty."""
    many = list(values)
    return sum(many) / len(many) if many else None
