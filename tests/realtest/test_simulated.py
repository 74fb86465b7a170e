"""Recorded runs of a real Slurm, simulated as the site is configured: as close to them as they are to each other."""

from pathlib import Path

import pytest
from realtest.compare import FOLDER, is_met, real_pairs, recorded, simulated
from realtest.spread import compare

RUNS = sorted(path.parent for path in (Path(__file__).parents[2] / FOLDER).glob("*/run.json"))
QUICK = ("defaults-1", "everything-1")


def of_run(folder):
    return pytest.param(folder, id=folder.name, marks=() if folder.name in QUICK else pytest.mark.validate)


@pytest.mark.parametrize("folder", [of_run(folder) for folder in RUNS])
def test_a_real_run_is_met_as_closely_as_real_runs_repeat(folder):
    real = recorded(folder)
    met = is_met(compare(real, simulated(folder)), real_pairs(folder, real.start))
    assert {name for name, holds in met.items() if not holds} == set(OUTSIDE.get(folder.name, ()))
