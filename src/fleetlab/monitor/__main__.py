"""Watch on a machine that has little installed: `python -m fleetlab.monitor --out FOLDER`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fleetlab.devices.errors import BenchError
from fleetlab.monitor.prometheus import LOOPBACK, NAMES
from fleetlab.monitor.run import Served, watch
from fleetlab.monitor.sources import BACKENDS


def main(words: list[str] | None = None) -> int:
    """Watch until told; 0 at the end, 2 if it cannot be, or can no longer be written."""
    asked = _parser().parse_args(words)
    port = asked.prometheus
    try:
        seen = watch(
            backend=asked.backend,
            index=asked.index,
            every=asked.every,
            seconds=asked.seconds,
            out=asked.out,
            prometheus=None if port is None else Served(port, asked.address, asked.dcgm_names),
            stream=None if asked.quiet else sys.stdout,
            tell=_tell,
        )
    except BenchError as e:
        _tell(f"error: {e}" + (f"\nhint: {e.hint}" if e.hint else ""))
        return 2
    _tell(f"looked {seen.looks} times" + (f"; {seen.late} looks left out: too slow" if seen.late else ""))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fleetlab.monitor", description=__doc__)
    parser.add_argument("--out", type=Path, help="folder of samples.jsonl; one that is there is gone on with")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between looks (1)")
    parser.add_argument("--seconds", type=float, help="for how long; until Ctrl-C unless told")
    parser.add_argument("--index", default="all", help="which cards, such as 0,1 (all)")
    parser.add_argument("--backend", default="nvml", choices=BACKENDS, help="cpu: the host in place of a card")
    parser.add_argument("--prometheus", type=int, metavar="PORT", help="serve metrics there, 0 for any free port")
    parser.add_argument("--address", default=LOOPBACK, help=f"where they are served ({LOOPBACK})")
    parser.add_argument("--dcgm-names", default="4.8", choices=NAMES, help="whose names and units (4.8)")
    parser.add_argument("--quiet", action="store_true", help="show nothing")
    return parser


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
