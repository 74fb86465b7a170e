"""Prices: the power and the cost that a run is charged with; every number can be replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fleetlab.core import toml
from fleetlab.core.errors import WorkloadError
from fleetlab.core.names import lookup

# Assumed for a busy GPU: the board power in its data sheet, in watts; half of it for each GPU of a board with two.
BOARD_WATT: Mapping[str, float] = {
    "K40": 235, "K80": 150, "M60": 150, "P4": 75, "T4": 70, "P40": 250, "P100": 250, "A10": 150, "L4": 72,
    "V100": 300, "V100M16": 300, "V100M32": 300, "L40": 300, "A30": 165, "A100": 400, "A800": 400, "H20": 400,
    "H800": 700, "H100": 700, "H200": 700, "B200": 1000, "GB200": 1200,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prices:
    """Power and cost of a cluster; all defaults are assumptions, to be replaced by your own figures.

    A rented cluster pays by the GPU-hour with energy included, so `per_kwh` is 0; give both for one you own. By default
    a GPU-hour costs 1: the cost is then the number of GPU-hours of nodes that are up.

    Parameters
    ----------
    gpu_busy_watt
        Power of an allocated GPU by GPU type, in watts (default: the board power in its data sheet).
    other_busy_watt
        That of a type that is not named there.
    idle_share
        Share of that power that an unallocated GPU draws.
    node_watt
        Power of a node without its GPUs and allocated cores.
    core_watt
        Power of an allocated core.
    pue
        What the site draws for each watt of the racks.
    per_gpu_hour
        Cost of an hour of a GPU that is up, of any type or by type.
    per_kwh
        Cost of energy.

    Raises
    ------
    WorkloadError
        If a number is negative or not finite.

    Examples
    --------
    >>> Prices(per_gpu_hour={"T4": 0.35}).gpu_hour("T4")
    0.35
    """

    gpu_busy_watt: Mapping[str, float] = field(default_factory=lambda: BOARD_WATT)  # by GPU type
    other_busy_watt: float = 300.0  # of a type that is not named above
    idle_share: float = 0.2  # of its busy power, for an unallocated GPU
    node_watt: float = 300.0  # of a node without its GPUs and allocated cores
    core_watt: float = 3.0  # of an allocated core
    pue: float = 1.4  # what the site draws for each watt of the racks
    per_gpu_hour: float | Mapping[str, float] = 1.0  # of a GPU that is up
    per_kwh: float = 0.0

    def __post_init__(self) -> None:
        by_type = self.per_gpu_hour.values() if isinstance(self.per_gpu_hour, Mapping) else [self.per_gpu_hour]
        numbers = [*self.gpu_busy_watt.values(), *by_type, self.other_busy_watt, self.idle_share]
        numbers += [self.node_watt, self.core_watt, self.pue, self.per_kwh]
        if bad := [x for x in numbers if not 0 <= x < float("inf")]:
            msg = f"a price or a power is not a number from 0 up: {bad[0]}"
            raise WorkloadError(msg, hint="watts, and one currency")

    @property
    def unit(self) -> str:
        """Unit of the cost: GPU-hours by default, else the currency of the prices."""
        return "GPU-h" if self.per_gpu_hour == 1.0 and not self.per_kwh else "(currency of the prices)"

    def busy(self, gpu_type: str) -> float:
        """Return the power of an allocated GPU.

        Parameters
        ----------
        gpu_type
            Its type.

        Returns
        -------
        float
            Watts.

        Examples
        --------
        >>> Prices().busy("T4")
        70
        """
        return self.gpu_busy_watt.get(gpu_type, self.other_busy_watt)

    def gpu_hour(self, gpu_type: str) -> float:
        """Return the cost of an hour of a GPU that is up, allocated or not.

        Parameters
        ----------
        gpu_type
            Its type.

        Returns
        -------
        float
            In the currency of the prices.

        Raises
        ------
        WorkloadError
            If prices are by type, and not of this one.

        Examples
        --------
        >>> Prices(per_gpu_hour=2.5).gpu_hour("H100")
        2.5
        """
        if not isinstance(self.per_gpu_hour, Mapping):
            return self.per_gpu_hour
        if gpu_type not in self.per_gpu_hour:
            msg = f"no price for an hour of a GPU of type: `{gpu_type}`"
            raise WorkloadError(msg, hint=f"prices are given for {', '.join(self.per_gpu_hour) or 'none'}")
        return self.per_gpu_hour[gpu_type]

    @classmethod
    def from_toml(cls, path: Path | str) -> Prices:
        r"""Read the fields of `Prices` from a TOML file; those that are left out keep their defaults.

        Parameters
        ----------
        path
            The file.

        Returns
        -------
        Prices
            The prices.

        Raises
        ------
        WorkloadError
            If the file cannot be read, or has an unknown key.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "prices.toml")
        ...     _ = file.write_text("per_gpu_hour = 2.5\n")
        ...     Prices.from_toml(file).per_gpu_hour
        2.5
        """
        return cls.of(toml.load(Path(path), "the prices file", HINT))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Prices:
        """Build prices from plain values.

        Parameters
        ----------
        values
            Fields by name.

        Returns
        -------
        Prices
            The prices.

        Raises
        ------
        WorkloadError
            If a name is unknown, or a value is not a number.

        Examples
        --------
        >>> Prices.of({"pue": 1.2}).pue
        1.2
        """
        for name, value in values.items():
            lookup("price", name, (f.name for f in fields(cls)), error=WorkloadError)
            by_type = name in ("gpu_busy_watt", "per_gpu_hour") and isinstance(value, Mapping)
            if not all(_is_number(v) for v in (value.values() if by_type else [value])):
                raise WorkloadError(f"`{name}` is not a number: {value!r}", hint=HINT)
        return cls(**values)

    def to_values(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults.

        Returns
        -------
        dict
            Plain values by name; `of` reads them.

        Examples
        --------
        >>> Prices(pue=1.2).to_values()
        {'pue': 1.2}
        """
        usual, names = Prices(), [f.name for f in fields(self)]
        values = {n: v for n in names if (v := getattr(self, n)) != getattr(usual, n)}
        return {n: dict(v) if isinstance(v, Mapping) else v for n, v in values.items()}


HINT = "per_gpu_hour = 2.5, or { T4 = 0.35, A100 = 2.5 }; per_kwh = 0.2; pue = 1.3"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
