"""The traps of each stack; every rule looks at every file, because a file may be of several stacks."""

from collections.abc import Callable, Iterator, Sequence

from fleetlab.stacks.formats.format import Document
from fleetlab.stacks.gpu_models import GpuModel
from fleetlab.stacks.rules import device_plugin, dra, gpu_operator, kai, kueue, mig_parted, mps, pods
from fleetlab.stacks.rules.finding import SEVERITIES, Finding

Rule = Callable[[Sequence[Document], GpuModel | None], Iterator[Finding]]
ALL: tuple[Rule, ...] = (
    device_plugin.check,
    gpu_operator.check,
    mig_parted.check,
    dra.check,
    pods.check,
    kai.check,
    kueue.check,
    mps.check,
)

__all__ = ["ALL", "SEVERITIES", "Finding", "Rule"]
