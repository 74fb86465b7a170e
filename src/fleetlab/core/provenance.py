"""How a result came to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from fleetlab.core.cluster import Cluster
    from fleetlab.core.workload import Workload


@cache
def _version() -> str:
    try:
        return version("fleetlab")  # looks for a file each time, as long as a small simulation takes
    except PackageNotFoundError:  # run from its source on a machine where nothing can be installed
        return "not installed"


def digest(frame: pl.DataFrame) -> str:
    """Return what tells a table from others."""
    import polars as pl

    # The codes of categories depend on what was read before: text does not.
    plain_frame = frame.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String)).rechunk()
    buffer = BytesIO()
    plain_frame.write_ipc(buffer, compression="uncompressed")
    return sha256(buffer.getvalue()).hexdigest()[:32]


def _content(workload: Workload, cluster: Cluster | None) -> dict[str, str]:
    return {"trace": digest(workload.frame)} | ({} if cluster is None else {"cluster": digest(cluster.frame)})


@cache
def code_digest(*modules: str) -> str:
    """Return a digest of the source text of packages and modules: one changed line changes it."""
    digest = sha256()
    for name in modules:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        path = Path(spec.origin)
        whole = path.name == "__init__.py"
        files = [p for p in path.parent.rglob("*") if p.suffix in (".py", ".json")] if whole else [path]
        for file in sorted(files):
            text = file.read_bytes()
            digest.update(f"{name} {file.relative_to(path.parent)} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:16]


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
    content
        Digests of the jobs, the nodes and the policy, or what computes them when they are asked for.

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
    content: Mapping[str, str] | Callable[[], Mapping[str, str]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @classmethod
    def of_jobs(
        cls,
        verb: str,
        workload: Workload,
        settings: Mapping[str, Any],
        seed: int | None = None,
        cluster: Cluster | None = None,
    ) -> Provenance:
        """Return that of a result of jobs, and of nodes, that is no simulation of a scenario.

        Parameters
        ----------
        verb
            What was called.
        workload
            The jobs.
        settings
            The words and options that decided it.
        seed
            The random seed, where there is one.
        cluster
            The nodes, where they decided it too.

        Returns
        -------
        Provenance
            With their digests.

        Examples
        --------
        >>> import fleetlab
        >>> jobs = fleetlab.synthesize(jobs=100).workload
        >>> sorted(Provenance.of_jobs("forecast", jobs, {}).digests)
        ['code', 'trace']
        """
        return cls(verb, workload.source, settings, seed, content=partial(_content, workload, cluster))

    @property
    def digests(self) -> dict[str, str]:
        """What decided it, by digests: of the source text of fleetlab, and where there are some of jobs, nodes, policy.

        Equal digests are equal jobs, nodes, rules with all helper functions, and code, whatever files are called.
        """
        content = self.content() if callable(self.content) else self.content
        return {"code": code_digest("fleetlab")} | dict(content)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for `json.dumps`.

        Returns
        -------
        dict
            The fields by name, and `digests`.

        Examples
        --------
        >>> sorted(Provenance("simulate", "mine", version="0.1").to_json()["digests"])
        ['code']
        """
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "content"}
        return values | {"settings": dict(self.settings), "digests": self.digests}

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
        others = {name: value for name, value in values.items() if name != "digests"}
        return cls(**others, content=dict(values.get("digests", {})))
