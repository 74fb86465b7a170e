"""Configuration of Kubernetes stacks: emit one spec in the format of each stack, read files back, and lint them."""

from fleetlab.gpu.stacks.emitting import EmitResult, emit
from fleetlab.gpu.stacks.reading import LintResult, ReadResult, lint, read
from fleetlab.gpu.stacks.spec import Spec

__all__ = ["EmitResult", "LintResult", "ReadResult", "Spec", "emit", "lint", "read"]
