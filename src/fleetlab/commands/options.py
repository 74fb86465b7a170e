"""How every command begins and speaks: options that all spell alike, their completion, examples in help, messages."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

from cyclopts import App, ArgumentCollection, CoercionError, Group, Parameter, validators

import fleetlab
from fleetlab.commands import screen
from fleetlab.core.words import WORDS, Word

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

    from fleetlab.core import Progress

Completer = Callable[["CompletionContext"], dict[str, str]]
SHIPPED = {
    "sample": "a recorded run of a real Slurm",
    "pai": "a synthetic trace",
}  # with a number of jobs, bash would break it at the colon


def values_of(word: Word) -> Completer | None:
    """Return what completes a word of a scenario: the names of its catalog, and files where it may name one."""
    if word.menu is None and not word.local:
        return None

    def values(context: "CompletionContext") -> dict[str, str]:
        menu = {} if word.menu is None else {one.name: getattr(one, "meaning", "") for one in word.menu}
        return menu | (_paths(context.incomplete) if word.local else {})

    return values


def traces(context: "CompletionContext") -> dict[str, str]:
    """Return the traces that come with fleetlab, saved traces, and folders on the way to one."""
    folders = [path for path in _beginning_with(context.incomplete) if path.is_dir()]
    saved = {f"{path}": "a saved trace" for path in folders if (path / "trace.json").is_file()}
    others = {f"{path}/": "" for path in folders if f"{path}" not in saved}
    return SHIPPED | saved | others


def _paths(begun: str) -> dict[str, str]:
    return {f"{path}/" if path.is_dir() else f"{path}": "" for path in _beginning_with(begun)}


def _beginning_with(begun: str) -> Iterator[Path]:
    """Return the files and folders whose path begins so; hidden ones where a dot was typed."""
    folder, _, name = begun.rpartition("/")
    where = Path(f"{folder}/" if begun.startswith("/") else folder or ".").expanduser()
    try:
        children = sorted(where.iterdir()) if where.is_dir() else []
    except OSError:  # not ours to look into
        return
    for path in children:
        if path.name.startswith(name) and (name.startswith(".") or not path.name.startswith(".")):
            yield Path(folder or ("/" if begun.startswith("/") else ""), path.name)


POLICY = Group("Policy", sort_key=1)
SCENARIO = Group("Scenario", sort_key=2)

Json = Annotated[bool, Parameter(negative=(), show_default=False, help="Print one JSON object.")]
Seed = Annotated[
    int, Parameter(validator=validators.Number(gte=0, lt=2**63), help=WORDS["seed"].help, show_default=False)
]
TraceName = Annotated[str, Parameter(help=WORDS["trace"].help, completer=traces)]
Workers = Annotated[
    str | None,
    Parameter(
        help="Processes that simulate at once (default: one per core, at most 4; 0: none but this); or ray, or the "
        "address of a Ray cluster."
    ),
]
Replicas = Annotated[
    int | None,
    Parameter(
        help="Pairs of runs that each number rests on, with times nudged (default: 5 or as many as decide, at most "
        "20; fewer of a large log; 1: the log as it is, without intervals)."
    ),
]
Scope = Annotated[
    str,
    Parameter(
        help="What intervals speak of: `log`, this log with times nudged; `like`, logs like it, with other jobs."
    ),
]
ClusterFile = Annotated[Path | None, Parameter(help=WORDS["cluster"].help)]


def _option(word_name: str, /, **more: Any) -> Parameter:  # noqa: ANN401
    word = WORDS[word_name]
    group = POLICY if word.noun == "policy" else SCENARIO
    return Parameter(help=word.help, group=group, show_default=False, completer=values_of(word), **more)


@Parameter(name="*")
@dataclass(frozen=True)
class ScenarioOptions:
    """The words of a scenario beside its trace; what is not given has the default that its help names."""

    order: Annotated[str | None, _option("order")] = None
    scheduler: Annotated[str | None, _option("scheduler")] = None
    backfill: Annotated[str | None, _option("backfill")] = None
    placement: Annotated[str | None, _option("placement")] = None
    estimate: Annotated[str | None, _option("estimate")] = None
    sharing: Annotated[str | None, _option("sharing")] = None
    speed: Annotated[str | None, _option("speed")] = None
    speed_classes: Annotated[str | None, _option("speed_classes")] = None
    preemption: Annotated[bool | None, _option("preemption", name=("--preemption", "--preempt"), negative=())] = None
    quota: Annotated[str | None, _option("quota")] = None
    recovery: Annotated[str | None, _option("recovery")] = None
    cycle: Annotated[str | None, _option("cycle")] = None
    weights: Annotated[str | None, _option("weights")] = None
    cluster: Annotated[str | None, _option("cluster")] = None
    nodes: Annotated[str | None, _option("nodes", allow_leading_hyphen=True)] = None
    load: Annotated[str | None, _option("load")] = None
    latency: Annotated[str | None, _option("latency")] = None
    events: Annotated[str | None, _option("events")] = None
    prices: Annotated[str | None, _option("prices")] = None
    seed: Annotated[str | None, _option("seed", allow_leading_hyphen=True)] = None
    until: Annotated[str | None, _option("until", allow_leading_hyphen=True)] = None
    window: Annotated[str | None, _option("window")] = None
    warm_up: Annotated[str | None, _option("warm_up")] = None
    censored: Annotated[str | None, _option("censored")] = None
    min_coverage: Annotated[str | None, _option("min_coverage")] = None

    def words(self) -> dict[str, Any]:
        """Return the words that were given."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}


DEFAULTS = ScenarioOptions()


def scenario_of(trace: str, options: ScenarioOptions, progress: "Progress", **usual: str) -> "fleetlab.Scenario":
    """Build a scenario of what the command line says; `usual` are defaults of this command."""
    scenario = fleetlab.Scenario.of(trace, **usual | options.words()).open(progress)
    _say_guesses(scenario.trace, trace, own_cluster=options.cluster is None)
    return scenario


def trace_of(name: str, cluster: Path | None, progress: "Progress") -> "fleetlab.Trace":
    """Open a saved or built-in trace, with another cluster if a file is given."""
    from dataclasses import replace

    from fleetlab.core.data import open_trace

    trace = open_trace(name, progress)
    _say_guesses(trace, name, own_cluster=cluster is None)
    return trace if cluster is None else replace(trace, cluster=fleetlab.Cluster.from_toml(cluster))


def _say_guesses(trace: "fleetlab.Trace", name: str, *, own_cluster: bool) -> None:
    """Say how a log was read that is no saved trace, and write the nodes that were guessed, for editing."""
    if trace.notes[:1] and trace.notes[0].startswith("read as: "):
        talk(trace.notes[0])
    if (
        own_cluster
        and trace.cluster is not None
        and trace.notes[1:2]
        and trace.notes[1].startswith("cluster guessed: ")
    ):
        file = Path(f"{Path(name).name.split('.')[0]}-cluster.toml")
        talk(trace.notes[1])
        if not file.exists():
            screen.may_write(file)
            screen.atomic_write(file, f"{trace.cluster.to_toml()}\n".encode())
        talk(f"  edit {file} and give it: --cluster {file}")


def cluster_of(trace: "fleetlab.Trace", name: str, option: str = "--cluster") -> "fleetlab.Cluster":
    """Return the cluster of a trace, or say which option gives it one."""
    if trace.cluster is None:
        raise fleetlab.TraceError(f"the trace has no cluster: {name}", hint=f"{option} FILE.toml gives it one")
    return trace.cluster


def split(text: str) -> list[str]:
    """Split a list at its commas.

    >>> split("fifo, sjf,,")
    ['fifo', 'sjf']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def seeds_of(text: str) -> list[int]:
    """Read FIRST-LAST, or seeds separated by commas.

    >>> seeds_of("3-5"), seeds_of("1,9")
    ([3, 4, 5], [1, 9])
    """
    first, dash, last = text.partition("-")
    try:
        seeds = list(range(int(first), int(last) + 1)) if dash else [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not 1 <= len(seeds) <= 10_000 or min(seeds) < 0:
        msg = f"--seeds is FIRST-LAST or a list separated by commas, not: `{text}`"
        raise fleetlab.WorkloadError(msg, hint="--seeds 42-51, or --seeds 1,2,3")
    return seeds


def with_trace_notes(result: Any, notes: Sequence[str]) -> Any:  # noqa: ANN401  any result with the field `notes`
    """Return a result with the notes of its trace after its own."""
    from dataclasses import replace

    return replace(result, notes=(*result.notes, *(f"trace: {note}" for note in notes)))


# -- help and messages ------------------------------------------------------------------------------------------------

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., None])
HELP = 80  # columns
FLAT = Parameter(name="*", negative=())  # the fields of a dataclass are options of the command


def version() -> str:
    """Return what `--version` prints, after whichever command it stands."""
    from importlib.metadata import version as of

    return of("fleetlab")


def add_commands(app: App, commands: App) -> None:
    """Make the commands of one app commands of another."""
    # Not `App.update`, which would put the `--help` of `commands` in the place of the app's.
    for name in commands:
        if name not in (*commands.help_flags, *commands.version_flags):
            app.command(commands[name], name=name)


def examples(*lines: str) -> str:
    """Return the end of a command's help; a long example goes on after a backslash, as a shell takes it."""
    return "Examples:\n\n" + "\n\n".join(_example(line) for line in lines)


def _example(line: str) -> str:
    r"""Break an example before an option.

    >>> print(_example("fleetlab read csv jobs.csv --map submit=created --map gpu_milli=cards*1000 --out mine"))
      fleetlab read csv jobs.csv --map submit=created --map gpu_milli=cards*1000 \
        --out mine
    """
    parts, text = re.split(r" (?=-)", line), ""
    row = "  " + parts[0]
    for part in parts[1:]:
        if len(row) + len(part) + 3 > HELP:
            text, row = f"{text}{row} \\\n", "   "
        row += f" {part}"
    return text + row


def of_verb(file: str) -> Callable[[Command], Command]:
    """Describe options in the words of the verb, where the command's own docstring does not.

    The verb's docstring is read from its file: to import it would take frames and compilers, which help needs not.
    """

    def fill(command: Command) -> Command:
        text = (Path(fleetlab.__file__).parent / file).read_text("utf-8")
        signature = re.search(rf'^def {command.__name__}\(.*?"""(.*?)"""', text, re.MULTILINE | re.DOTALL)
        own = inspect.cleandoc(command.__doc__ or "")
        own_parameters, verb = parameters_of(own), parameters_of(inspect.cleandoc(signature[1] if signature else ""))
        defaults = {name: p.default for name, p in inspect.signature(command).parameters.items()}
        shared = {name: verb[name] for name in defaults if name in verb and name not in own_parameters}
        lines = [f"{name}\n    {_without_default(text, defaults[name])}" for name, text in shared.items()]
        head = [] if own_parameters else ["", "Parameters", "----------"]
        command.__doc__ = "\n".join([own, *head, *lines])
        return command

    return fill


def parameters_of(docstring: str) -> dict[str, str]:
    r"""Return what a docstring says of each parameter.

    >>> parameters_of("Add.\n\nParameters\n----------\na, b\n    A\n    number.\n\nReturns\n-------\nint\n")
    {'a': 'A number.', 'b': 'A number.'}
    """
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", docstring, re.MULTILINE | re.DOTALL)
    entries = re.findall(r"^(\S.*)\n((?:[ ]+.*\n?|\n)+)", section[1] + "\n" if section else "", re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


def _without_default(text: str, default: object) -> str:
    """Leave out a default that help names by itself."""
    return text if shown_default(default) is None else re.sub(r" \(default: [^(),;]*\)(?=\.$)", "", text)


def shown_default(value: object) -> str | None:
    """Return a default as help names it; none where there is nothing to name: off, empty, or a word of Python's."""
    if value is None or value is False or value in ("", ()):
        return None
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def whole_numbers(_app: App, _commands: Sequence[str], arguments: ArgumentCollection) -> None:
    """Refuse a fraction where a whole number is expected; the parser would round it."""
    for argument in arguments:
        whole = int in (argument.hint, *get_args(argument.hint))  # int, and int | None
        for token in argument.tokens:
            if whole and _is_fraction(token.value):
                raise CoercionError(token=token, argument=argument, target_type=int)


def _is_fraction(word: str) -> bool:
    try:
        return "." in word and not float(word).is_integer()
    except ValueError:
        return False  # not a number at all: the parser says so


def pairs(words: Sequence[str], takes: str, of: Callable[[str], T], *, hint: str) -> list[tuple[str, T]]:
    """Read NAME=VALUE words; `of` converts a value, or raises ValueError.

    >>> pairs(["cpu=4", "gpu = 16"], "--price takes POOL=NUMBER", float, hint="")
    [('cpu', 4.0), ('gpu', 16.0)]
    """
    values = []
    for word in words:
        name, equals, value = word.partition("=")
        try:
            if not equals or not name.strip():
                raise ValueError
            values.append((name.strip(), of(value)))
        except ValueError:
            raise fleetlab.WorkloadError(f"{takes}, not: `{word}`", hint=hint) from None
    return values


def talk(line: str) -> None:
    """Print on stderr: stdout is for the answer, which may be one JSON object."""
    print(line, file=sys.stderr, flush=True)


def say_saved(out: Path) -> None:
    """Print where the result was saved."""
    talk(f"\nsaved in {out}")
