"""`make bench`: reading all of PAI beside a bare conversion of the same files; then the simulator, Volcano and KAI.

Each measurement is a process of its own, so that its peak memory is its own. What is compared is the ratio: machines
are noisy, and a time alone says more about the machine than about the code.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import gangs, simulate
from benchmarks.pai_tables import generate, pack

BUILD = Path("build/bench")

BARE = """
import sys, polars as pl
from pathlib import Path
from fleetlab.traces.pai2020.tables import TABLES
for t in TABLES:
    scan = pl.scan_csv(Path(sys.argv[1]) / f"{t.name}.csv", has_header=False, schema=dict(t.columns), quote_char=None)
    scan.sink_parquet(Path(sys.argv[2]) / f"{t.name}.parquet")
"""
# The same from the archives: unpacked in blocks by the same library, converted by polars, nothing checked or joined.
BARE_TAR = """
import sys, tarfile, polars as pl
from pathlib import Path
from isal import igzip
from fleetlab.traces.pai2020.tables import TABLES
for t in TABLES:
    with igzip.open(Path(sys.argv[1]) / f"{t.name}.tar.gz", "rb") as f, tarfile.open(fileobj=f, mode="r|") as tar:
        member = tar.extractfile(tar.next())
        held, k = b"", 0
        while block := member.read(64 << 20):
            cut = block.rfind(b"\\n") + 1
            scan = pl.scan_csv(held + block[:cut], has_header=False, schema=dict(t.columns), quote_char=None)
            scan.sink_parquet(Path(sys.argv[2]) / f"{t.name}-{k}.parquet")
            held, k = block[cut:], k + 1
"""
READ = "import sys, fleetlab; fleetlab.read(sys.argv[1], 'pai2020').save(sys.argv[2])"
SYNTHESIZE = "import sys, fleetlab; fleetlab.synthesize('pai2020', jobs=1_260_920, seed=0)"


def measure(code: str, *arguments: Path) -> dict[str, float]:
    """Seconds on the wall, seconds of CPU and the peak resident memory of one process."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)])
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"the measured process failed with {process.returncode}")
    wall = time.perf_counter() - begin
    return {"wall_s": wall, "cpu_s": used.ru_utime + used.ru_stime, "peak_gib": used.ru_maxrss / (1 << 20)}


def main() -> None:
    """Generate what is not there yet, measure, print and keep the figures."""
    csv, tar, out = BUILD / "csv", BUILD / "tar", BUILD / "out"
    if not (BUILD / "ready").exists():
        print("generating the seven tables at full size (about 3.9 GB, once)", file=sys.stderr)
        generate(csv)
        pack(csv, tar)
        (BUILD / "ready").touch()
    rows = []
    for name, code, source in [
        ("bare polars CSV → Parquet", BARE, csv),
        ("fleetlab read, CSV", READ, csv),
        ("bare polars tar.gz → Parquet", BARE_TAR, tar),
        ("fleetlab read, tar.gz", READ, tar),
        ("synthesize 1,260,920 jobs", SYNTHESIZE, csv),
    ]:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        rows.append({"what": name, **measure(code, source, out)})
        print("{what:32} {wall_s:7.1f} s wall {cpu_s:7.1f} s CPU {peak_gib:6.2f} GiB".format(**rows[-1]), flush=True)
    for a, b in ((0, 1), (2, 3)):
        wall, cpu = (rows[b][k] / rows[a][k] for k in ("wall_s", "cpu_s"))
        print(f"{rows[b]['what']}: {wall:.2f} × the bare conversion on the wall, {cpu:.2f} × in CPU")
    (BUILD / "figures.json").write_text(json.dumps(rows, indent=1))
    simulate.main()
    gangs.main()


if __name__ == "__main__":
    main()
