"""What a visitor can choose, in words for the page; whatever is not listed here is refused at the door.

A policy of one's own (`module:name`) is not among it: an address must not be able to load code.
"""

from __future__ import annotations

from fleetlab.core import catalog
from fleetlab.core.catalog import ORDERS
from fleetlab.core.words import SHORTHAND, WORDS

SIZES = (2_000, 20_000, 100_000, 400_000, 1_260_920)  # jobs of a built-in trace; the last is the whole two months
SEEDS = 10  # built-in traces of each size

RULES = {name: menu.meanings() for name in SHORTHAND if (menu := WORDS[name].menu)}
BY_ESTIMATE = ORDERS.where("needs_estimate")  # orders that look at the estimate
REASONS = catalog.REASONS.meanings()
