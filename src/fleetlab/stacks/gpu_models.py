"""GPU models that a spec may name: memory, compute capability, and their ids in mig-parted.

Memory is the total that nvidia-smi reports, with drivers since 525. Sources:

- T4, A10, L4, L40S, A100 and H100: modal-labs/modal-client, pull request 2797 (January 2025), which lists all seven.
- V100 32 GB, A30, H100 NVL, GH200, B200 and RTX PRO 6000: several public listings of nvidia-smi each, which agree.
- H200: our own probe (docs/measurements/h200/probe.json), and public listings.
- V100 16 GB: derived, half of that of 32 GB.

PCI ids, device id and then NVIDIA's vendor id, are the device filters of the GPU operator's default configuration of
mig-parted (NVIDIA/gpu-operator, assets/state-mig-manager/0400_configmap.yaml, `all-balanced`). It has one filter for
the A100 and the H100 with 80 GB: which ids are whose is derived, 20xx is the chip of the A100 and 23xx of the H100.
Compute capabilities: developer.nvidia.com/cuda-gpus.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetlab.devices.errors import BenchError
from fleetlab.sharing.mig.models import BY_NAME as CUTS
from fleetlab.sharing.mig.profiles import MigGpu


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU model."""

    name: str
    memory_mib: int
    capability: tuple[int, int]
    ids: tuple[str, ...] = ()

    @property
    def cut(self) -> MigGpu | None:
        """Its MIG profiles; None if it has none that we know."""
        return CUTS.get(self.name)


BY_NAME = {
    model.name: model
    for model in (
        GpuModel("V100-16", 16_384, (7, 0)),
        GpuModel("V100-32", 32_768, (7, 0)),
        GpuModel("T4", 15_360, (7, 5)),
        GpuModel("A30-24", 24_576, (8, 0), ("0x20B710DE",)),
        GpuModel("A10", 23_028, (8, 6)),
        GpuModel("L4", 23_034, (8, 9)),
        GpuModel("L40S", 46_068, (8, 9)),
        GpuModel("A100-40", 40_960, (8, 0), ("0x20B010DE", "0x20B110DE", "0x20F110DE", "0x20F610DE")),
        GpuModel("A100-80", 81_920, (8, 0), ("0x20B210DE", "0x20B510DE", "0x20F310DE", "0x20F510DE")),
        GpuModel("H100-80", 81_559, (9, 0), ("0x233010DE", "0x233110DE", "0x232210DE", "0x232410DE")),
        GpuModel("H100-94", 95_830, (9, 0), ("0x232110DE",)),  # H100 NVL
        GpuModel("GH200-96", 97_871, (9, 0), ("0x234210DE",)),
        GpuModel("H200-141", 143_771, (9, 0), ("0x233510DE", "0x233B10DE")),  # the second is the H200 NVL
        GpuModel("B200-180", 183_359, (10, 0), ("0x290110DE",)),
        GpuModel("RTX-PRO-6000-96", 97_887, (12, 0), ("0x2BB510DE",)),
    )
}


def gpu_model(name: str) -> GpuModel:
    """Look up a GPU model; an unambiguous prefix is enough.

    >>> gpu_model("H200").memory_mib
    143771
    """
    matches = [model for model in BY_NAME.values() if name and model.name.lower().startswith(name.lower())]
    exact = [model for model in matches if model.name.lower() == name.lower()]
    if len(exact or matches) == 1:
        return (exact or matches)[0]
    msg = f"ambiguous GPU model: `{name}`" if matches else f"unknown GPU model: `{name}`"
    raise BenchError(msg, hint=f"there are {', '.join(m.name for m in matches) or ', '.join(BY_NAME)}")


def by_ids(ids: frozenset[str]) -> GpuModel | None:
    """The GPU model with these PCI ids, some or all of them."""
    wanted = {i.upper() for i in ids}
    matches = [m for m in BY_NAME.values() if wanted and wanted <= {i.upper() for i in m.ids}]
    return matches[0] if len(matches) == 1 else None
