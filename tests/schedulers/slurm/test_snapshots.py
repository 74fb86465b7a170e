"""Every row that sprio and sshare printed while real runs of Slurm 22.05 lasted, to the last digit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .snapshots import Recording, Replay, compare

RUNS = sorted(Path(__file__).parent.glob("*.json.xz"))
FAIR = Path(__file__).parent / "fair-share.json.xz"
PRINT = """
from pathlib import Path
from tests.schedulers.slurm.snapshots import Recording, Replay
run = Recording.load(Path({path!r}))
replay = Replay(run)
for snapshot in run.snapshots:
    replay.forward(snapshot.sshare_times[0])
    values = [*replay.usage.billing, *replay.usage.amounts.ravel(), *replay.usage.level_fs]
    print([float(value).hex() for value in values], replay.sprio())
"""


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name.split(".")[0])
def test_priorities_and_shares_are_those_of_slurm_to_the_last_digit(path):
    result = compare(Recording.load(path))

    assert result.sshare > 200
    assert result.sprio > 100
    assert result.differences == []


def test_usage_of_a_run_depends_on_when_in_the_minute_its_passes_are():
    run = Recording.load(FAIR)
    run.first_pass += 7

    assert len(compare(run).differences) > 100


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name.split(".")[0])
def test_what_is_compiled_computes_the_same_bits_as_plain_python(path):
    printed = []
    for off in ("0", "1"):
        env = os.environ | {"NUMBA_DISABLE_JIT": off}
        script = PRINT.format(path=str(path))
        printed.append(
            subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
        )

    assert printed[0].stdout == printed[1].stdout != ""


def test_a_finished_run_holds_nothing_to_its_time_limits():
    run = Recording.load(FAIR)
    replay = Replay(run)
    replay.forward(max(job.end for job in run.jobs))

    assert not replay.usage.ahead.any()
