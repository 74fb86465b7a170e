"""Days of polls on a clock that runs as fast as they are made: memory and files. DAYS=7 for a week (20 minutes)."""

import gc
import os
import resource
from bisect import bisect_left
from pathlib import Path

import pytest
from benchmarks.memory import slope
from tests.live.cluster import drawn
from tests.live.test_watch import BEGIN, Site

pytestmark = pytest.mark.validate
DAYS = float(os.environ.get("DAYS", "0.5"))
EVERY = 60.0
SPACING, LONGEST = 20.0, 3600.0  # s: 4,320 jobs a day, about 130 of them there at a time
SHOWN = 4 * 3600.0  # s back that commands are asked about
PAGE = resource.getpagesize()


def memory():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20


def test_memory_is_flat_and_files_grow_with_the_jobs_alone(tmp_path):
    jobs = drawn(int(DAYS * 86_400 / SPACING), BEGIN, SPACING, LONGEST)
    submits = [job["submit"] for job in jobs]
    site = Site(jobs, tmp_path / "watched").start()
    rows, polls, sizes = [], [], []
    for poll in range(int(DAYS * 86_400 / EVERY)):
        low, high = bisect_left(submits, site.now - SHOWN - 2 * LONGEST), bisect_left(submits, site.now + EVERY)
        site.jobs = jobs[low:high]
        site.poll(EVERY)
        site.samples()  # Prometheus asks as often
        if poll % 60 == 59:
            polls.append(poll + 1)
            sizes.append(memory())
        if poll % 360 == 359:
            store = site.watcher.store
            rows.append(
                (poll + 1, sizes[-1], store.size() / 2**10, len(list(store.folder.iterdir())), len(store.known))
            )
            print(
                "polls {:6,}  memory {:6.1f} MiB  store {:8.1f} KiB  files {:3}  jobs in memory {:6,}".format(*rows[-1])
            )
    growth = slope(polls, sizes)
    print("memory grows by {:.2f} MiB in 1,000 polls, 95 % interval {:.2f} to {:.2f}".format(*growth))
    site.jobs = jobs
    site.poll(3 * LONGEST)
    site.stop()
    trace = site.trace()
    names = trace.names.collect()["name"]
    print(f"{len(names):,} jobs in the trace, {site.watcher.store.cursor.rows:,} rows were written")
    assert sorted(map(int, names)) == [job["id"] for job in jobs]
    assert growth.low < 1.0
    early = rows[len(rows) // 4][1] if len(rows) > 4 else rows[0][1]
    assert rows[-1][1] < 1.05 * early
    assert rows[-1][4] < 2 * rows[0][4] + 2000
