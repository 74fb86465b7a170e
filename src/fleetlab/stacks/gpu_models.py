"""The cards a spec may name: their memory, what they are able to, and how mig-parted knows them.

Memory is what nvidia-smi calls total (drivers since 525; the H200 was asked by us). PCI ids are those of mig-parted's
own configurations: device id, then NVIDIA's vendor id.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetlab.devices.errors import BenchError
from fleetlab.sharing.mig.profiles import BY_NAME as CUTS
from fleetlab.sharing.mig.profiles import Cut


@dataclass(frozen=True, slots=True)
class Model:
    """A kind of card."""

    name: str
    memory_mib: int
    capability: tuple[int, int]
    ids: tuple[str, ...] = ()

    @property
    def cut(self) -> Cut | None:
        """What MIG can make of it; None where it has no MIG that we know."""
        return CUTS.get(self.name)


BY_NAME = {
    model.name: model
    for model in (
        Model("V100-16", 16_384, (7, 0)),
        Model("V100-32", 32_768, (7, 0)),
        Model("T4", 15_360, (7, 5)),
        Model("A10", 23_028, (8, 6)),
        Model("L4", 23_034, (8, 9)),
        Model("L40S", 46_068, (8, 9)),
        Model("A100-40", 40_960, (8, 0), ("0x20B010DE", "0x20B110DE", "0x20F110DE", "0x20F610DE")),
        Model("A100-80", 81_920, (8, 0), ("0x20B210DE", "0x20B510DE", "0x20F310DE", "0x20F510DE")),
        Model("H100-80", 81_559, (9, 0), ("0x233010DE", "0x233110DE", "0x232210DE", "0x232410DE")),
        Model("H200-141", 143_771, (9, 0), ("0x233510DE", "0x233B10DE")),  # the second is the H200 NVL
    )
}


def known(name: str) -> Model:
    """A card by name; the beginning is enough where only one begins so.

    >>> known("H200").memory_mib
    143771
    """
    found = [model for model in BY_NAME.values() if name and model.name.lower().startswith(name.lower())]
    exact = [model for model in found if model.name.lower() == name.lower()]
    if len(exact or found) == 1:
        return (exact or found)[0]
    msg = f"several cards by that name: `{name}`" if found else f"no card by that name: `{name}`"
    raise BenchError(msg, hint=f"there are {', '.join(m.name for m in found) or ', '.join(BY_NAME)}")


def by_ids(ids: frozenset[str]) -> Model | None:
    """The card whose ids these are, some or all."""
    asked = {i.upper() for i in ids}
    found = [m for m in BY_NAME.values() if asked and asked <= {i.upper() for i in m.ids}]
    return found[0] if len(found) == 1 else None
