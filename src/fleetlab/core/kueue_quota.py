"""Quota as Kueue has it: by resource, in flavors that are tried in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fleetlab.core.records import from_values, to_values

FlavorResource = tuple[str, str]  # a flavor and a resource
Amounts = Mapping[FlavorResource, int]


@dataclass(frozen=True)
class ResourceQuota:
    """What there is of a resource in a flavor; a limit that is None does not limit."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True)
class ResourceGroup:
    """Resources that are assigned one flavor together, and their flavors in the order in which they are tried."""

    covered: tuple[str, ...]
    flavors: Mapping[str, Mapping[str, ResourceQuota]]  # quotas by resource, by flavor

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> ResourceGroup:
        """Build one from plain tables."""
        flavors = {
            flavor: {name: from_values(ResourceQuota, quota, "quota") for name, quota in resources.items()}
            for flavor, resources in values["flavors"].items()
        }
        return cls(tuple(values["covered"]), flavors)

    def to_values(self) -> dict[str, Any]:
        """Return plain tables."""
        flavors = {
            flavor: {name: to_values(quota) for name, quota in resources.items()}
            for flavor, resources in self.flavors.items()
        }
        return {"covered": list(self.covered), "flavors": flavors}

    def quotas(self) -> Iterator[tuple[FlavorResource, ResourceQuota]]:
        """Each quota of the group."""
        for flavor, resources in self.flavors.items():
            for resource, quota in resources.items():
                yield (flavor, resource), quota
