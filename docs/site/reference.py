"""The reference: pages made from the code's own words, each time the site is built."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

from docs.site import commands, tables

import fleetlab

POLICIES = ("order", "placement", "check_order", "check_placement", "check_scheduler", "check_forecaster")
PAGE = "reference/python/{}.md"
INTRODUCTIONS = {
    "verbs": "Functions that take a trace or a scenario and return a result. `fleetlab NAME` on the command line "
    "is the function of that name. `**words` are [the words of a scenario](../words.md), the same for every verb.",
    "nouns": "What verbs take and return.",
    "policies": "Policies of your own, and what checks them. The guide: [write a policy](../../write-a-policy.md).",
    "results": "What each verb returns, beside the fields and methods that every `Result` has.",
    "errors": "What can go wrong, and can be mended. Each error carries a `hint`: what to do next.",
}


@cache
def pages() -> dict[str, str]:
    """Return every page of the reference that is made, by its place in the site."""
    return python_pages() | commands.pages() | tables.pages()


def python_pages() -> dict[str, str]:
    """Return the pages of the Python reference: every public name, by kind."""
    return {PAGE.format(kind): python_page(kind, names) for kind, names in kinds().items()}


def kinds() -> dict[str, dict[str, Any]]:
    """Return what is public, by kind; results are what the verbs return."""
    public = {name: getattr(fleetlab, name) for name in fleetlab.__all__}
    errors = {n: v for n, v in public.items() if inspect.isclass(v) and issubclass(v, Exception)}
    policies = {n: public[n] for n in POLICIES}
    nouns = {n: v for n, v in public.items() if inspect.isclass(v) and n not in errors | policies}
    verbs = {n: v for n, v in public.items() if n not in errors | policies | nouns}
    results = {v.__name__: v for v in returned(verbs.values()) if v.__name__ not in public}
    return {"verbs": verbs, "nouns": nouns, "policies": policies, "results": results, "errors": errors}


def returned(verbs: Iterable[Any]) -> list[type]:
    """Return the classes that verbs return, in order."""
    found = []
    for verb in verbs:
        for name in re.findall(r"\b(?!None)[A-Z]\w+", str(inspect.signature(verb).return_annotation)):
            value = getattr(sys.modules[verb.__module__], name)
            if value not in found and value.__module__.startswith("fleetlab"):
                found.append(value)
    return found


def python_page(kind: str, names: dict[str, Any]) -> str:
    """Return a page with an entry for each name, which the docstring fills."""
    prefix = "" if kind == "results" else "fleetlab."
    parts = [f"# {kind.capitalize()}", INTRODUCTIONS[kind]]
    parts += [
        f"::: {v.__module__}.{v.__qualname__}\n    options:\n      heading: {prefix}{n}\n      toc_label: {n}"
        for n, v in names.items()
    ]
    return "\n\n".join(parts) + "\n"
