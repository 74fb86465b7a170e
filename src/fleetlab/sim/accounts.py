"""What a run costs: energy and money by a simple model whose every number can be replaced.

The model: a GPU that is switched on draws its idle power, and an allocated one its busy power instead (half of the
difference for half a GPU); a node draws a base, and each allocated core some more; what the racks draw is multiplied by
the PUE. Money is so much for each hour of a GPU that is switched on, used or not, and so much for each kWh.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleetlab.core.prices import Prices

HOUR, DAY = 3600.0, 86_400.0
JOULE = 1 / 3.6e6  # kWh


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
