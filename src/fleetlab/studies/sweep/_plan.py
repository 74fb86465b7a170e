"""A study with its traces made ready: the address of each cell, and what a worker is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from fleetlab.core import Cluster, Workload, WorkloadError
from fleetlab.studies.believed import BEFORE
from fleetlab.studies.sweep._cases import Case, Cell, address
from fleetlab.studies.sweep._cell import filed, measured, opened
from fleetlab.studies.sweep._code import code, release, text_digest
from fleetlab.studies.sweep._nodes import edited
from fleetlab.studies.sweep._sources import Prepared, prepare
from fleetlab.studies.sweep._store import LAYOUT
from fleetlab.studies.sweep.study import Study
from fleetlab.traces import Progress

Rule = tuple[tuple[str, Any], ...]
SOMETIMES = {"jobs not done", "Jain fairness over users"}  # metrics that not every run has
# Two jobs to try a rule on.
TINY = {"submit": [0.0, 1.0], "runtime": [1.0, 1.0], "user": ["a", "b"], "cpu_milli": [1, 1]}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a sweep plays."""

    study: Study
    prepared: Mapping[str, Prepared]  # by the words of the trace
    digests: Mapping[str, str]  # of the files that rules name

    @classmethod
    def of(cls, study: Study, progress: Progress) -> Plan:
        """Open the traces, and refuse nodes that cannot be."""
        cluster = None if study.cluster is None else Cluster.from_toml(study.folder / study.cluster)
        ready = {
            words: prepare(words, base=study.folder, cluster=cluster, draw=study.draw, progress=progress)
            for words in study.traces
        }
        for one in ready.values():
            for words in study.nodes:
                edited(one.nodes, words)
        return cls(study, ready, {word: text_digest(text) for word, text in study.texts.items()})

    @property
    def texts(self) -> dict[str, str]:
        """The files that workers need, by the names they know them by."""
        files = {filed(w, self.digests[w]): t for w, t in self.study.texts.items() if ":" not in w}
        # A module of a package must be installed where workers run; a single file goes with them.
        modules = {w.partition(":")[0]: t for w, t in self.study.texts.items() if ":" in w}
        return files | {f"{name}.py": text for name, text in modules.items() if "." not in name}

    def cell(self, case: Case, seed: int) -> Cell:
        """A case with a seed, and the address of everything that decides its result."""
        return Cell(case, seed, address(self._decides(case, seed)))

    def ask(self, cell: Cell) -> dict[str, Any]:
        """A cell as a question to a worker: what decides it, and the words that people know it by."""
        return {"key": cell.key, "trace": cell.case.trace, **self._decides(cell.case, cell.seed)}

    def _decides(self, case: Case, seed: int) -> dict[str, Any]:
        source, rules = self.prepared[case.trace].source, dict(case.rules)
        return {
            "layout": LAYOUT, "source": source.digest, "draw": source.draw, "fresh": source.fresh, "seed": seed,
            "load": case.load, "nodes": case.nodes, "rules": rules,
            "texts": {v: self.digests[v] for v in rules.values() if isinstance(v, str) and v in self.digests},
            "version": release(), "code": code(),
        }  # fmt: skip

    def rehearse(self) -> None:
        """Try each word of the rules on two jobs: a wrong one is found before work starts, and not in every cell.

        It also compiles what is not on disk yet, once instead of in each worker.
        """
        from fleetlab.sim import simulate

        one = next(iter(self.prepared.values()))
        believed = {f"{BEFORE}{name}": [1.0, 1.0] for name in one.believed}
        jobs, cluster = pl.DataFrame(TINY), Cluster.of(one.nodes, source=one.source.words)
        names = set(SOMETIMES)
        for told in covering(self.study.rules):
            rules = opened(dict(told), jobs.with_columns(**_columns(believed)), lambda word: self.study.folder / word)
            names |= set(measured(simulate(Workload.of(jobs, source="a rehearsal"), cluster, **rules)))
        asked = [*self.study.compare.metrics, self.study.seeds.metric]
        if unknown := [metric for metric in asked if metric not in names]:
            msg = f"no metric by that name: `{unknown[0]}`"
            raise WorkloadError(msg, hint=f"there are {', '.join(sorted(names))}")


def covering(rules: Sequence[Rule]) -> list[Rule]:
    """Some of the rules, so that each word of any of them is in one.

    >>> covering([(("a", 1), ("b", 1)), (("a", 1), ("b", 2)), (("a", 2), ("b", 1)), (("a", 2), ("b", 2))])
    [(('a', 1), ('b', 1)), (('a', 2), ('b', 2))]
    """
    left, found = {pair for rule in rules for pair in rule}, []
    while left:
        best = max(rules, key=lambda rule: len(left.intersection(rule)))
        found.append(best)
        left -= set(best)
    return found


def _columns(values: Mapping[str, list[float]]) -> dict[str, pl.Series]:
    return {name: pl.Series(name, seconds) for name, seconds in values.items()}


def folder_of(store: Path) -> Path:
    """Where the tables of sources lie in a store."""
    return store / "traces"
