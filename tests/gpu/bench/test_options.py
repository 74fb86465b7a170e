"""One dataclass gives the options of a command and of its module: the same names, kinds, defaults and help."""

from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Literal

import pytest

from fleetlab import cli
from fleetlab.gpu.bench.options import StressOptions, SuiteOptions, WorkloadOptions
from fleetlab.gpu.devices.console import BenchError, documented, parse, start
from fleetlab.gpu.monitor.run import MonitorOptions
from fleetlab.gpu.serving.load.settings import LoadOptions
from fleetlab.gpu.serving.server.limits import ServeOptions

COMMANDS = {
    "suite": SuiteOptions,
    "workload": WorkloadOptions,
    "stress": StressOptions,
    "monitor": MonitorOptions,
    "load": LoadOptions,
    "serve": ServeOptions,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_and_the_module_have_the_same_words(name, capsys):
    arguments = cli.app["bench"][name].assemble_argument_collection(parse_docstring=True)
    command = {option: argument.parameter.help for argument in arguments for option in argument.names}
    _, texts = documented(COMMANDS[name])
    with pytest.raises(SystemExit, match="0"):
        parse("module", COMMANDS[name], ["--help"])
    module = capsys.readouterr().out
    for field in fields(COMMANDS[name]):
        option = f"--{field.name.replace('_', '-')}"
        assert " ".join(command[option].split()) == texts[field.name]
        first = field.name if field.default is MISSING and not field.kw_only else option
        assert f"\n  {first} " in module or f"\n  {first}\n" in module


@dataclass(frozen=True)
class Every:
    """One field of each kind.

    Parameters
    ----------
    first
        Of which 100 % is text.
    count
        A number.
    path
        A path,
        over two lines.
    words
        Some words.
    one
        One of two.
    on
        A switch.
    """

    first: str
    count: int = 3
    path: Path | None = None
    words: tuple[str, ...] = ()
    one: Literal["a", "b"] = "a"
    on: bool = False


def test_each_kind_of_field_is_read():
    assert parse("module", Every, ["x"]) == Every("x")
    words = ["x", "--count", "4", "--path", "p", "--words", "a", "--words", "b", "--one", "b", "--on"]
    assert parse("module", Every, words) == Every("x", 4, Path("p"), ("a", "b"), "b", True)


def test_help_has_the_text_and_the_default_of_each(capsys):
    with pytest.raises(SystemExit, match="0"):
        parse("module", Every, ["-h"])
    said = " ".join(capsys.readouterr().out.split())
    assert "One field of each kind." in said
    assert "Of which 100 % is text." in said
    assert "A path, over two lines." in said
    assert "A number. (default: 3)" in said


def test_an_error_has_status_2_and_a_stop_130(capsys):
    def wrong(options):
        raise BenchError("no such " + options.first, hint="another")

    def stopped(options):
        raise KeyboardInterrupt

    assert start("module", Every, wrong, ["x"]) == 2
    assert capsys.readouterr().err == "error: no such x\nhint: another\n"
    assert start("module", Every, stopped, ["x"], stopped="kept") == 130
    assert capsys.readouterr().err == "kept\n"
