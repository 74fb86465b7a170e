"""The command line: which commands there are, and how any of them begins and ends.

Rooms are imported inside the commands, so that `fleetlab --help` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Literal

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter

from fleetlab.commands import (
    demand,
    describe,
    doctor,
    eta,
    explain,
    pages,
    plan,
    reproduce,
    simulate,
    sweep,
    theory,
    traces,
    tune,
    watch,
)
from fleetlab.commands.bench import bench
from fleetlab.commands.share import share
from fleetlab.commands.words import examples, open_desk, shown_default, version, whole_numbers

app = App(
    name="fleetlab",
    help="A laboratory for GPU clusters: read a cluster's log, explain its waits, simulate changes, plan ahead.",
    help_epilogue=examples(
        "fleetlab synthesize pai2020 --jobs 100000 --out my-trace",
        "fleetlab read slurm sacct.txt --zone Europe/Berlin --out my-trace",
        "fleetlab diagnose my-trace",
        "fleetlab simulate my-trace --backfill easy --load 1.2",
    ),
    help_format="plaintext",
    config=whole_numbers,
    default_parameter=Parameter(negative_iterable=(), show_default=shown_default),  # no option that empties a list
    suppress_keyboard_interrupt=False,
    version=version,
)
app.command(bench)
app.command(share)
for room in (
    sweep,
    traces,
    describe,
    explain,
    simulate,
    eta,
    demand,
    theory,
    reproduce,
    plan,
    tune,
    watch,
    pages,
    doctor,
):
    open_desk(app, room.desk)


@app.command(
    help_epilogue=examples(
        "source <(fleetlab completion bash)     (in ~/.bashrc)",
        "source <(fleetlab completion zsh)      (in ~/.zshrc, after compinit)",
        "fleetlab completion fish > ~/.config/fish/completions/fleetlab.fish",
    )
)
def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print a script with which the tab key completes commands, options, policies, traces and files.

    Parameters
    ----------
    shell
        The shell that reads the script.
    """
    script = app.generate_completion(shell=shell)
    # As a file of $fpath zsh knows what it completes by its first line; read by `source`, by this.
    print(script + ("\ncompdef _cyclopts_fleetlab fleetlab\n" if shell == "zsh" else ""))


def main(words: Sequence[str] | None = None) -> None:
    """Run a command; a user's mistake ends in `error: …`, `hint: …` and exit status 2."""
    _prepare()
    try:
        app(words, exit_on_error=False, print_error=False)
    except CycloptsError as e:
        _leave(*_mistake(e, sys.argv[1:] if words is None else words))
    except BrokenPipeError:
        # The reader of our output is gone: without this, Python would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as e:
        _leave(f"{e.filename or 'the system'}: {e.strerror or e}", "look at the path, its permissions and free space")
    except MemoryError:
        _leave("not enough memory for this", "a smaller trace, or a machine with more")
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    except Exception as e:
        from fleetlab.core.errors import FleetlabError
        from fleetlab.devices.errors import BenchError  # of rooms that run where polars is not installed

        if not isinstance(e, FleetlabError | BenchError):
            raise
        from fleetlab.core.words import as_options

        names = _option_names(sys.argv[1:] if words is None else words)
        _leave(as_options(str(e), names), e.hint and as_options(e.hint, names))


def _mistake(e: CycloptsError, words: Sequence[str]) -> tuple[str, str]:
    """Return what is wrong with the words of a command, and a hint."""
    said = " ".join(str(e).split())
    path, apps, _ = app.parse_commands(list(words))
    name = " ".join(("fleetlab", *path))
    missing = e.argument if isinstance(e, MissingArgumentError) and not e.keyword else None
    if not missing or not missing.field_info.is_positional or "Did you mean" in said:
        return said, f"`{name} --help` shows what it takes"
    what = " ".join((missing.parameter.help or "").split()).rstrip(".")
    said = f"{missing.name.removeprefix('--').upper()} is missing" + (f": {what[0].lower()}{what[1:]}" if what else "")
    lines = (apps[-1].help_epilogue or "").replace("\\\n    ", "").splitlines()
    example = next((line.strip() for line in lines if name in line), "")
    return said, (f"such as `{example}`; " if example else "") + f"`{name} --help` shows what it takes"


def _option_names(words: Sequence[str]) -> list[str]:
    """Return the options of the command that these words call."""
    _, apps, _ = app.parse_commands(list(words))
    names = (name for argument in apps[-1].assemble_argument_collection() for name in argument.names)
    return [name.removeprefix("--") for name in names if name.startswith("--")]


def _prepare() -> None:
    # A name in a log, or a terminal, that is not UTF-8 must not end in a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
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
