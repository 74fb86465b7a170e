"""A file of any stack, known by what is in it, as a spec."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fleetlab.core import Estimate, Provenance, Result
from fleetlab.devices.errors import BenchError
from fleetlab.stacks import spec_file
from fleetlab.stacks.formats import BY_NAME
from fleetlab.stacks.formats.env import blocks
from fleetlab.stacks.formats.format import Document
from fleetlab.stacks.spec import Spec
from fleetlab.stacks.yaml_reader import LARGEST, documents

SPEC = "spec"  # our own format


@dataclass(frozen=True, slots=True, repr=False)
class ReadResult(Result):
    """What a file of a stack says, as a spec."""

    stack: str
    spec: Spec
    provenance: Provenance

    @property
    def text(self) -> str:
        """The spec as a file of its own."""
        return spec_file.to_toml(self.spec)

    def summary(self) -> list[Estimate]:
        """How many share."""
        count = len(self.spec.tenants) or len(self.spec.layout) * self.spec.turns
        return [Estimate.exact("tenants of a GPU", count)]

    def tables(self) -> dict[str, pl.DataFrame]:
        """The spec, and which format it was in."""
        return {"spec": pl.DataFrame({"format": [self.stack], "mode": [self.spec.mode], "toml": [self.text]})}


def read(path: Path) -> ReadResult:
    """The spec that a file amounts to, whichever stack it is of."""
    text = read_file(path)
    provenance = Provenance("share read", path.name)
    if path.suffix == ".toml":
        return ReadResult(SPEC, spec_file.parse(text, path.name), provenance)
    docs = parse_documents(text, path.name)
    stack = recognize(docs)
    if stack is None:
        msg = f"{path.name}: not a file of a stack that we know"
        raise BenchError(msg, hint=f"there are {', '.join(sorted(BY_NAME))}, and our own .toml")
    try:
        return ReadResult(stack, BY_NAME[stack].read(docs), provenance)
    except BenchError as e:
        msg = f"{path.name}: {stack}: {e}"
        raise BenchError(msg, hint=e.hint or f"`fleetlab share lint {path.name}` says more") from None


def read_file(path: Path) -> str:
    """The text of a file that is not too large to be one."""
    try:
        with path.open("rb") as f:
            raw = f.read(LARGEST + 1)  # a device says that it has no bytes, and has no end
        if len(raw) > LARGEST:
            msg = f"{path.name}: larger than any such file: {max(len(raw), path.stat().st_size):,} bytes"
            raise BenchError(msg, hint=f"at most {LARGEST:,} are read")
        return raw.decode("utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as e:
        why = getattr(e, "strerror", None) or "not text"
        msg = f"cannot read {path}: {why}"
        raise BenchError(msg, hint="a file of a stack, or a spec in TOML") from None


def parse_documents(text: str, source: str) -> list[Document]:
    """The documents of a file: of YAML, or blocks of variables."""
    return blocks(text) or documents(text, source)


def recognize(found: list[Document]) -> str | None:
    """Which stack's they are."""
    return next((name for name, stack in BY_NAME.items() if stack.mine(found)), None)
