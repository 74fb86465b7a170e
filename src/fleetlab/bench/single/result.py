"""What a work by itself told, as a result of the house."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from fleetlab.core import Estimate, Provenance, Result
from fleetlab.devices.errors import BenchError

if TYPE_CHECKING:
    from fleetlab.bench.single import Told


@dataclass(frozen=True, slots=True)
class Worked(Result):
    """One work on one device."""

    told: Told

    @property
    def provenance(self) -> Provenance:
        """Its settings, and where it ran."""
        about = {key: value for key, value in self.told.about.items() if key != "seed"}
        return Provenance("bench work", self.told.work, about, self.told.about["seed"])

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know about the numbers."""
        tiny = ("tiny sizes: the numbers mean nothing",) if self.told.about["tiny"] else ()
        return (*tiny, *self.told.notes)

    def summary(self) -> list[Estimate]:
        """Each number with its limits."""
        return [Estimate(*number) for number in self.told.numbers]

    def tables(self) -> dict[str, pl.DataFrame]:
        """By epoch, or by batch size."""
        return {name: pl.DataFrame(rows, infer_schema_length=None) for name, rows in self.told.tables.items()}

    def __repr__(self) -> str:
        return f"<Worked {self.told.work} on {self.told.about['device']}: {self.told.ended}>"


def worked(name: str, *, words: Sequence[str] = (), batches: str | None = None, **asked: Any) -> Worked:  # noqa: ANN401  as `work` takes them
    """Run one work, its settings given as `KEY=VALUE` words, batch sizes as `1,2,4`."""
    try:
        from fleetlab.bench.single import settings_of, sizes_of, work
    except ImportError as e:
        msg = f"a work needs what is not installed: {e}"
        raise BenchError(msg, hint="pip install fleetlab[bench]") from None
    return Worked(work(name, settings=settings_of(name, words), batches=sizes_of(batches), **asked))
