"""The traps in a file of any stack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import polars as pl

from fleetlab.core import Estimate, Provenance, Result
from fleetlab.devices.errors import BenchError
from fleetlab.stacks import gpu_models, spec_file
from fleetlab.stacks.formats.format import Document
from fleetlab.stacks.reading import SPEC, parse_documents, read_file, recognize
from fleetlab.stacks.rules import ALL, SEVERITIES, Finding, spec


@dataclass(frozen=True, slots=True, repr=False)
class LintResult(Result):
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


def lint(path: Path, *, gpu: str | None = None) -> LintResult:
    """Look for the traps of every stack in one file, on a GPU if one is named."""
    model = gpu_models.gpu_model(gpu) if gpu else None
    text = read_file(path)
    provenance = Provenance("share lint", path.name, {"gpu": model.name if model else None})
    if path.suffix == ".toml":
        return LintResult(SPEC, ordered(spec.check(spec_file.parse(text, path.name), model)), provenance)
    documents = parse_documents(text, path.name)
    stack = recognize(documents) or _other(documents)
    if stack is None:
        msg = f"{path.name}: not a file that we know traps of"
        raise BenchError(msg, hint="files of the stacks, pods, quotas, the DRA driver's Helm values, our own .toml")
    return LintResult(stack, ordered(f for rule in ALL for f in rule(documents, model)), provenance)


def _other(found: list[Document]) -> str | None:
    from fleetlab.stacks.pods import TEMPLATES
    from fleetlab.stacks.rules.dra import is_values

    if any(one.get("kind") in (*TEMPLATES, "ResourceQuota", "ConfigMap") for one in found):
        return "kubernetes"
    return "dra values" if any(is_values(one) for one in found) else None


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first, and then as they stand in the file; a note is said once, however often it holds."""
    by_severity = sorted(findings, key=lambda one: SEVERITIES.index(one.severity))
    notes = Counter((one.code, one.what) for one in by_severity if one.severity == "note")
    unique: list[Finding] = []
    for one in by_severity:
        times = notes.pop((one.code, one.what), 0) if one.severity == "note" else 1
        if times:
            unique.append(one if times == 1 else replace(one, where=f"{one.where} and {times - 1} more"))
    return tuple(unique)
