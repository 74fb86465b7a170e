"""The profiles that ship: made from the cells in the documents, and complete."""

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from realtest.archives import gpu_sharing

from fleetlab.core import Speed, WorkloadError
from fleetlab.core.catalog import SPEEDS

HOUSE = Path(__file__).parents[2]
CELLS = gpu_sharing() / "h200"
HERE = HOUSE / "src" / "fleetlab" / "core"


def modes(profile: Speed) -> list[str]:
    return profile.frame["mode"].unique(maintain_order=True).to_list()


def test_the_cells_give_the_shipped_files_byte_for_byte(tmp_path):
    command = [sys.executable, "-m", "benchmarks.make_profile", str(CELLS), "--out", str(tmp_path)]
    subprocess.run(command, cwd=HOUSE, check=True, capture_output=True, timeout=120)
    made = sorted(tmp_path.iterdir())
    assert {path.name for path in made} == {p.file for p in SPEEDS} - {SPEEDS["published"].file}
    for path in made:
        assert path.read_bytes() == (HERE / path.name).read_bytes()


@pytest.mark.parametrize("name", SPEEDS.names)
def test_each_says_where_it_is_from_and_how_each_speed_is_known(name):
    profile = Speed.named(name)
    assert profile.notes
    assert profile.frame["kind"].null_count() == 0


@pytest.mark.parametrize("name", SPEEDS.names)
def test_each_has_every_pair_of_each_mode(name):
    profile = Speed.named(name)
    for mode in set(modes(profile)) - {"exclusive"}:
        works = profile.frame.filter(profile.frame["mode"] == mode)["workload"].unique().to_list()
        for one, other in product(works, (None, *works)):
            assert profile.speed(mode, one, other).value > 0


def test_the_default_is_of_the_simulators_classes_in_every_mode():
    profile = Speed.default()
    assert set(modes(profile)) == {"exclusive", "time-slicing", "mps", "mig"}
    assert set(profile.frame["workload"]) == {"light", "medium", "heavy"}


def test_only_slices_are_foretold():
    for name in ("h200", "h200-tenants"):
        frame = Speed.named(name).frame
        assert set(frame.filter(frame["kind"] == "predicted")["mode"]) == {"mig"}


def test_a_profile_that_does_not_ship_is_said():
    with pytest.raises(WorkloadError, match="no speed profile by that name"):
        Speed.named("abacus")
