"""A study file: which traces, loads, nodes, rules and seeds to play, and what to compare; all of it checked here."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fleetlab.core import WorkloadError
from fleetlab.studies.sweep._cases import AS_IT_IS, AXES, RULES, Case, combined
from fleetlab.studies.sweep._draw import DRAWS
from fleetlab.studies.sweep._looks import Seeds

HINT = "docs/sweep.md has a study file to begin with"
KEYS = ("traces", "cluster", "draw", "loads", "nodes", "seeds", "simulate", "compare")
METRICS = ("mean wait", "P90 wait")
MOST = 10_000_000  # cells: above, somebody has mistyped a number


@dataclass(frozen=True, slots=True)
class Compare:
    """Which words make the case that others are held against, and in which metrics."""

    against: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[str, ...] = METRICS
    sure: float = 0.95

    def pairs(self, cases: list[Case]) -> list[tuple[Case, Case]]:
        """Each case with the one that has the words of `against` and is otherwise the same."""
        if not self.against:
            return []
        there = set(cases)
        both = [(case, case.with_words(self.against)) for case in cases]
        return [(case, base) for case, base in both if case != base and base in there]


@dataclass(frozen=True, slots=True)
class Study:
    """What to play."""

    name: str
    folder: Path
    traces: tuple[str, ...]
    cluster: str | None
    draw: str | None
    loads: tuple[float, ...]
    nodes: tuple[str, ...]
    rules: tuple[tuple[tuple[str, Any], ...], ...]
    seeds: Seeds
    compare: Compare
    texts: Mapping[str, str]  # of files that rules name, by the word of the rule

    @classmethod
    def read(cls, path: Path | str) -> Study:
        """Read a TOML file; what it names is looked for beside it."""
        path = Path(path)
        try:
            told = tomllib.loads(path.read_text("utf-8"))
        except OSError as e:
            msg = f"cannot read the study: {path}: {e.strerror}"
            raise WorkloadError(msg, hint=HINT) from None
        except (ValueError, RecursionError) as e:
            msg = f"{path.name}: not TOML: {e}"
            raise WorkloadError(msg, hint=HINT) from None
        return cls.of(told, name=path.stem, folder=path.parent)

    @classmethod
    def of(cls, told: Mapping[str, Any], *, name: str = "study", folder: Path | str = ".") -> Study:
        """From the same words as a mapping.

        >>> Study.of({"traces": ["builtin:500"], "simulate": {"order": ["fifo", "sjf"]}, "seeds": 3})
        <Study study: 2 cases, 3 seeds>
        """
        _known(told, KEYS, "study")
        folder = Path(folder)
        tables = [_lists(table) for table in _tables(told.get("simulate", {}))]
        _few(sum(math.prod(map(len, table.values())) for table in tables), 1)  # before they are written out
        rules = combined(tables)
        loads = _numbers(told.get("loads", [1.0]))
        nodes = tuple(dict.fromkeys(_words(told.get("nodes", [AS_IT_IS]), "nodes")))
        traces = tuple(dict.fromkeys(_words(told.get("traces", []), "traces")))
        study = cls(
            name, folder, traces, _word(told, "cluster"), _draw(told), loads, nodes, tuple(rules),
            Seeds.read(told.get("seeds", 1)), _compare(told.get("compare", {})), _texts(rules, folder),
        )  # fmt: skip
        study._sensible()
        return study

    def __repr__(self) -> str:
        return f"<Study {self.name}: {len(self.cases()):,} cases, {self.seeds}>"

    def cases(self) -> list[Case]:
        """Every combination of trace, load, nodes and rules."""
        return [
            Case(trace, load, nodes, rules)
            for trace in self.traces
            for load in self.loads
            for nodes in self.nodes
            for rules in self.rules
        ]

    def _sensible(self) -> None:
        _few(len(self.traces) * len(self.loads) * len(self.nodes) * len(self.rules), self.seeds.most)
        cases = self.cases()
        against = self.compare.against
        if against and not self.compare.pairs(cases):
            msg = f"no case of the study has the words to compare against: {dict(against)}"
            raise WorkloadError(msg, hint="they must be among the values of the study, beside others to compare")


def _few(cases: int, seeds: int) -> None:
    if cases * seeds > MOST:
        msg = f"more than {MOST:,} cells: {cases:,} cases of up to {seeds:,} seeds"
        raise WorkloadError(msg, hint="fewer values, or fewer seeds")


def _known(told: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    if unknown := [key for key in told if key not in known]:
        msg = f"no such key in the {where}: `{unknown[0]}`"
        raise WorkloadError(msg, hint=f"there are {', '.join(known)}")


def _tables(told: object) -> list[Mapping[str, Any]]:
    """`[simulate]` once, or `[[simulate]]` several times."""
    found: list[Any] = told if isinstance(told, list) else [told]
    if not found or not all(isinstance(table, Mapping) for table in found):
        msg = f"[simulate] is a table of words, not: {told!r}"
        raise WorkloadError(msg, hint='[simulate] on a line, then order = ["fifo", "sjf"]')
    return found


def _lists(table: Mapping[str, Any]) -> dict[str, list[Any]]:
    _known(table, tuple(RULES), "table [simulate]")
    found = {word: value if isinstance(value, list) else [value] for word, value in table.items()}
    for word, values in found.items():
        if not values or not all(_fits(word, value) for value in values):
            msg = f"[simulate] {word} cannot be: {table[word]!r}"
            raise WorkloadError(msg, hint=f"one value or a list of them, as `fleetlab simulate --{word}` takes them")
    return found


def _fits(word: str, value: object) -> bool:
    if word == "preemption":
        return isinstance(value, bool)
    if word in ("quota", "until", "load"):
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
    return isinstance(value, str) and bool(value)


def _numbers(told: object) -> tuple[float, ...]:
    values = told if isinstance(told, list) else [told]
    good = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and 1e-3 <= v <= 1e3]
    if not values or len(good) != len(values):
        msg = f"loads are numbers from 0.001 to 1000: {told!r}"
        raise WorkloadError(msg, hint="loads = [0.8, 1.0, 1.2]: at 1.2 the same jobs come 1.2 times as fast")
    return tuple(dict.fromkeys(float(v) for v in good))


def _words(told: object, key: str) -> list[str]:
    values: list[Any] = told if isinstance(told, list) else [told]
    if not values or not all(isinstance(v, str) and v for v in values):
        msg = f"{key} is a list of names in quotes, not: {told!r}"
        raise WorkloadError(msg, hint=f'{key} = ["{"builtin:2000" if key == "traces" else AS_IT_IS}"]')
    return values


def _word(told: Mapping[str, Any], key: str) -> str | None:
    return None if key not in told else _words([told[key]], key)[0]


def _draw(told: Mapping[str, Any]) -> str | None:
    found = _word(told, "draw")
    if found is not None and found not in DRAWS:
        msg = f"no way to draw by that name: `{found}`"
        raise WorkloadError(msg, hint=f"there are {', '.join(DRAWS)}")
    return found


def _compare(told: object) -> Compare:
    if not isinstance(told, Mapping):
        msg = f"[compare] is a table, not: {told!r}"
        raise WorkloadError(msg, hint='[compare] on a line, then against = { order = "fifo" }')
    _known(told, ("against", "metrics", "sure"), "table [compare]")
    against, sure = told.get("against", {}), told.get("sure", 0.95)
    if not isinstance(against, Mapping):
        msg = f"`against` is words and their values, not: {against!r}"
        raise WorkloadError(msg, hint='against = { order = "fifo" }')
    _known(against, AXES, "words to compare against")
    for word, value in against.items():
        if not _fits(word, value):
            msg = f"`against` has one value for {word}, not: {value!r}"
            raise WorkloadError(msg, hint="one of those that the study has")
    if not isinstance(sure, float) or not 0.5 <= sure < 1:
        msg = f"`sure` is a probability from 0.5 to below 1: {sure!r}"
        raise WorkloadError(msg, hint="sure = 0.95")
    metrics = tuple(dict.fromkeys(_words(told.get("metrics", list(METRICS)), "metrics")))
    return Compare({k: float(v) if k == "load" else v for k, v in against.items()}, metrics, sure)


def _texts(rules: list[tuple[tuple[str, Any], ...]], folder: Path) -> dict[str, str]:
    """The files that rules name: events, speed profiles, and the modules of own policies."""
    found = {}
    for word, value in {pair for rule in rules for pair in rule}:
        if (word == "events" and value is not None) or (word == "speed" and str(value).endswith(".json")):
            found[value] = _text(folder / value, word)
        elif word in ("order", "placement") and ":" in value and (origin := _module(value.partition(":")[0])):
            found[value] = _text(origin, word)
    return dict(sorted(found.items()))


def _module(name: str) -> Path | None:
    """The file of a module in the current folder or installed; what is not there the rehearsal will say."""
    here = Path.cwd() / f"{name.replace('.', '/')}.py"
    if here.is_file():
        return here
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


def _text(path: Path, word: str) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        msg = f"cannot read the file of `{word}`: {path}: {getattr(e, 'strerror', None) or e}"
        raise WorkloadError(msg, hint="files are looked for beside the study") from None
