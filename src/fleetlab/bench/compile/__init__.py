"""How a card is to be shared, said once: to the format of each stack and back, with what is lost on the way."""

from fleetlab.bench.compile.emitting import Emitted, emit
from fleetlab.bench.compile.linting import Linted, lint
from fleetlab.bench.compile.reading import Back, read
from fleetlab.bench.compile.spec import Spec

__all__ = ["Back", "Emitted", "Linted", "Spec", "emit", "lint", "read"]
