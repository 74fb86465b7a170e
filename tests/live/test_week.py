"""Days of polls on a clock that runs as fast as they are made: memory and files. DAYS=7 for a week (30 minutes)."""

import gc
import os
import resource
import sys
import time
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
SETTLED = 300  # polls: keys of ended jobs are remembered for four hours
PAUSE = 2.0  # s: polars returns memory to the system a second after it is free, and a watch is idle between its polls
MOST = 0.5  # MiB in 1,000 polls: allocators hold a MiB more or less
PAGE = resource.getpagesize()


def memory():
    gc.collect()
    time.sleep(PAUSE)
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20


def test_memory_is_flat_and_files_grow_with_the_jobs_alone(tmp_path):
    jobs = drawn(int(DAYS * 86_400 / SPACING), BEGIN, SPACING, LONGEST)
    submits = [job["submit"] for job in jobs]
    site = Site(jobs, tmp_path / "watched").start()
    rows, polls, sizes, blocks = [], [], [], []
    for poll in range(int(DAYS * 86_400 / EVERY)):
        low, high = bisect_left(submits, site.now - SHOWN - 2 * LONGEST), bisect_left(submits, site.now + EVERY)
        site.jobs = jobs[low:high]
        site.poll(EVERY)
        site.samples()  # Prometheus asks as often
        if poll % 60 == 59:
            polls.append(poll + 1)
            sizes.append(memory())
            blocks.append(sys.getallocatedblocks())
        if poll % 360 == 359:
            store = site.watcher.store
            rows.append((poll + 1, sizes[-1], store.size() / 2**10, len(list(store.folder.iterdir())), len(store.jobs)))
            print(
                "polls {:6,}  memory {:6.1f} MiB  store {:8.1f} KiB  files {:3}  jobs in memory {:6,}".format(*rows[-1])
            )
    late = bisect_left(polls, SETTLED)
    growth, objects = slope(polls[late:], sizes[late:]), slope(polls[late:], blocks[late:])
    print("memory grows by {:.3f} MiB in 1,000 polls, 95 % interval {:.3f} to {:.3f}".format(*growth))
    print("Python has {:.0f} blocks more in 1,000 polls, 95 % interval {:.0f} to {:.0f}".format(*objects))
    site.jobs = jobs
    site.poll(3 * LONGEST)
    site.stop()
    trace = site.trace()
    names = trace.names.collect()["name"]
    print(f"{len(names):,} jobs in the trace, {site.watcher.store.cursor.rows:,} rows were written")
    assert sorted(map(int, names)) == [job["id"] for job in jobs]
    assert growth.low < MOST
    assert objects.low < 500  # 3,000 jobs came and went meanwhile
    early = rows[len(rows) // 4][1] if len(rows) > 4 else rows[0][1]
    assert rows[-1][1] < 1.05 * early
    assert rows[-1][4] < 2 * rows[0][4] + 2000
