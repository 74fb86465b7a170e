"""The profiles that ship with the package, from the cells measured on an H200.

Run it as `python -m benchmarks.make_profile FOLDER`. The same cells give the same files, byte for byte: speeds are
rounded to the digits that their intervals support.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl

from fleetlab.core import Provenance, Speed
from fleetlab.gpu.bench.plans import CLASSES, MATRIX
from fleetlab.gpu.bench.profile import profile

HOME = Path(__file__).parents[1] / "src" / "fleetlab" / "core"
DIGITS = 4
PLANS = {
    "speed.json": ("classes", "solo", "pairs-ts", "sm-curve"),
    "speed-h200-tenants.json": ("solo", "pairs-ts", "pairs-mps", "pairs-mps-50", "sm-curve", "breaking"),
}


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.make_profile", description=__doc__)
    parser.add_argument("folder", type=Path, help="measurements/gpu-sharing.tar.gz/h200")
    parser.add_argument("--out", type=Path, default=HOME, help="where the files go")
    options = parser.parse_args()
    for name, plans in PLANS.items():
        workloads, classes = (tuple(CLASSES), True) if name == "speed.json" else (MATRIX, False)
        made = profile([options.folder / plan for plan in plans], workloads=workloads, classes=classes)
        print(rounded(made, plans).save(options.out / name))


def rounded(made: Speed, plans: tuple[str, ...]) -> Speed:
    """Round, and keep only the names of the folders."""
    settings = dict(made.provenance.settings) | {"folders": list(plans)}
    provenance = Provenance(made.provenance.verb, made.provenance.source, settings, version="0.1.0")
    frame = made.frame.with_columns(pl.col("speed", "low", "high").round(DIGITS))
    return Speed.of(frame, device=made.device, provenance=provenance, notes=made.notes)


if __name__ == "__main__":
    main()
