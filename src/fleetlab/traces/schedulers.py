"""Which scheduler a file configures: a slurm.conf, or objects of Kubernetes in YAML or JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from fleetlab.core import TraceError
from fleetlab.core.schedulers import NAMED, Scheduler
from fleetlab.traces.kubernetes import gang_schedulers, kueue_file, scheduler_config
from fleetlab.traces.slurm.conf import read_conf

KIND = re.compile(r"""(?:^[ -]*kind|"kind")\s*:\s*["']?(\w+)""", re.MULTILINE)
# By a kind of object that is in the file, the first that is there.
READERS: dict[str, Callable[[Path], Scheduler]] = {
    "ClusterQueue": kueue_file.read_kueue,
    "KubeSchedulerConfiguration": scheduler_config.read_scheduler,
    "ResourceQuota": scheduler_config.read_scheduler,
    "LimitRange": scheduler_config.read_scheduler,
    "Queue": gang_schedulers.read_gang_scheduler,  # of Volcano or KAI
}
FILES = f"a slurm.conf, or objects of Kubernetes: {', '.join(READERS)}"


def read_scheduler(path: Path) -> Scheduler:
    """Read the configuration of a scheduler; what is no object of Kubernetes is a slurm.conf."""
    if not path.exists():
        msg = f"no such file: {path}"
        raise TraceError(msg, hint=f"site, {', '.join(NAMED)}, or the file of a configuration: {FILES}")
    kinds = _kinds(path)
    if not kinds:
        _check_slurm(path)
        return read_conf(path)
    for kind, read in READERS.items():
        if kind in kinds:
            return read(path)
    msg = f"{path.name}: configures no scheduler: {', '.join(dict.fromkeys(kinds))}"
    raise TraceError(msg, hint=FILES)


def _check_slurm(path: Path) -> None:
    """Refuse a file that is not Slurm's: every line of a slurm.conf is a name, `=`, and a value."""
    if path.is_file() and "=" not in path.read_text("utf-8", errors="replace"):
        msg = f"{path.name}: configures no scheduler"
        raise TraceError(msg, hint=FILES)


def _kinds(path: Path) -> list[str]:
    if path.is_dir():
        return []
    try:
        return KIND.findall(path.read_text("utf-8", errors="replace"))
    except OSError:
        return []  # its reader says what is wrong with the file
