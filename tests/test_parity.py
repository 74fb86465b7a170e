"""One scenario, the same words: in Python, on the command line, in a study file and in the address of the page."""

import inspect
from dataclasses import fields

import pytest
from cyclopts import App

import fleetlab
from fleetlab import Scenario, cli
from fleetlab.commands.options import ScenarioOptions
from fleetlab.core.words import WORDS, Words
from fleetlab.studies.sweep.study import Study

# Verbs that take a scenario; `pack` simulates no queue, and takes the words that change the cluster.
VERBS = ("simulate", "compare", "diagnose", "capacity", "autoscale", "tune", "audit", "calibrate", "explain", "eta")
GIVEN = {  # another value than the default for each word, as text and as a value
    "nodes": ("T4 +1", "T4 +1"),
    "load": ("1.5", 1.5),
    "latency": ("1 GPU=5/6,gang=60", {"1 GPU": [5, 6], "gang": 60}),
    "order": ("sjf", "sjf"),
    "backfill": ("easy", "easy"),
    "placement": ("fgd", "fgd"),
    "estimate": ("group", "group"),
    "sharing": ("mps", "mps"),
    "speed": ("published", "published"),
    "speed_classes": ("app:a=light,other=heavy", {"app:a": "light", "other": "heavy"}),
    "preemption": ("true", True),
    "quota": ("16", 16),
    "recovery": ("every=600,save=10", {"every": 600, "save": 10}),
    "weights": ("1,2", [1.0, 2.0]),
    "seed": ("3", 3),
    "until": ("1h", 3600),
}


def option_names(command: App) -> set[str]:
    return {name for argument in command.assemble_argument_collection() for name in argument.names}


def test_options_are_the_words_of_a_scenario():
    assert {f.name for f in fields(ScenarioOptions)} == set(WORDS) - {"trace"}
    assert set(Words.__annotations__) == set(WORDS) - {"trace", "cluster"}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_a_scenario_or_the_words_that_build_one(verb):
    signature = inspect.signature(getattr(fleetlab, verb))
    first, second = list(signature.parameters.values())[:2]
    assert first.kind is first.POSITIONAL_OR_KEYWORD
    assert second.name == "cluster"
    assert any(p.kind is p.VAR_KEYWORD and "Words" in str(p.annotation) for p in signature.parameters.values())


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_has_every_word_as_an_option_with_the_help_of_the_word(verb):
    command = cli.app[verb]
    by_name = {name: a for a in command.assemble_argument_collection() for name in a.names}
    for name, word in WORDS.items():
        if name != "trace":
            assert by_name[f"--{name.replace('_', '-')}"].parameter.help == word.help


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_has_the_other_parameters_of_its_verb(verb):
    parameters = inspect.signature(getattr(fleetlab, verb)).parameters
    own = {name for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY} - {"progress", "store", "usage"}
    assert {f"--{name.replace('_', '-')}" for name in own} <= option_names(cli.app[verb])


@pytest.mark.parametrize("word", GIVEN)
def test_a_word_means_the_same_in_every_spelling(word, tmp_path):
    text, value = GIVEN[word]
    shared = {"sharing": "mps"} if word.startswith("speed") else {}  # a profile has no effect without
    wanted = Scenario.of("builtin:200", **shared | {word: value})
    options = [part for name in shared for part in (f"--{name}", shared[name])]
    options += [f"--{word}", *([] if word == "preemption" else [text])]
    _, bound, _ = cli.app.parse_args(["simulate", "builtin:200", *options], exit_on_error=False)
    assert Scenario.of("builtin:200", **bound.arguments["options"].words()) == wanted
    (tmp_path / "scenario.toml").write_text(wanted.to_toml())
    assert Scenario.from_toml(tmp_path / "scenario.toml") == wanted
    assert Scenario.from_query(wanted.to_query()) == wanted
    assert Scenario.of_words(wanted.words()) == wanted
    study = Study.from_toml(tmp_path / "scenario.toml")  # a scenario file is a study of one scenario
    assert study.scenarios == (wanted.replace(seed=0),)


@pytest.mark.parametrize("verb", VERBS)
def test_an_unknown_word_is_refused_with_the_one_that_was_meant(verb):
    with pytest.raises(fleetlab.FleetlabError, match="did you mean backfill"):
        getattr(fleetlab, verb)(
            "builtin:200", backfil="easy", **({"slo": "p90 wait < 9"} if verb == "capacity" else {})
        )
