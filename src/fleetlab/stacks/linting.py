"""The traps in a file of any stack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import polars as pl

from fleetlab.core import Estimate, Provenance, Result
from fleetlab.devices.errors import BenchError
from fleetlab.stacks import gpu_models as models
from fleetlab.stacks import spec_file
from fleetlab.stacks.formats.format import Document
from fleetlab.stacks.reading import SPEC, opened, parsed, recognised
from fleetlab.stacks.rules import ALL, SEVERITIES, Finding
from fleetlab.stacks.rules import spec as of_specs


@dataclass(frozen=True, slots=True)
class Linted(Result):
    """What was found in a file, the worst first."""

    stack: str
    problems: tuple[Finding, ...]
    provenance: Provenance

    def count(self, severity: str) -> int:
        """How many there are of one kind."""
        return sum(one.severity == severity for one in self.problems)

    def summary(self) -> list[Estimate]:
        """How many there are of each kind."""
        return [Estimate.exact(f"{severity}s", self.count(severity)) for severity in SEVERITIES]

    def tables(self) -> dict[str, pl.DataFrame]:
        """The findings."""
        schema = dict.fromkeys(("code", "severity", "where", "what", "do"), pl.String)
        return {"findings": pl.DataFrame([asdict(one) for one in self.problems], schema=schema)}

    def __repr__(self) -> str:
        return f"<Linted {self.stack}: {', '.join(f'{e.metric} {e.value:g}' for e in self.summary())}>"


def lint(path: Path, *, card: str | None = None) -> Linted:
    """Look for the traps of every stack in one file, on a card if one is named."""
    model = models.known(card) if card else None
    text = opened(path)
    provenance = Provenance("share lint", path.name, {"card": model.name if model else None})
    if path.suffix == ".toml":
        return Linted(SPEC, ordered(of_specs.check(spec_file.parse(text, path.name), model)), provenance)
    found = parsed(text, path.name)
    stack = recognised(found) or _other(found)
    if stack is None:
        msg = f"{path.name}: not a file that we know traps of"
        raise BenchError(msg, hint="files of the stacks, pods, quotas, the DRA driver's Helm values, our own .toml")
    return Linted(stack, ordered(f for rule in ALL for f in rule(found, model)), provenance)


def _other(found: list[Document]) -> str | None:
    from fleetlab.stacks.pods import TEMPLATES
    from fleetlab.stacks.rules.dra import is_values

    if any(one.get("kind") in (*TEMPLATES, "ResourceQuota", "ConfigMap") for one in found):
        return "kubernetes"
    return "dra values" if any(is_values(one) for one in found) else None


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first, and then as they stand in the file; a note is said once, however often it holds."""
    found = sorted(findings, key=lambda one: SEVERITIES.index(one.severity))
    notes = Counter((one.code, one.what) for one in found if one.severity == "note")
    told: list[Finding] = []
    for one in found:
        times = notes.pop((one.code, one.what), 0) if one.severity == "note" else 1
        if times:
            told.append(one if times == 1 else replace(one, where=f"{one.where} and {times - 1} more"))
    return tuple(told)
