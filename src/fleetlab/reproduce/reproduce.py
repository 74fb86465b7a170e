"""Reproduce published results: one study by name, its published numbers beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import polars as pl

from fleetlab.core import Provenance, Result, WorkloadError
from fleetlab.core.names import lookup
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import FieldsResult
from fleetlab.reproduce import dlrm2025, fgd_atc23, gpu_sharing, nsdi22
from fleetlab.reproduce.item import catalogue
from fleetlab.reproduce.result import Material, Reproduction


class Study(NamedTuple):
    """A study: how it is made, what it needs, and how long it takes on two cores."""

    make: Callable[..., Material]
    needs: str
    takes: str


STUDIES: Mapping[str, Study] = {
    "nsdi22": Study(nsdi22.material, "nothing; --data: tables of pai2020, all or some", "5 min; quick 40 s"),
    "fgd-atc23": Study(fgd_atc23.material, "--data: openb2023; for curves the authors' results", "40 s; quick 20 s"),
    "dlrm2025": Study(dlrm2025.material, "--data: dlrm2025", "1 min; quick 10 s"),
    "gpu-sharing": Study(gpu_sharing.material, "--data: raw cells, ours or of `fleetlab bench all`", "5 s"),
}  # fmt: skip


def reproduce(
    name: str, *, data: Path | str | None = None, quick: bool = False, seed: int = 0, progress: Progress = silent
) -> Reproduction:
    """Reproduce a published study: every published number beside ours, with a verdict and the reason.

    A number is reproduced if ours, with its 95 % interval where it comes from random runs, lies inside the tolerance
    around the published one, different if it lies outside, and not decided if the interval reaches across.

    Parameters
    ----------
    name
        nsdi22, fgd-atc23, dlrm2025 or gpu-sharing.
    data
        A folder of public traces, or of the files of one, as `fleetlab fetch` brings them; of gpu-sharing, a folder of
        raw cells (default: none; the built-in trace where there is one).
    quick
        Fewer random runs on fewer jobs, so that more is not decided; what needs the whole trace is left out, and says
        so.
    seed
        Random seed of traces and simulations (default: 0).
    progress
        Called as parts of the study are done.

    Returns
    -------
    Reproduction
        One row per published number or curve: its source, ours, of which data ours is, the verdict and why.

    Raises
    ------
    WorkloadError
        If there is no study by that name, or its data are not given.

    Examples
    --------
    >>> import fleetlab
    >>> fleetlab.reproduce("fgd-atc23")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fleetlab.core.errors.WorkloadError: openb_pod_list_default.csv is needed: no folder of data was given
    hint: ...
    """
    study = STUDIES[lookup("study to reproduce", name, STUDIES, error=WorkloadError)]
    material = study.make(data, quick=quick, seed=seed, progress=progress)
    settings = {"name": name, "quick": quick} | ({} if data is None else {"data": Path(data).name})
    return Reproduction.of(catalogue(name)["title"], material, Provenance("reproduce", material.source, settings, seed))


def studies() -> Result:
    """List what can be reproduced."""
    rows = [(name, catalogue(name)["title"], s.needs, s.takes) for name, s in STUDIES.items()]
    frame = pl.DataFrame(rows, schema=["name", "study", "needs", "takes, on two cores"], orient="row")
    return FieldsResult(Provenance("reproduce", "fleetlab"), frames={"studies": frame})
