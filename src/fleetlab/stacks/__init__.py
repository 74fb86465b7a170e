"""How a card is to be shared, said once: to the format of each stack and back, with what is lost on the way."""

from fleetlab.stacks.emitting import Emitted, emit
from fleetlab.stacks.linting import Linted, lint
from fleetlab.stacks.reading import Back, read
from fleetlab.stacks.spec import Spec

__all__ = ["Back", "Emitted", "Linted", "Spec", "emit", "lint", "read"]
