"""The first help and the version come without the command line, and are what the command line says."""

import sys
from contextlib import suppress
from importlib import import_module

import pytest

from fleetlab import cli, start


@pytest.mark.parametrize("word", [None, "--help", "-h", "help", "--version", "version"])
def test_what_comes_at_once_is_what_the_command_line_says(word, monkeypatch, capsys):
    words = [] if word is None else [word]
    monkeypatch.setattr(sys, "argv", ["fleetlab", *words])
    start.main()
    at_once = capsys.readouterr().out
    with suppress(SystemExit):
        cli.main(words)
    assert capsys.readouterr().out == at_once


def test_each_module_has_the_commands_that_it_is_imported_for():
    for module, names in cli.COMMANDS.items():
        of = import_module(f"fleetlab.commands.{module}")
        there = [name for name in of.app if not name.startswith("-")] if hasattr(of, "app") else [module]
        assert set(there) == set(names.split())


def test_a_command_has_the_same_options_whether_others_are_imported_or_not():
    one, all_of_them = (app["eta"].assemble_argument_collection() for app in (cli.command_line("eta"), cli.app))
    assert [argument.names for argument in one] == [argument.names for argument in all_of_them]
