"""Six questions about sharing a GPU, answered from the measurements, or with `not measured`."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from fleetlab.bench.analysis.choice_answers import costs, isolation, kinds_of_workloads
from fleetlab.bench.analysis.findings import Findings
from fleetlab.bench.analysis.throughput_answers import performance, scalability, switching
from fleetlab.bench.analysis.wording import capital
from fleetlab.bench.results.cells import table


class QuestionAnswer(NamedTuple):
    """A question and the sentences of its answer."""

    question: str
    sentences: tuple[str, ...]

    def lines(self) -> list[str]:
        """Each sentence, with a capital and a period."""
        return [f"{capital(s)}." for s in self.sentences]

    def __str__(self) -> str:
        return " ".join(self.lines())


def answers(f: Findings) -> list[QuestionAnswer]:
    """All six, in order."""
    return [
        QuestionAnswer("How does each mode affect throughput?", tuple(performance(f))),
        QuestionAnswer("How many tenants can share a GPU in each mode?", tuple(scalability(f))),
        QuestionAnswer("How well are tenants isolated?", tuple(isolation(f))),
        QuestionAnswer("What is the overhead of context switches under time slicing?", tuple(switching(f))),
        QuestionAnswer("Which mode for which kind of workload?", tuple(kinds_of_workloads(f))),
        QuestionAnswer("What does sharing cost and save?", tuple(costs(f))),
    ]


def answer_table(f: Findings) -> pl.DataFrame:
    """One row per question."""
    return table({"question": a.question, "answer": str(a)} for a in answers(f))
