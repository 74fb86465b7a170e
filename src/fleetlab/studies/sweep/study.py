"""A study: scenarios to simulate for several seeds, and what to compare. A study file has the words of a scenario.

Each word has one value or a list of values, and every combination is a scenario. `[[scenario]]` tables add words of
their own to those at the top, and are combined table by table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias, Unpack

import polars as pl

from fleetlab.core import Cluster, Scenario, Words, WorkloadError, toml
from fleetlab.core.addresses import beside
from fleetlab.core.cells import noun_cell
from fleetlab.core.names import clip, lookup
from fleetlab.core.scenario import ScenarioLike
from fleetlab.core.words import WORDS, check
from fleetlab.studies.sweep.seeds import Seeds

HINT = 'trace = "builtin:2000", order = ["fifo", "sjf"] and seeds = 10, each on a line; see docs/sweep.md'
# How a seed changes the jobs: a new synthetic trace; other arrivals of the same kind; the same, nudged; not at all.
RESAMPLINGS = ("synthesize", "blocks", "nudge", "none")
OPTIONS = ("seeds", "resample", "scenario", "compare")
COMPARE = ("against", "metrics", "confidence")
AXES = tuple(name for name in WORDS if name != "seed")
METRICS = ("mean wait", "P90 wait")
MOST = 10_000_000  # cells: more is a mistyped number

SeedsLike: TypeAlias = "Seeds | int | Sequence[int] | Mapping[str, Any]"
StudyLike: TypeAlias = "Study | Iterable[Scenario] | ScenarioLike"


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """Scenarios, the seeds to run each with, and what to compare; build one with `Study.of`.

    Parameters
    ----------
    scenarios
        The scenarios.
    seeds
        The seeds to run each with.
    resample
        How a seed changes the jobs (None: `synthesize` for a built-in trace, `blocks` for any other).
    against
        The words of the baseline.
    metrics
        The metrics to compare.
    confidence
        The probability with which all intervals of differences hold.
    name
        Its name.

    Examples
    --------
    >>> Study.of("builtin:500", seeds=3)
    <Study study: 1 scenario, 3 seeds>
    """

    scenarios: tuple[Scenario, ...]
    seeds: Seeds
    resample: str | None = None  # None: `synthesize` for a built-in trace, `blocks` for any other
    against: Mapping[str, Any] = field(default_factory=dict)  # the words of the baseline
    metrics: tuple[str, ...] = METRICS
    confidence: float = 0.95
    name: str = "study"

    @classmethod
    def of(
        cls,
        source: StudyLike,
        cluster: Cluster | None = None,
        *,
        seeds: SeedsLike | None = None,
        resample: str | None = None,
        against: Mapping[str, Any] | None = None,
        metrics: Sequence[str] | None = None,
        confidence: float | None = None,
        **words: Unpack[Words],
    ) -> Study:
        """Build a study from scenarios, a study file (`.toml`), or what a scenario is built from; or change one.

        Parameters
        ----------
        source
            Scenarios as `Scenario.vary` returns them, a study file, a `Study`, or what `Scenario.of` takes.
        cluster
            The nodes, in place of those of the trace.
        **words
            Words of the scenario, such as `order="sjf"` or `load=1.2`.
        seeds
            As `sweep` takes them, like all that follows.
        resample
            How a seed changes the jobs.
        against
            The words of the baseline.
        metrics
            The metrics to compare.
        confidence
            The probability with which all intervals of differences hold.

        Returns
        -------
        Study
            The study.

        Raises
        ------
        WorkloadError
            If there is no scenario, or no baseline among them.

        Examples
        --------
        >>> Study.of(Scenario.of("builtin:500").vary(order=["fifo", "sjf"]), seeds=3)
        <Study study: 2 scenarios, 3 seeds>
        """
        if isinstance(source, str | Path) and str(source).endswith(".toml"):
            source = cls.from_toml(source)
        if not isinstance(source, Study):
            several = isinstance(source, Iterable) and not isinstance(source, str)
            source = cls._of_scenarios(list(source) if several else [Scenario.of(source, cluster)])  # type: ignore[arg-type]
        options = {
            "seeds": seeds,
            "resample": resample,
            "against": against,
            "metrics": metrics,
            "confidence": confidence,
        }
        changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        if cluster is not None or words:
            changes["scenarios"] = [Scenario.of(scenario, cluster, **words) for scenario in source.scenarios]
        return source.replace(**changes)

    @classmethod
    def _of_scenarios(cls, scenarios: Sequence[Scenario], name: str = "study") -> Study:
        if not scenarios or not all(isinstance(scenario, Scenario) for scenario in scenarios):
            msg = f"a study needs scenarios: {clip(repr(scenarios))}"
            raise WorkloadError(msg, hint="Scenario.of(TRACE).vary(order=['fifo', 'sjf'])")
        # Scenarios that differ in their seed alone are cells of one.
        seeds = Seeds.of([scenario.seed for scenario in scenarios])
        return cls(tuple(dict.fromkeys(scenario.replace(seed=0) for scenario in scenarios)), seeds, name=name)

    @classmethod
    def from_toml(cls, path: Path | str) -> Study:
        r"""Read a study file; the files it names are looked for beside it.

        Parameters
        ----------
        path
            The file.

        Returns
        -------
        Study
            The study, named after the file.

        Raises
        ------
        WorkloadError
            If the file cannot be read, or a key is unknown.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "orders.toml")
        ...     _ = file.write_text('trace = "builtin:500"\norder = ["fifo", "sjf"]\nseeds = 3\n')
        ...     Study.from_toml(file)
        <Study orders: 2 scenarios, 3 seeds>
        """
        path = Path(path)
        return cls.of_words(toml.load(path, "the study", HINT), name=path.stem, folder=path.parent)

    @classmethod
    def of_words(cls, words: Mapping[str, Any], *, name: str = "study", folder: Path | str = ".") -> Study:
        """Build a study from the words of a study file.

        Parameters
        ----------
        words
            Values, or lists of values, by word, and options of a study.
        name
            Its name.
        folder
            Where files that it names are looked for.

        Returns
        -------
        Study
            Every combination of the values.

        Raises
        ------
        WorkloadError
            If a key is unknown, or a value is not understood.

        Examples
        --------
        >>> Study.of_words({"trace": "builtin:500", "order": ["fifo", "sjf"], "seeds": 3})
        <Study study: 2 scenarios, 3 seeds>
        """
        check(words, (*WORDS, *OPTIONS))
        folder = Path(folder)
        options = {key: value for key, value in words.items() if key in ("seeds", "resample")}
        options |= _comparison(words.get("compare", {}), folder)
        common = _axes({key: value for key, value in words.items() if key in WORDS}, folder)
        tables = [common | _axes(table, folder) for table in _tables(words.get("scenario", {}))]
        _limit(sum(math.prod(map(len, axes.values())) for axes in tables), 1)  # before they are written out
        bases: dict[tuple[Any, Any], Scenario] = {}
        scenarios = [scenario for axes in tables for scenario in _combinations(axes, bases)]
        return cls._of_scenarios(scenarios, name).replace(**options)

    def replace(self, **changes: Any) -> Study:  # noqa: ANN401
        """Return the study with other scenarios or options.

        Parameters
        ----------
        **changes
            Fields of the study.

        Returns
        -------
        Study
            The other study; this one stays as it is.

        Raises
        ------
        WorkloadError
            If a value is out of range, or no scenario is the baseline.

        Examples
        --------
        >>> Study.of("builtin:500").replace(seeds=5)
        <Study study: 1 scenario, 5 seeds>
        """
        if "seeds" in changes:
            changes["seeds"] = Seeds.of(changes["seeds"])
        if changes.get("resample") is not None:
            lookup("resampling", changes["resample"], RESAMPLINGS, error=WorkloadError)
        if "scenarios" in changes:
            changes["scenarios"] = tuple(dict.fromkeys(changes["scenarios"]))
        if "metrics" in changes:
            changes["metrics"] = tuple(dict.fromkeys(changes["metrics"]))
        study = replace(self, **changes)
        check(study.against, AXES)
        if not 0.5 <= study.confidence < 1:
            msg = f"`confidence` is a probability from 0.5 to below 1: {study.confidence!r}"
            raise WorkloadError(msg, hint="confidence = 0.95")
        _limit(len(study.scenarios), study.seeds.most)
        if study.against and not study.pairs():
            msg = f"no scenario of the study is a baseline with: {dict(study.against)}"
            raise WorkloadError(msg, hint="a baseline has values that are in the study, beside others to compare")
        return study

    def _repr_html_(self) -> str:
        titles = pl.DataFrame({"scenario": [scenario.title for scenario in self.scenarios]})
        return noun_cell(repr(self).strip("<>"), {"scenarios": titles})

    def __repr__(self) -> str:
        count = len(self.scenarios)
        return f"<Study {self.name}: {count:,} scenario{'s' * (count > 1)}, {self.seeds}>"

    def pairs(self) -> list[tuple[Scenario, Scenario]]:
        """Return each scenario with its baseline: the one with the words of `against`, and otherwise the same.

        Returns
        -------
        list of tuple of Scenario
            Scenario and baseline; empty where there is no baseline.

        Examples
        --------
        >>> scenarios = Scenario.of("builtin:500").vary(order=["fifo", "sjf"])
        >>> [scenario.title for scenario, _ in Study.of(scenarios, against={"order": "fifo"}).pairs()]
        ['sjf/greedy']
        """
        if not self.against:
            return []
        scenarios = set(self.scenarios)
        both = [(scenario, scenario.replace(**self.against)) for scenario in self.scenarios]
        return [(scenario, base) for scenario, base in both if scenario != base and base in scenarios]


def _limit(scenarios: int, seeds: int) -> None:
    if scenarios * seeds > MOST:
        msg = f"more than {MOST:,} cells: {scenarios:,} scenarios with up to {seeds:,} seeds"
        raise WorkloadError(msg, hint="fewer values, or fewer seeds")


def _tables(value: object) -> list[Mapping[str, Any]]:
    """Return the tables of `[scenario]`, or of several `[[scenario]]`."""
    tables: list[Any] = value if isinstance(value, list) else [value]
    if not tables or not all(isinstance(table, Mapping) for table in tables):
        msg = f"[[scenario]] is a table of words, not: {value!r}"
        raise WorkloadError(msg, hint='[[scenario]] on a line, then order = ["fifo", "sjf"]')
    for table in tables:
        check(table, AXES)
    return tables


def _axes(words: Mapping[str, Any], folder: Path) -> dict[str, list[Any]]:
    return {name: [beside({name: v}, folder)[name] for v in _values(name, value)] for name, value in words.items()}


def _values(name: str, value: Any) -> list[Any]:  # noqa: ANN401
    """Return the values of a word; weights and events are lists themselves."""
    if not isinstance(value, list):
        return [value]
    if not value:
        raise WorkloadError(f"`{name}` has no value", hint="one value, or a list of values")
    nested = name in ("weights", "events") and not isinstance(value[0], str | list)
    return [value] if nested else value


def _combinations(axes: Mapping[str, list[Any]], bases: dict[tuple[Any, Any], Scenario]) -> list[Scenario]:
    """Return every combination; scenarios of one trace and cluster share their data."""
    others = {name: values for name, values in axes.items() if name not in ("trace", "cluster")}
    scenarios: list[Scenario] = []
    for trace, cluster in product(axes.get("trace", [None]), axes.get("cluster", [None])):
        if (trace, cluster) not in bases:
            data = {"trace": trace} | ({} if cluster is None else {"cluster": cluster})
            bases[trace, cluster] = Scenario.of_words(data)
        scenarios += bases[trace, cluster].vary(**others)
    return scenarios


def _comparison(table: object, folder: Path) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        msg = f"[compare] is a table, not: {table!r}"
        raise WorkloadError(msg, hint='[compare] on a line, then against = { order = "fifo" }')
    for key in table:
        lookup("key of [compare]", key, COMPARE, error=WorkloadError)
    against, metrics = table.get("against", {}), table.get("metrics", list(METRICS))
    if not isinstance(against, Mapping):
        msg = f"`against` is words and their values, not: {against!r}"
        raise WorkloadError(msg, hint='against = { order = "fifo" }')
    if not isinstance(metrics, list) or not metrics or not all(isinstance(metric, str) for metric in metrics):
        raise WorkloadError(f"`metrics` is a list of names, not: {metrics!r}", hint='metrics = ["mean wait"]')
    confidence = table.get("confidence", 0.95)
    return {
        "against": beside(against, folder),
        "metrics": metrics,
        "confidence": confidence if isinstance(confidence, float) else math.nan,
    }
