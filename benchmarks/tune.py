"""Results of policy searches, and the speed of weighted and built-in policies: `python -m benchmarks.tune WHAT`.

`speed`: jobs a second by built-in and weighted policies. `weeks`: a search on twelve weeks of a synthetic trace.
`philly FOLDER`: a search on Philly's jobs, from a folder with `philly_sia_82k.csv` and `philly_vc.csv`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import polars as pl

import fleetlab
from benchmarks import real_logs as logs
from fleetlab._screen import show
from fleetlab.studies.tune import Tuning
from fleetlab.studies.tune.terms import WEIGHTED, Space, words_of

# GPU type, nodes, and of each GPUs, CPU milli and MiB.
NODES = (
    ("MISC", 19, 8, 96_000, 524_288),
    ("T4", 24, 2, 96_000, 524_288),
    ("P100", 16, 2, 64_000, 524_288),
    ("V100", 6, 8, 96_000, 393_216),
    ("V100M32", 7, 8, 96_000, 393_216),
)
PART = 3  # the list has a part of the jobs: on all nodes an eighth of the GPUs is busy, and nobody waits


def twelve() -> fleetlab.Trace:
    """120,000 jobs in twelve weeks, on a cluster of which three quarters are busy."""
    made = fleetlab.synthesize("pai2020", jobs=120_000, days=84, seed=0)
    nodes = [
        {"node": f"{kind}-{k}", "gpu_type": kind, "gpus": gpus, "cpu_milli": cpu, "memory_mib": memory}
        for kind, count, gpus, cpu, memory in NODES
        for k in range(count)
    ]
    return fleetlab.Trace(made.workload, made.provenance, fleetlab.Cluster.of(pl.DataFrame(nodes), source="72 nodes"))


def philly_jobs(folder: Path) -> fleetlab.Trace:
    """Jobs as in `benchmarks.real_logs`: a virtual cluster is a GPU type; here a user too, with a part of its nodes."""
    jobs, whole, _ = logs._read_philly(folder)
    part = whole.frame.filter(pl.int_range(pl.len()).over("pool") % PART == 0)
    cluster = fleetlab.Cluster.of(part, source=f"a node in {PART} of Philly's")
    jobs = logs.philly_jobs(jobs).with_columns(user=jobs["cluster"].cast(pl.Categorical))
    workload = fleetlab.Workload.of(jobs, source="philly_sia_82k")
    return fleetlab.Trace(workload, fleetlab.Provenance("read", "philly_sia_82k"), cluster)


def speed(trace: fleetlab.Trace) -> None:
    assert trace.cluster is not None
    space = Space.of(trace.workload, ("best_fit",))
    sjf = space.params_of("sjf", "best_fit") or {}
    cases = {
        "sjf, oracle": {"order": "sjf"},
        "sjf": {"order": "sjf", "estimate": "group"},
        "fair": {"order": "fair", "estimate": "group"},
        "weights as sjf, oracle": words_of(sjf),
        "weights as sjf": {**words_of(sjf), "estimate": "group"},
        "weights as sjf, and user shares": {**words_of({**sjf, "uses share": True, "user share": 0.5})},
        "weights as sjf, and placement": {
            **words_of({**sjf, "placement": WEIGHTED, "idle GPUs": 1.0, "free fractions": 1.0})
        },
    }
    for name, words in cases.items():
        took = []
        for _ in range(3):  # the first compiles
            began = time.process_time()
            fleetlab.simulate(trace.workload, trace.cluster, **words)
            took.append(time.process_time() - began)
        pace = len(trace.workload) / min(took)
        print(f"{name}: {pace:,.0f} jobs/s, first {took[0]:.1f} s, then {min(took):.2f} s", flush=True)


def show_result(result: Tuning, began: float) -> None:
    print("\n".join(result.findings), end="\n\n")
    show(result, only=("policies", "weeks", "weights"))
    print(f"\n{time.process_time() - began:.0f} s of CPU")


def main(words: list[str]) -> None:
    began = time.process_time()
    if words == ["speed"]:
        speed(twelve())
    elif words == ["weeks"]:
        show_result(fleetlab.tune(twelve(), estimate="group"), began)
    elif words[:1] == ["philly"] and len(words) == 2:
        show_result(fleetlab.tune(philly_jobs(Path(words[1])), estimate="group"), began)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
