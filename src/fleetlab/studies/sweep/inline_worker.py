"""Cells in this process, one after the other: for scenarios with functions that no other process can import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleetlab.core import Trace
from fleetlab.studies.sweep.cell import CellInputs, run_cell
from fleetlab.studies.sweep.dispatch import CellWorker


class InlineWorker:
    """A worker that runs a cell when it is asked for the answer."""

    def __init__(self, inputs: CellInputs, code: str) -> None:
        self._inputs = inputs
        self._question: Mapping[str, Any] | None = None
        self._code = code

    def give(self, question: Mapping[str, Any]) -> None:
        """Take a question."""
        self._question = question

    def receive(self) -> Mapping[str, Any]:
        """Return that it is ready, and then one answer after the other."""
        return {"code": self._code} if self._question is None else run_cell(self._question, self._inputs)

    def reason(self) -> str:
        """Return why it ended: it does not."""
        return ""

    def stop(self, *, now: bool) -> None:
        """Do nothing: it ends with this process."""


class InlineBackend:
    """One worker: this process."""

    name = "inline"
    most_deaths = 1

    def __init__(self, fetch: Callable[[str], Trace], code: str) -> None:
        self._worker = InlineWorker(CellInputs(fetch), code)

    def count(self) -> int:
        """Return how many workers there should be now."""
        return 1

    def start(self) -> CellWorker:
        """Return the worker."""
        return self._worker

    def wait(self, workers: Sequence[CellWorker], timeout: float | None) -> list[CellWorker]:
        """Return the workers that have an answer: all of them."""
        return list(workers)

    def close(self) -> None:
        """Do nothing."""
