"""Configuration of Kubernetes stacks: emit one spec in the format of each stack, read files back, and lint them."""

from fleetlab.stacks.emitting import EmitResult, emit
from fleetlab.stacks.linting import LintResult, lint
from fleetlab.stacks.reading import ReadResult, read
from fleetlab.stacks.spec import Spec

__all__ = ["EmitResult", "LintResult", "ReadResult", "Spec", "emit", "lint", "read"]
