"""Cells as sites write them: `8xA100`, `gpu:a100:8`, `4h30m`, `1-02:03:04`, `16GB`, `500m`, lists of nodes.

A plain number is read elsewhere, fast; these are what is left, and each different text is read once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import polars as pl

NUMBER = r"(\d+(?:\.\d+)?)"
DAY = 86_400.0
UNITS = {"w": 7 * DAY, "d": DAY, "h": 3600.0, "m": 60.0, "s": 1.0}  # by their first letter
CLOCK = re.compile(rf"(?:(\d+)-)?(\d+):(\d\d):{NUMBER}")
WORDS = re.compile(rf"{NUMBER}\s*(weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?=[\s\d,]|$)[\s,]*")
MEMORY = re.compile(rf"{NUMBER}\s*([kmgtp]?)i?(?:b|bytes?)?[nc]?", re.IGNORECASE)
MIB = {"": 2.0**-20, "k": 2.0**-10, "m": 1.0, "g": 2.0**10, "t": 2.0**20, "p": 2.0**30}
CORES = re.compile(rf"{NUMBER}\s*(m|v?cpus?|v?cores?)", re.IGNORECASE)
ANY = ("gpu", "gpus")
SEVERAL = re.compile(r"(\d+)\s*x\s*\[(.*)\]", re.IGNORECASE)  # of SkyPilot: 2x[A100:8]
PREFIX = re.compile(r"^(?:gres[/:])?(?:gpus?|nvidia\.com/gpu)\s*[:=]\s*", re.IGNORECASE)
COUNT_FIRST = re.compile(rf"{NUMBER}\s*(?:[x×*]\s*)?([A-Za-z][\w. -]*)?")
MODEL_FIRST = re.compile(rf"([A-Za-z][\w. -]*?)\s*[:=x×]\s*{NUMBER}")
AMONG = re.compile(r"(?:gres/gpu|n?gpus?|nvidia\.com/gpu)(?::([A-Za-z][\w.-]*))?\s*[=:]\s*(\d+)", re.IGNORECASE)
CHUNKS = re.compile(r"(\d+):(?=.*ngpus)")  # of PBS: 2:ncpus=16:ngpus=8
BRACKETS = re.compile(r"\[([^\]]*)\]")
MOST_NODES = 100_000  # that one list may name


def seconds(text: str) -> float | None:
    """Return the length of a duration with its units.

    >>> seconds("4h30m"), seconds("10 minutes"), seconds("1-02:03:04"), seconds("often")
    (16200.0, 600.0, 93784.0, None)
    """
    if clock := CLOCK.fullmatch(text):
        days, hours, minutes, rest = (float(part or 0) for part in clock.groups())
        return days * DAY + hours * 3600 + minutes * 60 + rest
    parts = WORDS.findall(text.lower())
    if not parts or WORDS.sub("", text.lower()).strip():
        return None
    return sum(float(number) * UNITS[unit[0]] for number, unit in parts)


def mebibytes(text: str) -> float | None:
    """Return an amount of memory with its unit.

    >>> mebibytes("16GB"), mebibytes("512Mi"), mebibytes("64Gn"), mebibytes("much")
    (16384.0, 512.0, 65536.0, None)
    """
    match = MEMORY.fullmatch(text)
    return float(match[1]) * MIB[match[2].lower()] if match else None


def cores(text: str) -> float | None:
    """Return CPU cores.

    >>> cores("500m"), cores("8 cores")
    (0.5, 8.0)
    """
    match = CORES.fullmatch(text)
    return None if match is None else float(match[1]) / (1000 if match[2].lower() == "m" else 1)


def gpus(text: str) -> tuple[float | None, str | None]:
    """Return how many GPUs, and of which model.

    >>> gpus("8xA100"), gpus("A100:8"), gpus("gpu:a100:8"), gpus("2x[H100:8]")
    ((8.0, 'A100'), (8.0, 'A100'), (8.0, 'a100'), (16.0, 'H100'))
    >>> gpus("cpu=8,mem=64G,gres/gpu:a100=4"), gpus("2:ncpus=16:ngpus=8"), gpus("A100")
    ((4.0, 'a100'), (16.0, None), (None, None))
    """
    if several := SEVERAL.fullmatch(text):
        count, model = gpus(several[2])
        return None if count is None else float(several[1]) * count, model
    rest = PREFIX.sub("", text)
    if match := COUNT_FIRST.fullmatch(rest):
        return float(match[1]), _model(match[2])
    if match := MODEL_FIRST.fullmatch(rest):
        return float(match[2]), _model(match[1])
    if among := AMONG.findall(text):
        model, count = next((pair for pair in among if pair[0]), among[0])
        chunks = CHUNKS.match(text)
        return float(count) * (int(chunks[1]) if chunks else 1), _model(model)
    return None, None


def _model(text: str | None) -> str | None:
    return None if not text or text.strip().lower() in ANY else text.strip()


def model(text: str) -> str:
    """Return the model of a cell that says how many of it, and any other text as it is.

    >>> model("8xA100"), model("A100|H100"), model("gpu:8")
    ('A100', 'A100|H100', '')
    """
    count, name = gpus(text)
    return text if count is None else name or ""


def whole(text: str) -> float | None:
    """Return a number with commas between its thousands.

    >>> whole("1,234,567"), whole("1,5")
    (1234567.0, None)
    """
    return float(text.replace(",", "")) if re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", text) else None


def node_names(text: str) -> list[str]:
    """Return the nodes of a list: Slurm's brackets, PBS's and LSF's counts and slots, and separators of all kinds.

    >>> node_names("gpu[01-03,7]"), node_names("n1/0*8+n2/0*8"), node_names("8*hostA:8*hostB")
    (['gpu01', 'gpu02', 'gpu03', 'gpu7'], ['n1', 'n2'], ['hostA', 'hostB'])
    """
    held: list[str] = []
    plain = BRACKETS.sub(lambda match: held.append(match[1]) or f"[{len(held) - 1}]", text)  # type: ignore[func-returns-value]
    names: dict[str, None] = {}
    for part in re.split(r"[,;+:|\s]+", plain):
        name = re.sub(r"/.*$|^\d+\*", "", part).strip("()'\"")
        if not name:
            continue
        pieces = re.split(r"\[(\d+)\]", name)
        choices = [_range(held[int(p)]) if k % 2 else [p] for k, p in enumerate(pieces)]
        names |= dict.fromkeys("".join(parts) for parts in product(*choices))
        if len(names) > MOST_NODES:
            break
    return list(names)


def _range(text: str) -> list[str]:
    names: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if dash and first.isdigit() and last.isdigit() and int(last) - int(first) < MOST_NODES:
            names += [f"{k:0{len(first)}d}" for k in range(int(first), int(last) + 1)]
        else:
            names.append(part)
    return names


KINDS: dict[str, Callable[[str], float | None]] = {
    **dict.fromkeys(("runtime", "limit", "estimate"), seconds),
    **dict.fromkeys(("memory_mib", "gpu_memory_mib", "disk_mib"), mebibytes),
    "cpu_milli": cores,
    "gpu_milli": lambda text: gpus(text)[0],
}


def amounts(text: pl.Series, target: str) -> pl.Series:
    """Return the number of each cell with a unit, in the usual one of a column of a workload; null where it is none."""
    read = KINDS.get(target, whole)
    numbers = {one: value for one in text.drop_nulls().unique() if (value := read(one) or whole(one)) is not None}
    return text.replace_strict(list(numbers), list(numbers.values()), default=None, return_dtype=pl.Float64)
