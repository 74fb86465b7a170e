"""How a result came to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any


@cache
def _version() -> str:
    try:
        return version("fleetlab")  # looks for a file each time, as long as a small simulation takes
    except PackageNotFoundError:  # run from its source on a machine where nothing can be installed
        return "not installed"


@dataclass(frozen=True, slots=True)
class Provenance:
    """How a result came to be: enough to run it again.

    Parameters
    ----------
    verb
        What was called.
    source
        What it was called with: the source of the jobs.
    settings
        The words and options that decided it.
    seed
        The random seed, where there is one.
    version
        The version of fleetlab (default: this one).

    Examples
    --------
    >>> Provenance("simulate", "mine", {"order": "sjf"}, seed=1).settings["order"]
    'sjf'

    """

    verb: str
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    version: str = field(default_factory=_version)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for `json.dumps`.

        Returns
        -------
        dict
            The fields by name.

        Examples
        --------
        >>> Provenance("simulate", "mine", version="0.1").to_json()["verb"]
        'simulate'

        """
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"settings": dict(self.settings)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Provenance:
        """Undo `to_json`.

        Parameters
        ----------
        values
            The fields by name.

        Returns
        -------
        Provenance
            The same as was written.

        Examples
        --------
        >>> Provenance.from_json(Provenance("simulate", "mine").to_json()).source
        'mine'

        """
        return cls(**values)
