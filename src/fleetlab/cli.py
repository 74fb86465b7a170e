"""The command line: which commands there are, and how any of them begins and ends.

Packages are imported inside the commands, so that `fleetlab --help` answers at once.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from typing import Literal

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter, UnknownCommandError, UnknownOptionError

from fleetlab.commands import first_help
from fleetlab.commands.options import add_commands, examples, shown_default, version, whole_numbers

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]
NO_LIMIT = -1
LEAST_MEMORY = 5 << 29  # bytes of addresses, most of them never touched

# The commands of each module: of a command that is named, no other module is imported.
COMMANDS = {
    "bench": "bench", "share": "share", "sweep": "sweep runs tune", "describe": "describe diagnose calibrate",
    "traces": "read collect synthesize fetch traces show watch anonymize", "explain": "explain eta",
    "simulate": "simulate compare pack check", "demand": "forecast capacity autoscale", "plan": "plan defragment",
    "theory": "solve model validate audit reproduce", "pages": "report web", "demo": "demo", "doctor": "doctor",
    "assistants": "mcp",
}  # fmt: skip


@cache
def command_line(word: str = "") -> App:
    """Return the command line with the module of the command that is named; with all of them where none is."""
    root = App(
        name="fleetlab",
        help=first_help.OVERVIEW,
        help_format="plaintext",
        config=whole_numbers,
        default_parameter=Parameter(negative_iterable=(), show_default=shown_default),  # no option that empties a list
        suppress_keyboard_interrupt=False,
        version=version,
    )
    for module in [module for module, names in COMMANDS.items() if word in names.split()] or COMMANDS:
        of = import_module(f"fleetlab.commands.{module}")
        if hasattr(of, "app"):
            add_commands(root, of.app)
        else:
            root.command(getattr(of, module))
    root.command(completion, help_epilogue=COMPLETION)
    return root


def __getattr__(name: str) -> App:
    if name == "app":
        return command_line()
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


COMPLETION = examples(
    "source <(fleetlab completion bash)     (in ~/.bashrc)",
    "source <(fleetlab completion zsh)      (in ~/.zshrc, after compinit)",
    "fleetlab completion fish > ~/.config/fish/completions/fleetlab.fish",
)


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print a script with which the tab key completes commands, options, policies, traces and files.

    Parameters
    ----------
    shell
        The shell that reads the script.
    """
    script = command_line().generate_completion(shell=shell)
    # As a file of $fpath zsh knows what it completes by its first line; read by `source`, by this.
    print(script + ("\ncompdef _cyclopts_fleetlab fleetlab\n" if shell == "zsh" else ""))


def main(words: Sequence[str] | None = None) -> None:
    """Run a command; a user's mistake ends in `error: …`, `hint: …` and exit status 2."""
    _prepare()
    words = _plain(sys.argv[1:] if words is None else words)
    if words in ([], ["--help"], ["-h"]):
        print(first_help.overview())
        sys.exit(0)
    try:
        command_line(*words[:1])(words, exit_on_error=False, print_error=False)
    except CycloptsError as e:
        _leave(*_mistake(e, words))
    except BrokenPipeError:
        # The reader of our output is gone: without this, Python would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as e:
        _leave(f"{e.filename or 'the system'}: {e.strerror or e}", "look at the path, its permissions and free space")
    except MemoryError:
        _leave("not enough memory for this", "a smaller trace, or a machine with more")
    except KeyboardInterrupt as e:
        print(f"stopped: {e}" if str(e) else "stopped", file=sys.stderr)
        sys.exit(130)
    except Exception as e:
        from fleetlab.core.errors import FleetlabError
        from fleetlab.gpu import BenchError  # of packages that run where polars is not installed

        if not isinstance(e, FleetlabError | BenchError):
            raise
        from fleetlab.core.words import as_options

        names = _option_names(words)
        _leave(as_options(str(e), names), e.hint and as_options(e.hint, names))


def _plain(words: Sequence[str]) -> list[str]:
    """Return words without those that hold for every command, and `help` and `version` as the options that they are."""
    from fleetlab.commands import screen

    words, full = list(words), "--full" in words
    if full:
        words = [word for word in words if word != "--full"]
        screen.print_everything()
    if words[:1] == ["help"]:
        return [*words[1:], "--help"]
    return ["--version"] if words == ["version"] else words


def _mistake(e: CycloptsError, words: Sequence[str]) -> tuple[str, str]:
    """Return what is wrong with the words of a command, and a hint."""
    message = " ".join(str(e).split())
    path, apps, _ = command_line(*words[:1]).parse_commands(list(words))
    name = " ".join(("fleetlab", *path))
    if isinstance(e, UnknownCommandError) and not path:
        meant = first_help.command_meant(words[0])
        did_you = f"; did you mean `fleetlab {meant}`?" if meant else ""
        return f"no command by that name: `{words[0]}`{did_you}", f"`fleetlab {meant or ''} --help`".replace("  ", " ")
    if isinstance(e, UnknownOptionError):
        option = e.token.keyword or e.token.value or ""
        meant = first_help.option_meant(option, [f"--{one}" for one in _option_names(words)])
        did_you = f"; did you mean {meant}?" if meant else ""
        return f"no option by that name: {option}{did_you}", f"`{name} --help` shows what it takes"
    missing = e.argument if isinstance(e, MissingArgumentError) and not e.keyword else None
    if not missing or not missing.field_info.is_positional or "Did you mean" in message:
        return message, f"`{name} --help` shows what it takes"
    what = " ".join((missing.parameter.help or "").split()).rstrip(".")
    message = f"{missing.name.removeprefix('--').upper()} is missing" + (
        f": {what[0].lower()}{what[1:]}" if what else ""
    )
    lines = (apps[-1].help_epilogue or "").replace("\\\n    ", "").splitlines()
    example = next((line.strip() for line in lines if name in line), "")
    return message, (f"such as `{example}`; " if example else "") + f"`{name} --help` shows what it takes"


def _option_names(words: Sequence[str]) -> list[str]:
    """Return the options of the command that these words call."""
    _, apps, _ = command_line(*words[:1]).parse_commands(list(words))
    names = (name for argument in apps[-1].assemble_argument_collection() for name in argument.names)
    return [name.removeprefix("--") for name in names if name.startswith("--")]


def _prepare() -> None:
    atexit.register(gc.freeze)  # else Python looks through all that there is once more as it ends: 0.1 s
    # A name in a log, or a terminal, that is not UTF-8 must not end in a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    limit = resource.getrlimit(resource.RLIMIT_AS)[0] if resource else NO_LIMIT
    if limit != NO_LIMIT and limit < LEAST_MEMORY:  # the frame library would abort, without a word of ours
        has, needs = limit / 2**30, LEAST_MEMORY / 2**30
        message = f"this process may use {has:.1f} GiB of memory, and fleetlab needs {needs:.1f} GiB"
        print(f"error: {message}", file=sys.stderr)
        print("\nhint: `ulimit -v unlimited` lifts the limit, where the system allows it", file=sys.stderr)
        sys.exit(2)
    # Ended from outside, leave as from inside, so that folders for large tables are cleaned up.
    for name in ("SIGTERM", "SIGHUP"):
        if number := getattr(signal, name, None):
            signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    # One Ctrl-C reaches us twice, from the frame library and from Python: the second may fall into a clean-up.
    sys.unraisablehook = _quiet


def _quiet(unraisable: sys.UnraisableHookArgs) -> None:
    if not isinstance(unraisable.exc_value, KeyboardInterrupt | SystemExit):
        sys.__unraisablehook__(unraisable)


def _leave(message: str, hint: str | None) -> None:
    from fleetlab._screen import complain

    complain(message, hint)
    sys.exit(2)


if __name__ == "__main__":
    main()
