"""Which nodes a pod may use: node selectors, required node affinity and tolerations, as a constraint.

A label that some pod asks for is a feature of its nodes, `key=value`, and so are taints. Labels that name a GPU's model
are GPU types, and not asked for again. A pod that asks for one node by its name is read without that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fleetlab.schedulers.kubernetes.config import Taint, Toleration
from fleetlab.schedulers.kubernetes.reader.nodes import MODELS, Node
from fleetlab.schedulers.kubernetes.reader.objects import MalformedObject, Object, elements, members, words

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
NAMES = ("kubernetes.io/hostname", "metadata.name")
_PLAIN = re.compile(r"[\w./:=+-]+")  # what a feature may be called


@dataclass(frozen=True)
class NodeRules:
    """What a pod asks of nodes."""

    text: str  # an expression of features
    keys: frozenset[str]  # the labels in it
    tolerations: tuple[Toleration, ...]
    left_out: bool  # it also names a node, or compares numbers

    def constraint(self, taints: Iterable[Taint]) -> str | None:
        """The constraint of the pod on a cluster whose nodes have these taints."""
        kept_off = sorted({t.feature for t in taints if not any(each.covers(t) for each in self.tolerations)})
        return "&".join([*([self.text] if self.text else []), *(f"!{name}" for name in kept_off)]) or None


def rules_of(spec: Object) -> NodeRules:
    """Read what a pod asks of nodes."""
    wanted = members(spec.get("nodeSelector"), "spec.nodeSelector")
    selector = [(key, "In", [words(value, f"spec.nodeSelector.{key}")]) for key, value in wanted.items()]
    where, affinity = "spec.affinity", spec
    for step in ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        affinity = members(affinity.get(step), where)
    terms = [choices_of(members(term, where)) for term in elements(affinity.get("nodeSelectorTerms"), where)]
    parts = [_all(selector), _any([_all(choices) for choices in terms])]
    every = [choice for choices in (selector, *terms) for choice in choices]
    return NodeRules(
        "&".join(f"({text})" if "|" in text else text for text in parts if text),
        frozenset(key for key, _, _ in every),
        tuple(tolerations_of(spec)),
        any(key in NAMES or operator in ("Gt", "Lt") for key, operator, _ in every),
    )


def features_of(node: Node, keys: frozenset[str]) -> list[str]:
    """The labels of a node that pods ask for, and its taints."""
    named = [(key, value) for key, value in node.labels.items() if key in keys and key not in NAMES]
    labels = [name for key, value in named for name in (key, f"{key}={value}") if _PLAIN.fullmatch(name)]
    return sorted({*labels, *(taint.feature for taint in node.taints)})


Choice = tuple[str, str, list[str]]  # a label, an operator, values


def choices_of(term: Object) -> list[Choice]:
    """The conditions of a selector or of one of its terms."""
    where = "spec.affinity"
    listed = [*elements(term.get("matchExpressions"), where), *elements(term.get("matchFields"), where)]
    choices = []
    for item in listed:
        choice = members(item, where)
        key, operator = (words(choice.get(name), f"{where}.{name}") for name in ("key", "operator"))
        if operator not in OPERATORS:
            msg = f"`{where}.operator` is none of {', '.join(OPERATORS)}: {operator}"
            raise MalformedObject(msg)
        choices.append((key, operator, [words(value, where) for value in elements(choice.get("values"), where)]))
    return choices


def _all(choices: list[Choice]) -> str:
    texts = [_one(*choice) for choice in choices]
    return "&".join(f"({text})" if "|" in text else text for text in texts if text)


def _any(texts: list[str]) -> str:
    """Terms, of which a node must meet one; one that asks for nothing that is read is met by all."""
    distinct = list(dict.fromkeys(texts))
    return "" if "" in distinct else "|".join(distinct)


def _one(key: str, operator: str, values: list[str]) -> str:
    """One choice as an expression; empty where it is a GPU type, a node's name, or cannot be said."""
    names = [f"{key}={value}" for value in values]
    if key in NAMES or (key in MODELS and operator == "In") or not all(map(_PLAIN.fullmatch, (key, *names))):
        return ""
    if operator == "In":
        return "|".join(names)
    if operator == "NotIn":
        return "&".join(f"!{name}" for name in names)
    return {"Exists": key, "DoesNotExist": f"!{key}"}.get(operator, "")


def tolerations_of(spec: Object) -> Iterable[Toleration]:
    """Read what a pod tolerates."""
    where = "spec.tolerations"
    for item in elements(spec.get("tolerations"), where):
        each = members(item, where)
        key, value, effect, operator = (
            words(each.get(name), f"{where}.{name}") for name in ("key", "value", "effect", "operator")
        )
        yield Toleration(key, None if operator == "Exists" else value, effect)
