"""FGD's table (Weng et al., ATC 2023): unallocated GPUs when all demand has arrived, by placement.

The authors' own results have ten seeds a policy, so both sides of a line are uncertain: what is compared is the
difference of the two means.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from fleetlab.core.progress import Progress
from fleetlab.sim import pack
from fleetlab.stats import mean_of_runs
from fleetlab.studies.validate.line import Line, independent
from fleetlab.traces import read

PODS, RESULTS = "alibaba-openb-v2023", "fgd-expected-results"
POLICIES = {
    "01-Random": "random", "02-DotProd": "dot_product", "03-GpuClustering": "gpu_clustering",
    "04-GpuPacking": "gpu_packing", "05-BestFit": "best_fit", "06-FGD": "fgd",
}  # fmt: skip
FULL = ("fgd", "best_fit", "gpu_packing", "gpu_clustering", "dot_product", "random")
BRIEF = ("fgd", "best_fit")
LISTS = {"default": FULL, "gpushare40": BRIEF, "multigpu20": BRIEF, "gpuspec10": BRIEF, "cpu050": BRIEF}
SEEDS = 10
NEAR = 0.05  # of the GPUs that are left


def compare(data: Path, *, seed: int, progress: Progress) -> list[Line]:
    """Compare unallocated GPUs at 100 % arrived demand with the results of the authors."""
    theirs = _published(data / RESULTS / "allo.csv")
    lines = []
    for k, (name, places) in enumerate(LISTS.items()):
        trace = read(data / PODS / f"openb_pod_list_{name}.csv", "openb2023")
        assert trace.cluster is not None
        count = SEEDS if name == "default" else SEEDS // 2
        packed = pack(trace.workload, trace.cluster, placements=places, seeds=range(42 + seed, 42 + seed + count))
        left = packed.curves.filter(pl.col("arrived") == 100).with_columns(left=100 - pl.col("allocated"))
        for placement in places:
            ours = left.filter(pl.col("placement") == placement)["left"].to_list()
            lines.append(_line(name, placement, theirs[f"openb_pod_list_{name}", placement], ours))
        progress("packing as in FGD's published table", k + 1, (k + 1) / len(LISTS))
    return lines


def _line(pods: str, placement: str, theirs: list[float], ours: list[float]) -> Line:
    there, here = mean_of_runs(theirs), mean_of_runs(ours)
    case = f"FGD, {pods}, {placement}"
    return Line(case, "unallocated GPUs, %", there.value, independent(here, there), near=NEAR)


def _published(path: Path) -> dict[tuple[str, str], list[float]]:
    """Return unallocated GPUs at 100 % by pod list and policy, one value per seed."""
    frame = pl.read_csv(path).select("workload", "sc_policy", left=100 - pl.col("100"))
    parts = frame.partition_by("workload", "sc_policy", as_dict=True)
    return {(str(w), POLICIES[str(p)]): part["left"].to_list() for (w, p), part in parts.items()}
