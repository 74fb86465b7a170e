"""Small traces made by hand."""

from dataclasses import replace

import polars as pl
import pytest

import fleetlab


@pytest.fixture
def traced():
    """A trace of these columns: `traced(submit=[0.0, 5.0], gpu_milli=[500, 500], epoch=…)`."""

    def make(*, epoch=None, zone=None, source="by hand", **columns):
        parts = {name: columns.pop(name) for name in ("cluster", "usage", "placements", "series") if name in columns}
        work = fleetlab.Workload.of(pl.DataFrame(columns), source=source, epoch=epoch, zone=zone)
        return replace(fleetlab.Trace(work, fleetlab.Provenance("read", source)), **parts)

    return make
