"""A what-if and its address: one trace, and the rules, load and nodes it is played with.

The whole state of the page is in the address: what is not there has its default, so addresses stay short and an old one
keeps its meaning as long as its version is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from urllib.parse import parse_qsl, urlencode

from fleetlab.core import WorkloadError
from fleetlab.web.choices import RULES, SEEDS, SIZES

VERSION = "1"
LONGEST = 8_000  # characters of an address
NAME = 200  # characters of a name in it
KEPT = 8  # runs kept side by side
TYPES = 64  # whose nodes are changed
MOST_NODES = 50_000
LOADS = (0.1, 10.0)
VIEWS = ("what-if", "trace")
USUAL_TRACE = f"builtin:{SIZES[2]}:0"
UPLOAD = re.compile(r"upload:[A-Za-z0-9_-]{16,64}")


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is played: everything but the trace has a default, which is that of `simulate`."""

    trace: str = USUAL_TRACE
    order: str = "fifo"
    backfill: str = "greedy"
    placement: str = "best_fit"
    estimate: str = "oracle"
    sharing: str = "fractional"
    load: float = 1.0
    nodes: tuple[tuple[str, int], ...] = ()  # nodes of a GPU type, where it is not as many as there are
    seed: int = 0

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]], *, trace: str | None = None) -> Scenario:
        """From the words of an address; `trace` for one that leaves it out."""
        told: dict[str, list[str]] = {}
        for name, value in pairs:
            told.setdefault(name, []).append(value)
        _refuse_unknown(told, {f.name for f in fields(cls)} - ({"trace"} if trace else set()))
        if twice := [name for name, values in told.items() if len(values) > 1 and name != "nodes"]:
            msg = f"said twice: `{twice[0]}`"
            raise WorkloadError(msg, hint="only `nodes` may be given many times, once for each GPU type")
        rules = {name: _one_of(name, told[name][0]) for name in RULES if name in told}
        return cls(
            trace=trace or _trace(told.get("trace", [USUAL_TRACE])[0]),
            load=_load(told.get("load", ["1"])[0]),
            nodes=_nodes(told.get("nodes", [])),
            seed=_whole("seed", told.get("seed", ["0"])[0], 2**31 - 1),
            **rules,
        )

    def pairs(self) -> list[tuple[str, str]]:
        """The words of its address, without the trace: only what is not as usual."""
        usual = Scenario()
        plain = [(name, str(getattr(self, name))) for name in (*RULES, "seed")]
        found = [(name, said) for name, said in plain if said != str(getattr(usual, name))]
        if self.load != usual.load:
            found.append(("load", f"{self.load:g}"))
        return found + [("nodes", f"{kind}:{count}") for kind, count in self.nodes]

    @property
    def key(self) -> str:
        """The same for the same scenario, and no other."""
        return urlencode([("trace", self.trace), *self.pairs()])

    @property
    def title(self) -> str:
        """What is not as usual, in words.

        >>> Scenario(order="sjf", load=1.2).title
        'sjf, load 1.2'
        >>> Scenario().title
        'fifo, greedy, best_fit'
        """
        usual = "{}, {}, {}".format(*(getattr(Scenario(), name) for name in ("order", "backfill", "placement")))
        said = [
            value if name in ("order", "backfill", "placement") else f"{name} {value}" for name, value in self.pairs()
        ]
        return ", ".join(said).replace("nodes ", "").replace("sharing ", "") or usual


@dataclass(frozen=True, slots=True)
class Link:
    """A whole address: what is looked at, what it is held against, and what was kept."""

    now: Scenario
    base: Scenario
    kept: tuple[Scenario, ...] = ()
    view: str = VIEWS[0]

    @classmethod
    def of(cls, query: str) -> Link:
        """Read an address, or say what is wrong with it.

        >>> Link.of("v=1&trace=builtin:2000:0&order=sjf&keep=load%3D1.2").kept[0].load
        1.2
        """
        pairs = _pairs(query)
        own = {name: [value for n, value in pairs if n == name] for name in ("v", "view", "base", "keep")}
        if own["v"] and own["v"] != [VERSION]:
            msg = f"an address of another version: `{clipped(own['v'][0])}`"
            raise WorkloadError(msg, hint=f"this page writes and reads v={VERSION}")
        if len(own["base"]) > 1 or len(own["view"]) > 1 or len(own["keep"]) > KEPT:
            msg = f"an address has one `base`, one `view`, and `keep` at most {KEPT} times"
            raise WorkloadError(msg, hint="remove some of the runs that were kept")
        now = Scenario.of([pair for pair in pairs if pair[0] not in own])
        base, *kept = (Scenario.of(_pairs(said), trace=now.trace) for said in (*(own["base"] or [""]), *own["keep"]))
        view = _named("view", (own["view"] or [VIEWS[0]])[0], VIEWS)
        return cls(now, base, tuple(dict.fromkeys(kept)), view)

    def query(self) -> str:
        """The address that brings all of it back."""
        usual = replace(Scenario(), trace=self.now.trace)
        base = [("base", urlencode(self.base.pairs()))] if self.base != usual else []
        view = [("view", self.view)] if self.view != VIEWS[0] else []
        kept = [("keep", urlencode(k.pairs())) for k in self.kept]
        return urlencode([("v", VERSION), ("trace", self.now.trace), *self.now.pairs(), *base, *kept, *view])


def _pairs(query: str) -> list[tuple[str, str]]:
    if len(query) > LONGEST:
        msg = f"an address has at most {LONGEST:,} characters, not {len(query):,}"
        raise WorkloadError(msg, hint="remove some of the runs that were kept")
    try:
        return parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=200, errors="strict")
    except ValueError:
        msg = f"not an address of this page: `{clipped(query)}`"
        raise WorkloadError(msg, hint="NAME=VALUE with & between, such as order=sjf&load=1.2") from None


def clipped(said: str, widest: int = 60) -> str:
    """What was said, as far as it is worth repeating."""
    plain = "".join(c if c.isprintable() else "?" for c in said[: widest + 1])
    return plain if len(plain) <= widest else plain[: widest - 1] + "…"


def _refuse_unknown(told: Iterable[str], known: set[str]) -> None:
    for name in told:
        if name not in known:
            near = get_close_matches(name, known, 1)
            msg = f"no setting by that name: `{clipped(name)}`" + (f"; did you mean {near[0]}?" if near else "")
            raise WorkloadError(msg, hint=f"there are {', '.join(sorted(known))}")


def _named(what: str, said: str, known: Sequence[str]) -> str:
    if said not in known:
        near = get_close_matches(said[:100], known, 1)
        msg = f"no {what} by that name: `{clipped(said)}`" + (f"; did you mean {near[0]}?" if near else "")
        raise WorkloadError(msg, hint=f"there are {', '.join(known)}")
    return said


def _one_of(rule: str, said: str) -> str:
    return _named(rule, said, tuple(RULES[rule]))


def _trace(said: str) -> str:
    """Is it the name of a trace at all? Whether it is there, the book of traces says."""
    builtin = re.fullmatch(r"builtin:(\d{1,9}):(\d{1,3})", said)
    if builtin and int(builtin[1]) in SIZES and int(builtin[2]) < SEEDS and said.isascii():
        return f"builtin:{int(builtin[1])}:{int(builtin[2])}"
    folder = said.startswith("folder:") and 0 < len(said) - len("folder:") <= NAME
    if folder or UPLOAD.fullmatch(said):
        return said
    sizes = ", ".join(map(str, SIZES))
    msg = f"no such trace: `{clipped(said)}`"
    hint = f"builtin:JOBS:SEED with {sizes} jobs and a seed below {SEEDS}, folder:NAME, or upload:ID"
    raise WorkloadError(msg, hint=hint)


def _load(said: str) -> float:
    try:
        load = round(float(said), 3) if len(said) < 20 else float("nan")
    except ValueError:
        load = float("nan")
    if not LOADS[0] <= load <= LOADS[1]:
        msg = f"load is a number from {LOADS[0]:g} to {LOADS[1]:g}, not: `{clipped(said)}`"
        raise WorkloadError(msg, hint="load=1.2 has the same jobs come 1.2 times as fast")
    return load


def _whole(what: str, said: str, most: int) -> int:
    if not (said.isascii() and said.isdigit() and len(said) <= 10 and int(said) <= most):
        msg = f"{what} is a whole number from 0 to {most:,}, not: `{clipped(said)}`"
        raise WorkloadError(msg, hint=f"such as {what}=1" if what == "seed" else "such as nodes=T4:400")
    return int(said)


def _nodes(said: Sequence[str]) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for one in said:
        # A name may hold colons; the number after the last one is ours.
        kind, colon, count = one.rpartition(":")
        if not colon or not 0 < len(kind) <= NAME or kind in found or len(found) >= TYPES:
            msg = f"nodes are given once for each GPU type, as TYPE:COUNT, not: `{clipped(one)}`"
            raise WorkloadError(msg, hint="such as nodes=T4:400&nodes=V100:80")
        found[kind] = _whole("nodes", count, MOST_NODES)
    return tuple(sorted(found.items()))
