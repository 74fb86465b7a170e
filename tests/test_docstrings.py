"""Every public name says what it takes, returns and raises, in numpydoc's sections, with an example that runs.

The examples themselves run in test_package.py.
"""

import dataclasses
import inspect
import re

import pytest

import fleetlab
from fleetlab import cli
from fleetlab.commands.options import parameters_of
from fleetlab.core.cells import Framed

# What needs a network, a running cluster, a person or an extra: their examples are read, not run.
NOT_RUN = ("fetch", "watch", "web", "Figure.to_matplotlib")
OVERRIDDEN = ("summary", "tables", "figures", "cluster_timeline", "findings", "notes")  # documented by Result
SECTION = re.compile(r"^(\w[\w ]*)\n-+\n", re.MULTILINE)


def public():
    """Yield every public callable by its name, and those of classes that verbs return."""
    for name in fleetlab.__all__:
        yield name, getattr(fleetlab, name)
        if inspect.isclass(getattr(fleetlab, name)):
            yield from methods(name, getattr(fleetlab, name))
    for name in ("to_polars", "to_pandas"):
        yield f"Framed.{name}", getattr(Framed, name)
    for kind in {result_of(getattr(fleetlab, name)) for name in fleetlab.__all__}:
        if kind is not None and kind.__name__ not in fleetlab.__all__:  # its `of` is called by the verb alone
            yield from ((name, value) for name, value in methods(kind.__name__, kind) if not name.endswith(".of"))


def methods(name, kind):
    for own, value in vars(kind).items():
        is_verb = inspect.isfunction(value) or isinstance(value, classmethod | staticmethod)
        inherited = issubclass(kind, fleetlab.Result) and kind is not fleetlab.Result and own in OVERRIDDEN
        if is_verb and not own.startswith("_") and not inherited:
            yield f"{name}.{own}", getattr(kind, own)


def result_of(verb):
    """Return the class that a verb returns; None where it is no class of ours."""
    if inspect.isclass(verb) or not inspect.isfunction(verb):
        return None
    kind = vars(inspect.getmodule(verb)).get(str(inspect.signature(verb).return_annotation))
    return kind if inspect.isclass(kind) and issubclass(kind, fleetlab.Result) else None


PUBLIC = sorted(public(), key=lambda pair: pair[0])


def sections(value):
    """Return the text of each section of a docstring by its heading."""
    parts = SECTION.split(inspect.getdoc(value) or "")
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def parameters(value):
    """Return the names that a call takes, with their stars."""
    built = dataclasses.is_dataclass(value) or issubclass(value, tuple | Exception) if inspect.isclass(value) else True
    if not built and value.__init__ is object.__init__:
        return set()
    if value is fleetlab.Estimate:
        return set(value._fields)
    if inspect.isclass(value) and issubclass(value, Exception) and value is not fleetlab.FleetlabError:
        return set()  # as FleetlabError
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    found = inspect.signature(value).parameters.values()
    return {stars.get(p.kind, "") + p.name for p in found if p.name not in ("self", "cls")}


def documented(value):
    section = "Attributes" if value is fleetlab.Estimate else "Parameters"  # a tuple with names
    heads = re.findall(r"^(\S.*)$", sections(value).get(section, ""), re.MULTILINE)
    return [name for head in heads for name in head.split(", ")]


def test_every_parameter_is_documented_once_by_its_name():
    names = {name: (sorted(documented(value)), sorted(parameters(value))) for name, value in PUBLIC}
    assert {name: pair for name, pair in names.items() if pair[0] != pair[1]} == {}


def returns_a_value(value):
    return not inspect.isclass(value) and inspect.signature(value).return_annotation not in ("None", None)


def test_what_is_returned_is_documented():
    assert [name for name, value in PUBLIC if ("Returns" in sections(value)) != returns_a_value(value)] == []


def test_there_is_an_example_that_runs():
    examples = {name: sections(value).get("Examples", "") for name, value in PUBLIC}
    assert [name for name, example in examples.items() if ">>> " not in example] == []
    assert {name for name, example in examples.items() if "+SKIP" in example} == {*examples} & {*NOT_RUN}


def test_errors_that_are_documented_are_those_of_the_project():
    errors = {name: re.findall(r"^(\S.*)$", sections(value).get("Raises", ""), re.MULTILINE) for name, value in PUBLIC}
    ours = {error for error in fleetlab.__all__ if error.endswith("Error")}
    assert {name: raised for name, raised in errors.items() if not ours.issuperset(raised)} == {}


def test_a_verb_says_what_it_refuses():
    verbs = [name for name, value in PUBLIC if inspect.isfunction(value) and "." not in name]
    assert [verb for verb in verbs if "Raises" not in sections(getattr(fleetlab, verb))] == []


# Options that a command takes as its verb does: their help is the verb's own text, which stands in one place.
SHARED = [
    ("eta", "starts"), ("capacity", "slo"), ("forecast", "target"), ("autoscale", "boot"), ("describe", "against"),
    ("calibrate", "fit"), ("explain", "longest"), ("reproduce", "data"), ("synthesize", "constrained"),
    ("sweep", "store"), ("fetch", "into"), ("read", "since"), ("tune", "goal"), ("defragment", "most"),
    ("plan", "objective"), ("web", "limit"), ("report", "svg"),
]  # fmt: skip
DEFAULT = re.compile(r" \(default: [^(),;]*\)\.$")  # which help names by itself


@pytest.mark.parametrize(("verb", "option"), SHARED)
def test_help_of_an_option_is_the_text_of_the_verb(verb, option):
    arguments = cli.app[verb].assemble_argument_collection(parse_docstring=True)
    shown = next(a.parameter.help for a in arguments if f"--{option.replace('_', '-')}" in a.names)
    text = parameters_of(inspect.getdoc(getattr(fleetlab, verb)))[option]
    assert DEFAULT.sub(".", shown) == DEFAULT.sub(".", text)


@pytest.mark.parametrize("verb", sorted({verb for verb, _ in SHARED}))
def test_every_option_of_a_command_has_help(verb):
    assert [
        a.name
        for a in cli.app[verb].assemble_argument_collection(parse_docstring=True)
        if a.show and not a.parameter.help
    ] == []
