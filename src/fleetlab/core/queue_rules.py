"""The queues of a scenario: a tree with quotas and limits, classes of service, and whose rules hold between them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fleetlab.core import toml
from fleetlab.core.catalog import PREEMPTS, QUEUE_RULES, SHARES, QueueRule
from fleetlab.core.errors import PolicyError
from fleetlab.core.names import lookup
from fleetlab.core.queues import Qos, QueueTree
from fleetlab.core.records import from_values, to_values

LIMITS_ALONE = "limits"  # the rules of accounts: limits, and no quota that others give back
RENAMED = {"kueue": "quotas", "slurm": "limits"}  # in files of earlier releases
COLUMNS = ("queue", "user", "group", "app")  # of a workload, that may name the queue of a job
OWN = {name: text for name, text in PREEMPTS.items() if name != "any"}
OTHERS = {name: text for name, text in PREEMPTS.items() if name != "newer"}
LOWER = {name: text for name, text in OTHERS.items() if name != "any"}
PREEMPTING = ("reclaim", "within", "borrow")
CHOICES = {"reclaim": OTHERS, "within": OWN, "borrow": LOWER, "share": SHARES}
HINT = "[[queue]] entries: name, parent, guaranteed = { gpu = 16 }, borrowing, lending, limits, …"


@dataclass(frozen=True, slots=True)
class Queues:
    """A tree of queues and the rules between them; what is None is as the rules of that name say."""

    tree: QueueTree = field(default_factory=QueueTree)
    qos: tuple[Qos, ...] = ()
    rules: str = QUEUE_RULES.names[0]
    column: str = COLUMNS[0]  # of the workload, that names the queue of a job
    reclaim: str | None = None
    within: str | None = None
    borrow: str | None = None
    share: str | None = None
    strict: bool | None = None

    def __post_init__(self) -> None:
        lookup(QUEUE_RULES.kind, self.rules, QUEUE_RULES.names)
        lookup("column of queues", self.column, COLUMNS)
        for owner in (self, *self.tree.values()):
            for name, choices in CHOICES.items():
                if (value := getattr(owner, name, None)) is not None:
                    hint = "; ".join(f"{choice}: {meaning}" for choice, meaning in choices.items())
                    lookup(f"value of `{name}`", value, choices, hint=hint)
        for queue in self.tree.values():
            for what in ("guaranteed", "borrowing", "lending"):
                if below := [resource for resource, most in getattr(queue, what).items() if most < 0]:
                    msg = f"queue `{queue.name}`: `{what}` of {below[0]} is negative"
                    raise PolicyError(msg, hint="0 gives a queue nothing of its own")

    @property
    def rule(self) -> QueueRule:
        """The rules by name, with what is stated in their place."""
        own = {name: getattr(self, name) for name in (*CHOICES, "strict")}
        return replace(QUEUE_RULES[self.rules], **{name: value for name, value in own.items() if value is not None})

    @property
    def preempts(self) -> bool:
        """Whether a running job may be preempted."""
        owners = (self.rule, *self.tree.values())
        return any(getattr(owner, name) not in (None, "never") for owner in owners for name in PREEMPTING)

    @property
    def ordered(self) -> bool:
        """Whether the queues themselves decide which job is next, and not the order of all jobs alone."""
        strict = self.rule.strict or any(queue.strict for queue in self.tree.values())
        return self.preempts or strict or self.rule.share != "none" or (self.rule.guaranteed_first and self._quotas)

    @property
    def _quotas(self) -> bool:
        return any(queue.guaranteed for queue in self.tree.values())

    @classmethod
    def of(cls, value: Queues | QueueTree | Mapping[str, Any] | list[Any] | str | Path) -> Queues:
        """Take queues, a tree, a table or a list of queues as `to_values` gives them, or a TOML or JSON file."""
        if isinstance(value, Queues):
            return value
        if isinstance(value, QueueTree):
            return cls(value)
        plain = _file(Path(value)) if isinstance(value, str | Path) else value
        return cls.from_values({"queue": plain} if isinstance(plain, list) else plain)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Queues:
        """Build one from plain tables: `queue` is the list of queues."""
        if not isinstance(values, Mapping):
            raise PolicyError(f"not queues: {values!r}", hint=HINT)
        named = {"tree" if name == "queue" else name: value for name, value in values.items()}
        if "rules" in named:
            named["rules"] = RENAMED.get(named["rules"], named["rules"])
        names = Counter(str(entry.get("name")) for entry in values.get("queue", ()) if isinstance(entry, Mapping))
        if twice := [name for name, count in names.items() if count > 1]:
            msg = f"more than one queue is called `{twice[0]}`"
            raise PolicyError(msg, hint="a queue is known by its name: give each one of its own")
        return from_values(cls, named, "table of queues")

    def to_values(self) -> dict[str, Any]:
        """Return plain tables of what differs from the defaults."""
        return {"queue" if name == "tree" else name: value for name, value in to_values(self).items()}


def _file(path: Path) -> Any:  # noqa: ANN401
    if path.suffix != ".json":
        return toml.load(path, "the queues", HINT)
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as e:
        msg = f"cannot read the queues: {path}: {e.strerror}"
    except (ValueError, RecursionError) as e:
        msg = f"{path.name}: not JSON: {e}"
    raise PolicyError(msg, hint=HINT)
