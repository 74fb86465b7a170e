"""What a run costs: energy and money by a simple model whose every number can be replaced.

The model: a GPU that is switched on draws its idle power, and an allocated one its busy power instead (half of the
difference for half a GPU); a node draws a base, and each allocated core some more; what the racks draw is multiplied by
the PUE. Money is so much for each hour of a GPU that is switched on, used or not, and so much for each kWh.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetlab.core import WorkloadError

# Assumed for a busy GPU: the board power its maker states, in watts; half of it for each GPU of a board with two.
BOARD_WATT: Mapping[str, float] = {
    "K40": 235, "K80": 150, "M60": 150, "P4": 75, "T4": 70, "P40": 250, "P100": 250, "A10": 150, "L4": 72,
    "V100": 300, "V100M16": 300, "V100M32": 300, "L40": 300, "A30": 165, "A100": 400, "A800": 400, "H20": 400,
    "H800": 700, "H100": 700, "H200": 700, "B200": 1000, "GB200": 1200,
}  # fmt: skip
HOUR = 3600.0
JOULE = 1 / 3.6e6  # kWh


@dataclass(frozen=True, slots=True)
class Prices:
    """What power and money a run is charged with; all defaults are assumptions, to be replaced by your own figures.

    A rented cluster pays by the GPU-hour with energy included, so `per_kwh` is 0; give both for one you own. Without
    prices a GPU-hour costs 1: then the cost is the number of GPU-hours that were there.

    >>> Prices(per_gpu_hour={"T4": 0.35}).gpu_hour("T4")
    0.35
    """

    gpu_busy_watt: Mapping[str, float] = field(default_factory=lambda: BOARD_WATT)  # by GPU type
    other_busy_watt: float = 300.0  # of a type that is not named above
    idle_share: float = 0.2  # of its busy power, for a GPU that nobody holds
    node_watt: float = 300.0  # of a node without its GPUs and allocated cores
    core_watt: float = 3.0  # of an allocated core
    pue: float = 1.4  # what the site draws for each watt of the racks
    per_gpu_hour: float | Mapping[str, float] = 1.0  # of a GPU that is switched on
    per_kwh: float = 0.0

    def __post_init__(self) -> None:
        by_type = self.per_gpu_hour.values() if isinstance(self.per_gpu_hour, Mapping) else [self.per_gpu_hour]
        numbers = [*self.gpu_busy_watt.values(), *by_type, self.other_busy_watt, self.idle_share]
        numbers += [self.node_watt, self.core_watt, self.pue, self.per_kwh]
        if bad := [x for x in numbers if not 0 <= x < float("inf")]:
            msg = f"a price or a power is not a number from 0 up: {bad[0]}"
            raise WorkloadError(msg, hint="watts, and any one currency")

    @property
    def unit(self) -> str:
        """Of the cost: GPU-hours as long as they are all that is charged, at 1 each; else the prices' own."""
        return "GPU-h" if self.per_gpu_hour == 1.0 and not self.per_kwh else ""

    def busy(self, gpu_type: str) -> float:
        """Watts of a GPU that is held."""
        return self.gpu_busy_watt.get(gpu_type, self.other_busy_watt)

    def gpu_hour(self, gpu_type: str) -> float:
        """What an hour of a GPU costs, used or not."""
        if not isinstance(self.per_gpu_hour, Mapping):
            return self.per_gpu_hour
        if gpu_type not in self.per_gpu_hour:
            msg = f"no price for an hour of a GPU of type: `{gpu_type}`"
            raise WorkloadError(msg, hint=f"there are prices for {', '.join(self.per_gpu_hour) or 'none'}")
        return self.per_gpu_hour[gpu_type]


@dataclass(frozen=True, slots=True)
class Held:
    """What there was and what was held of it, each in its number × seconds."""

    there: Mapping[str, float]  # GPUs switched on, by type
    allocated: Mapping[str, float]  # GPUs, by type
    nodes: float  # switched on
    cores: float  # allocated


def energy_kwh(held: Held, prices: Prices) -> float:
    """What the site drew, in kWh.

    >>> eight = Held({"T4": 8 * 3600.0}, {"T4": 4 * 3600.0}, nodes=3600.0, cores=0.0)
    >>> round(energy_kwh(eight, Prices(node_watt=100, pue=1.0)), 3)  # 0.1 + 8 × 0.014 + 4 × 0.056
    0.436
    """
    joule = held.nodes * prices.node_watt + held.cores * prices.core_watt
    for name, there in held.there.items():
        idle = prices.busy(name) * prices.idle_share
        joule += there * idle + held.allocated.get(name, 0.0) * (prices.busy(name) - idle)
    return joule * prices.pue * JOULE


def cost(held: Held, prices: Prices) -> float:
    """What the run costs, in the currency of the prices.

    >>> cost(Held({"T4": 8 * 3600.0}, {}, nodes=0.0, cores=0.0), Prices(per_gpu_hour=0.5))
    4.0
    """
    rent = sum(there / HOUR * prices.gpu_hour(name) for name, there in held.there.items())
    return rent + prices.per_kwh * energy_kwh(held, prices) if prices.per_kwh else rent
