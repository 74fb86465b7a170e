"""Sample GPUs on a machine with few packages: `python -m fleetlab.monitor --out FOLDER`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fleetlab.devices.errors import BenchError
from fleetlab.devices.progress import print_error, print_progress
from fleetlab.monitor.prometheus import LOOPBACK, NAMES
from fleetlab.monitor.run import MetricsEndpoint, monitor
from fleetlab.monitor.sources import BACKENDS


def main(words: list[str] | None = None) -> int:
    """Sample until stopped; exit status 0, or 2 if sampling or writing fails."""
    options = _parser().parse_args(words)
    port = options.prometheus
    try:
        run = monitor(
            backend=options.backend,
            index=options.index,
            every=options.every,
            seconds=options.seconds,
            out=options.out,
            prometheus=None if port is None else MetricsEndpoint(port, options.address, options.dcgm_names),
            stream=None if options.quiet else sys.stdout,
            progress=print_progress,
        )
    except BenchError as e:
        print_error(e)
        return 2
    print_progress(
        f"{run.samples} samples" + (f"; {run.late} skipped: the previous one took too long" if run.late else "")
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fleetlab.monitor", description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for samples.jsonl; an existing file is appended to")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between samples (default: 1)")
    parser.add_argument("--seconds", type=float, help="duration (default: until Ctrl-C or SIGTERM)")
    parser.add_argument("--index", default="all", help="GPU indexes such as 0,1 (default: all)")
    parser.add_argument("--backend", default="nvml", choices=BACKENDS, help="cpu samples the host instead of a GPU")
    parser.add_argument("--prometheus", type=int, metavar="PORT", help="port for metrics; 0 chooses a free port")
    parser.add_argument("--address", default=LOOPBACK, help=f"address for metrics (default: {LOOPBACK})")
    parser.add_argument(
        "--dcgm-names", default="4.8", choices=NAMES, help="DCGM exporter's metric names (default: 4.8)"
    )
    parser.add_argument("--quiet", action="store_true", help="print no samples")
    return parser


if __name__ == "__main__":
    sys.exit(main())
