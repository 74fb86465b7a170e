"""The report of a workload alone as a result with polars tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from fleetlab.bench.options import WorkloadOptions
from fleetlab.core import Estimate, Provenance, Result
from fleetlab.devices.errors import BenchError
from fleetlab.devices.progress import Progress

if TYPE_CHECKING:
    from fleetlab.bench.single import SingleReport


@dataclass(frozen=True, slots=True, repr=False)
class SingleResult(Result):
    """One workload on one device."""

    report: SingleReport

    @property
    def provenance(self) -> Provenance:
        """Settings and device."""
        about = {key: value for key, value in self.report.about.items() if key != "seed"}
        return Provenance("bench workload", self.report.work, about, self.report.about["seed"])

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes, with a warning for tiny sizes."""
        tiny = ("tiny sizes: the results are meaningless",) if self.report.about["tiny"] else ()
        return (*tiny, *self.report.notes)

    def summary(self) -> list[Estimate]:
        """All estimates."""
        return [Estimate(*number) for number in self.report.numbers]

    def tables(self) -> dict[str, pl.DataFrame]:
        """By epoch, or by batch size."""
        return {name: pl.DataFrame(rows, infer_schema_length=None) for name, rows in self.report.tables.items()}


def single_result(options: WorkloadOptions, *, progress: Progress) -> SingleResult:
    """Run one workload as the command line asks for it."""
    try:
        from fleetlab.bench.single import run_workload
    except ImportError as e:
        msg = f"a package is not installed: {e}"
        raise BenchError(msg, hint="pip install 'fleetlab[bench]'") from None
    return SingleResult(run_workload(options, progress=progress))
