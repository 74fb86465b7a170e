"""A study with its traces open: the key of every cell, and what a worker is asked."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from fleetlab.core import Progress, Provenance, Scenario, Trace, TraceError, Workload, WorkloadError
from fleetlab.core.catalog import ESTIMATES
from fleetlab.core.data import Data
from fleetlab.core.names import lookup
from fleetlab.core.word_spellings import is_of_user
from fleetlab.core.words import BUILTIN, EVENT, SYNTHETIC, WORDS, Opaque, plain, text
from fleetlab.sim import simulate
from fleetlab.studies.runner import code_version
from fleetlab.studies.sweep.cell import metrics_of
from fleetlab.studies.sweep.store import LAYOUT, digest
from fleetlab.studies.sweep.study import AXES, Study

CELL = "fleetlab.studies.sweep.cell"
# Metrics that not every run has.
SOMETIMES = {
    "jobs not completed", "GPU allocation until the simulation stops", "Jain index of users' mean bounded slowdown",
}  # fmt: skip
# Two jobs to try a policy on.
TINY = {"submit": [0.0, 1.0], "runtime": [1.0, 1.0], "user": ["a", "b"], "cpu_milli": [1, 1]}

CaseWords: TypeAlias = tuple[tuple[str, str | float], ...]  # all words of a scenario, as tables show them

# -- the traces of a study as workers open them, each named after its content -----------------------------------------

KEPT = ("eligible_logged", "events")  # of what a log tells beside the jobs


@dataclass(frozen=True, slots=True, eq=False)
class TraceSource:
    """A trace with its cluster and the estimates that scenarios need, and how seeds resample it."""

    digest: str
    trace: Trace
    resample: str
    content: Data  # its key depends on what is in the trace, not on its name

    @classmethod
    def of(
        cls, data: Data, resample: str | None, estimates: Mapping[str, pl.Series], progress: Progress
    ) -> TraceSource:
        """Open a trace; estimates are columns of seconds by name."""
        trace, cluster = data.open(progress), data.cluster
        if not len(trace.workload):
            msg = f"the trace has no jobs: {data.name or trace.workload.source}"
            raise TraceError(msg, hint="a study needs jobs to simulate")
        name = data.name or ""
        synthetic = name.split(":")[0] in SYNTHETIC and name.count(":") < 2
        resample = resample or ("synthesize" if synthetic else "blocks")
        if resample == "synthesize" and not synthetic:
            msg = f"only a built-in trace without a seed can be synthesized for each seed, not: {name}"
            raise TraceError(msg, hint='resample = "blocks" resamples parts of a log; "builtin:2000" is synthesized')
        jobs = trace.workload
        site = Trace(jobs, Provenance("sweep", jobs.source), cluster, trace.scheduler)
        content = Data(f"{BUILTIN}:{len(jobs)}" if resample == "synthesize" else site, cluster)
        job = pl.int_range(len(jobs), eager=True)
        series = {n: pl.DataFrame({"job": job, "seconds": column}).lazy() for n, column in estimates.items()}
        about = f"{resample == 'synthesize'} {len(jobs)} {sorted(content.digests.items())} {sorted(estimates)}"
        series |= {name: trace.series[name] for name in KEPT if name in trace.series}
        saved = replace(site, series=series)
        return cls(sha256(about.encode()).hexdigest()[:16], saved, resample, content)


def estimate_name(column: pl.Series) -> str:
    """Return a name for a column of estimates: the same for the same seconds."""
    return f"estimate-{sha256(column.cast(pl.Float64).to_numpy().tobytes()).hexdigest()[:16]}"


# -- cells ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StudyCell:
    """One simulation: a scenario with a seed, and the key under which its result is kept."""

    scenario: Scenario
    seed: int
    key: str

    @property
    def sample(self) -> tuple[int, int]:
        """Cells with the same sample have the same jobs before they are scaled to a load."""
        return id(self.scenario.data), self.seed


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What a sweep runs."""

    study: Study
    sources: Mapping[int, TraceSource]  # by the identity of the data of scenarios
    files: Mapping[str, str]  # the text of files that scenarios name, by how they name them
    questions: Mapping[Scenario, Mapping[str, Any]]  # what a worker is asked, but for the seed

    @classmethod
    def of(cls, study: Study, progress: Progress) -> SweepPlan:
        """Open the traces, read the files, and refuse edits of nodes that are not possible."""
        groups: dict[int, list[Scenario]] = {}
        for scenario in study.scenarios:
            groups.setdefault(id(scenario.data), []).append(scenario)
        sources, files = {}, _files(study.scenarios)
        digests = {
            name: digest([content, *_beside(name)] if ":" in name else content) for name, content in files.items()
        }
        questions: dict[Scenario, Mapping[str, Any]] = {}
        for same, scenarios in groups.items():
            data = scenarios[0].data
            data.open(progress)
            for edits in {scenario.nodes for scenario in scenarios}:
                data.cluster.with_nodes(edits)
            columns = {scenario: column for scenario in scenarios if (column := _column(scenario)) is not None}
            names = {scenario: estimate_name(column) for scenario, column in columns.items()}
            estimates = {name: columns[scenario] for scenario, name in names.items()}
            sources[same] = source = TraceSource.of(data, study.resample, estimates, progress)
            for scenario in scenarios:
                questions[scenario] = _question(scenario, source, names.get(scenario), digests)
        return cls(study, sources, files, questions)

    @property
    def local_only(self) -> bool:
        """Whether a scenario has a function or object that cannot be sent to another process."""
        return any("scenario" in question for question in self.questions.values())

    @property
    def texts(self) -> dict[str, str]:
        """The files that workers need, by the names they look for."""
        files = {}
        for name, content in self.files.items():
            if ":" not in name:
                files[_file_name(digest(content))] = content
            elif "." not in (module := name.partition(":")[0]):  # packages must be installed where workers run
                files[f"{module}.py"] = content
        return files

    def cell(self, scenario: Scenario, seed: int) -> StudyCell:
        """Return a scenario with a seed, and the key of everything that decides its result."""
        question = self.questions[scenario]
        decides = {k: question[k] for k in ("layout", "scenario key", "resample", "files", "version", "code")}
        return StudyCell(scenario, seed, digest(decides | {"seed": seed}))

    def question(self, cell: StudyCell) -> dict[str, Any]:
        """Return what a worker needs to run a cell."""
        return {"key": cell.key, **self.questions[cell.scenario], "seed": cell.seed}

    def rehearse(self) -> None:
        """Simulate two jobs with every value of every word: a mistake is found before work starts, not in every cell.

        It also compiles what is not compiled yet, once instead of in each worker.
        """
        names, tiny = set(SOMETIMES), Workload.of(pl.DataFrame(TINY), source="a rehearsal")
        for scenario in covering({s: frozenset(case_words(s)) for s in self.study.scenarios}):
            small = scenario.on(tiny, np.zeros(2, dtype=np.int64))
            if isinstance(quota := small.policy.quota, Mapping):  # of users that are not in the rehearsal
                small = small.replace(quota=max(quota.values()))
            names |= set(metrics_of(simulate(small)))
            if small.scheduler is not None:  # whose queues, too, may have none of the two jobs
                names |= set(metrics_of(simulate(small.replace(scheduler=EVENT))))
        for metric in (*self.study.metrics, self.study.seeds.metric):
            lookup("metric", metric, sorted(names), error=WorkloadError)


def _question(
    scenario: Scenario, source: TraceSource, estimate: str | None, digests: Mapping[str, str]
) -> dict[str, Any]:
    policy = scenario.policy if estimate is None else scenario.policy.replace(estimate=estimate)
    used = (plain(policy.order), plain(policy.placement), plain(policy.scheduler), policy.speed)
    names = [name for name in used if isinstance(name, str) and name in digests]
    if policy.speed in names:
        policy = policy.replace(speed=_file_name(digests[policy.speed]))
    content = replace(scenario, data=source.content, policy=policy)
    # The words of a worker's scenario: its trace and cluster are the source.
    words = {k: v for k, v in content.words().items() if k not in ("trace", "cluster")}
    question = {
        "layout": LAYOUT, "source": source.digest, "resample": source.resample, "jobs": len(source.trace.workload),
        "words": dict(case_words(scenario)), "run": words, "scenario key": content.key,
        "files": {name: digests[name] for name in names}, "version": _release(), "code": code_version(CELL),
    }  # fmt: skip
    if any(isinstance(value, Opaque) for value in words.values()):
        question["scenario"] = replace(scenario, data=Data(source.trace), policy=policy.replace(speed=scenario.speed))
    return question


def _column(scenario: Scenario) -> pl.Series | None:
    """Return the estimates of a scenario where they are a column or a series of the trace."""
    name = scenario.policy.estimate
    if isinstance(name, str) and name in ESTIMATES:
        return None
    column = scenario.estimate
    assert not isinstance(column, str)
    return column


@cache
def _release() -> str:
    return version("fleetlab")  # looks for a file each time


def case_words(scenario: Scenario) -> CaseWords:
    """Return all words of a scenario but the seed, defaults too, as tables show them."""
    words = scenario.words()
    return tuple((name, table_value(words.get(name, WORDS[name].default))) for name in AXES)


def table_value(value: object) -> str | float:
    """Return a value as tables show it: a number or a text.

    >>> table_value(None), table_value(True), table_value(2), table_value({"ada": 16})
    ('none', 'true', 2.0, '{"ada":16}')
    """
    if value in (None, "", [], ()):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return float(value) if isinstance(value, int | float) else text(plain(value))


def covering(items: Mapping[Scenario, frozenset[Any]]) -> list[Scenario]:
    """Return some of the keys, so that each item of any of them is in one of those."""
    uncovered, chosen = frozenset().union(*items.values()), []
    while uncovered:
        best = max(items, key=lambda key: len(uncovered & items[key]))
        chosen.append(best)
        uncovered -= items[best]
    return chosen


def _files(scenarios: Iterable[Scenario]) -> dict[str, str]:
    """Return the text of speed profiles and of the modules of own policies, by how scenarios name them."""
    files = {}
    for scenario in scenarios:
        speed = scenario.policy.speed
        if isinstance(speed, str) and speed.endswith(".json") and speed not in files:
            files[speed] = _text(Path(speed), "speed")
        for kind in ("order", "placement", "scheduler"):
            name = plain(getattr(scenario.policy, kind))
            own = isinstance(name, str) and ":" in name and not isinstance(name, Opaque) and name not in files
            if own and (origin := _module(name.partition(":")[0])) is not None:
                files[name] = _text(origin, kind)
    return dict(sorted(files.items()))


def _beside(name: str) -> list[str]:
    """Return the texts of all modules of the user that a module imports: workers read them as they are now."""
    first = name.partition(":")[0]
    todo, texts = [first], {}
    while todo:
        module = todo.pop()
        path = None if module in texts or not is_of_user(module) else _module(module)
        if path is None or path.suffix != ".py" or not is_of_user(module, path):
            continue
        texts[module] = _text(path, "module")
        todo += _imports(texts[module], module if path.name == "__init__.py" else module.rpartition(".")[0])
    return [texts[module] for module in sorted(texts) if module != first]


def _imports(content: str, package: str) -> set[str]:
    """Return what may be modules that a text imports, anywhere in it."""
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except SyntaxError:  # which the rehearsal reports
        return set()
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            of = ".".join([*above, *([node.module] if node.module else [])])
            modules |= {of, *(f"{of}.{alias.name}" for alias in node.names)} - {""}
    return modules


def _file_name(of: str) -> str:
    return f"{of[:16]}.json"


def _module(name: str) -> Path | None:
    """Return the file of a module in the current folder or installed; the rehearsal reports one that is missing."""
    here = Path.cwd() / name.replace(".", "/")
    for path in (here.with_name(f"{here.name}.py"), here / "__init__.py"):
        if path.is_file():
            return path
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
