"""A request as people write it: "8 A100, 4 h", "2x8 A100, 30 min", "0.5 T4, user=ada"."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import polars as pl

from fleetlab.core import Cluster, Workload, WorkloadError
from fleetlab.core.durations import plural
from fleetlab.core.names import clip, lookup
from fleetlab.studies.eta.history import Snapshot

HINT = 'GPUs, and what else matters: "8 A100, 4 h", "2x8 H100, 30 min", "1 GPU", "0.5 T4, user=ada, partition=gpu"'
UNITS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hour": 3600.0, "d": 86_400.0, "day": 86_400.0}
GPUS = re.compile(r"(?:(\d{1,6})\s*[x×]\s*)?(\d{1,6}(?:\.\d{1,3})?)\s*(.*)")
DURATION = re.compile(r"(\d{1,9}(?:\.\d+)?)\s*([a-z]+)")
WORDS = ("user", "group", "app", "queue", "qos", "partition")  # that may be given as NAME=VALUE
ANY = ("", "gpu", "gpus")
WHOLE = 1000  # milli of one GPU
CLOCK = re.compile(r"(?:(\d{1,5})-)?(\d{1,5}):(\d{2}):(\d{2})")  # Slurm's [days-]hours:minutes:seconds
# What is that of the latest job like it, if not given.
LIKE = ("cpu_milli", "memory_mib", "partitions", "queue", "qos", "user", "group", "app", "priority", "limit")


@dataclass(frozen=True, slots=True)
class Request:
    """GPUs of an instance, how many instances, of which type, and for how long."""

    milli: int
    instances: int = 1
    gpu_type: str | None = None
    limit: float | None = None  # s
    words: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The request in words."""
        times = f"{self.instances} x " if self.instances > 1 else ""
        what = self.gpu_type or "GPU"
        return times + (
            f"{plural(self.milli / WHOLE, what)}" if not self.gpu_type else f"{self.milli / WHOLE:g} {what}"
        )


def read_request(text: str, cluster: Cluster) -> Request:
    """Read a request for GPUs of a cluster.

    >>> nodes = pl.DataFrame({"node": ["a", "b"], "gpus": [8, 8], "gpu_type": ["A100", "A100"]})
    >>> read_request("16 A100, 4 h", Cluster.of(nodes, source="by hand"))
    Request(milli=8000, instances=2, gpu_type='A100', limit=14400.0, words={})
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not (match := GPUS.fullmatch(parts[0])):
        msg = f"a request begins with a number of GPUs, not: `{clip(text)}`"
        raise WorkloadError(msg, hint=HINT)
    instances, amount = int(match[1] or 1), float(match[2])
    name = _gpu_type(match[3].strip(), cluster)
    milli = round(amount * WHOLE)
    if instances < 1 or milli <= 0 or (milli > WHOLE and milli % WHOLE):
        msg = f"GPUs are a whole number from 1 up, or a share of one GPU, not: `{parts[0]}`"
        raise WorkloadError(msg, hint=HINT)
    words = _words([part for part in parts[1:] if "=" in part])
    limits = [_seconds(part) for part in parts[1:] if "=" not in part]
    if len(limits) > 1:
        msg = f"a request has one duration, not {len(limits)}: `{clip(text)}`"
        raise WorkloadError(msg, hint=HINT)
    return Request(*_split(milli, instances, name, cluster), name, limits[0] if limits else None, words)


def _words(parts: list[str]) -> dict[str, str]:
    """Read NAME=VALUE parts."""
    words: dict[str, str] = {}
    for part in parts:
        key, _, value = (text.strip() for text in part.partition("="))
        lookup("part of a request", key, WORDS, error=WorkloadError, hint=HINT)
        if not value or key in words:
            msg = f"a request gives {key} {'twice' if value else 'without a value'}: `{clip(part)}`"
            raise WorkloadError(msg, hint=HINT)
        words[key] = value
    return words


def check_partition(request: Request, cluster: Cluster, jobs: pl.DataFrame) -> None:
    """Raise an error where neither the nodes nor the jobs of the log name the partition of a request."""
    if (name := request.words.get("partition")) is None:
        return
    columns = (frame["partitions"].explode().drop_nulls() for frame in (cluster.frame, jobs))
    known = sorted({str(one) for column in columns for one in column.unique()})
    hint = f"there are {', '.join(known[:9])}" if known else "neither nodes nor jobs name partitions: leave it out"
    lookup("partition", name, known, error=WorkloadError, hint=hint)


def _gpu_type(text: str, cluster: Cluster) -> str | None:
    known = sorted(set(cluster.frame.filter(pl.col("gpus") > 0)["gpu_type"].drop_nulls()))
    if text.casefold() in ANY:
        return None
    bare = re.sub(r"\s*gpus?$", "", text, flags=re.I)
    same = [name for name in known if name.casefold() == bare.casefold()]
    hint = f"its nodes have {', '.join(known)}" if known else "its nodes tell no GPU types: leave the type out"
    return same[0] if same else lookup("GPU type", bare, known, error=WorkloadError, hint=hint, models=True)


def _seconds(text: str) -> float:
    if clock := CLOCK.fullmatch(text):
        days, hours, minutes, rest = (int(part or 0) for part in clock.groups())
        text = f"{days * 86_400 + hours * 3600 + minutes * 60 + rest} s"
    match = DURATION.fullmatch(text.casefold())
    unit = "" if match is None else match[2]
    unit = unit if unit in UNITS else unit.rstrip("s")
    seconds = float(match[1]) * UNITS[unit] if match and unit in UNITS else math.nan
    if not 0 < seconds < math.inf:
        msg = f"a duration is a number with s, min, h or days after it, or 4:00:00, not: `{clip(text)}`"
        raise WorkloadError(msg, hint=HINT)
    return seconds


def _split(milli: int, instances: int, name: str | None, cluster: Cluster) -> tuple[int, int]:
    """Divide what no node has into instances of a node each."""
    nodes = cluster.frame if name is None else cluster.frame.filter(pl.col("gpu_type") == name)
    largest = int(nodes["gpus"].max() or 0) * WHOLE  # type: ignore[arg-type]
    if instances > 1 or milli <= largest or not largest:
        return milli, instances
    if milli % largest:
        msg = f"no node has so many GPUs, and they are not a multiple of the largest node's: {milli // WHOLE}"
        raise WorkloadError(msg, hint=f"the largest has {largest // WHOLE}: write 2x{largest // WHOLE} for two of them")
    return largest, milli // largest


def as_job(request: Request, snapshot: Snapshot) -> tuple[pl.DataFrame, str]:
    """Return the request as a row of a workload, and a note: what it does not tell is as of the latest job like it."""
    frame = snapshot.history.frame
    seen = frame.filter(pl.Series(snapshot.history.submit <= snapshot.at))
    like = seen.filter(pl.col("gpu_milli") == request.milli)
    same = like.filter(pl.col("gpu_types").list.contains(request.gpu_type or ""))
    like = same if request.gpu_type and same.height else like
    values = {name: like[name][-1] for name in LIKE} if like.height else {}
    given = {
        ("partitions" if k == "partition" else k): [v] if k == "partition" else v for k, v in request.words.items()
    }
    if "user" in given:
        values |= {"group": None, "app": None}
    own: dict[str, object] = {
        "gpu_milli": request.milli,
        "instances": request.instances,
        "status": "waiting",
    }
    if request.limit is not None:
        own["limit"] = request.limit
    own["gpu_types"] = [request.gpu_type] if request.gpu_type else []
    row = {"submit": 0.0} | values | own | given
    made = Workload.of(pl.DataFrame({name: [value] for name, value in row.items()}), source="the request").frame
    made = made.with_columns(job=pl.lit(-1, dtype=pl.Int64), submit=pl.lit(snapshot.at))
    if not like.height:
        return made, "no job of the log requests as many GPUs: the request is taken to need no CPU and memory"
    what = "CPU, memory, partition, user" + (", time limit" if request.limit is None else "")
    return made, f"what the request does not tell ({what}) is that of the latest job with as many GPUs"
