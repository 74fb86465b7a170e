"""The command line: which commands there are, and how any of them begins and ends.

Rooms are imported inside the commands, so that `fleetlab --help` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from cyclopts import App, CycloptsError, MissingArgumentError

from fleetlab.commands import demand, describe, explain, pages, plan, simulate, sweep, theory, traces, tune
from fleetlab.commands.bench import bench
from fleetlab.commands.share import share
from fleetlab.commands.words import examples, open_desk, version, whole_numbers

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
    suppress_keyboard_interrupt=False,
    version=version,
)
app.command(bench)
app.command(share)
for room in (sweep, traces, describe, explain, simulate, demand, theory, plan, tune, pages):
    open_desk(app, room.desk)


def main(words: Sequence[str] | None = None) -> None:
    """Run a command; a user's mistake ends in `error: …`, `hint: …` and exit status 2."""
    _prepare()
    try:
        app(words, exit_on_error=False, print_error=False)
    except CycloptsError as e:
        text = " ".join(str(e).split())
        missing = e.argument if isinstance(e, MissingArgumentError) and not e.keyword else None
        if missing and missing.field_info.is_positional and "Did you mean" not in text:
            text = f"{missing.name.removeprefix('--').upper()} is missing"
        _leave(text, "`fleetlab --help`, or --help after a command, shows what it takes")
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
