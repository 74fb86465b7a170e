"""What the interface answers, by name and type: the code is checked against it, and its description is made from it."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class Refusal(TypedDict):
    """What went wrong, and what to do next."""

    error: str
    hint: str | None


class Number(TypedDict):
    """A number with its interval, null where there is none, and the words for both, in a unit that reads well."""

    value: float | None
    low: float | None
    high: float | None
    words: str


class Row(TypedDict):
    """One metric of the baseline and of now; the change is paired by time."""

    metric: str
    unit: str
    better: Literal["less", "more"] | None
    base: Number
    now: Number
    change: Number
    verdict: Literal["less", "more", "unclear", "same", "unknown"]


class Reason(TypedDict):
    """Seconds that a job waits on average for one reason; all reasons together are the mean wait."""

    reason: str
    meaning: str
    base: Number
    now: Number
    change: Number


class Held(TypedDict):
    """The share of a GPU type's time that was held while jobs arrived: counted, not estimated."""

    gpu_type: str
    base_nodes: int
    nodes: int
    base: float | None
    now: float | None


class Part(TypedDict):
    """The first jobs, which both sides of an answer played: the whole is coming. Intervals are of this part alone."""

    jobs: int
    of_jobs: int
    days: float
    of_days: float
    words: str


class Answer(TypedDict):
    """A scenario beside the baseline; of the first jobs alone where there is a `part`."""

    link: str
    title: str
    base_title: str
    findings: list[str]
    rows: list[Row]
    ledger: list[Reason]
    types: list[Held]
    notes: list[str]
    seconds: float
    cpu_seconds: float
    part: Part | None
    html: str


class Estimate(TypedDict):
    """A number of a result, as `--json` prints it."""

    metric: str
    value: float | None
    low: float | None
    high: float | None
    unit: str


class NodeType(TypedDict):
    """Nodes and GPUs of one GPU type."""

    gpu_type: str
    nodes: int
    gpus: int


class Opened(TypedDict):
    """What is in a trace."""

    trace: str
    source: str
    summary: list[Estimate]
    types: list[NodeType]
    notes: list[str]


class Described(TypedDict):
    """A trace as the papers describe theirs: ready to be shown, and as `fleetlab describe --json` prints it."""

    trace: str
    html: str
    result: dict[str, Any]


class Read(TypedDict):
    """A log that was read, and under which name its trace can be chosen."""

    trace: str
    jobs: int
    rejects: int


class Progress(TypedDict):
    """What is being done, how much of it, and which share of all, where that is known.

    Of a run that takes long, the answer for the first jobs; of one whose figures are not drawn yet, that without them.
    """

    what: str
    done: int
    share: float | None
    answer: NotRequired[Answer]


class Operation(TypedDict):
    """Work that was asked for; with its result, or what went wrong, once it is over."""

    operation: str
    kind: Literal["open", "describe", "run", "read"]
    status: Literal["going", "done", "failed", "cancelled"]
    ahead: int
    seconds: float
    progress: Progress | None
    result: NotRequired[Answer | Opened | Described | Read]
    refusal: NotRequired[Refusal]


class OperationAsked(TypedDict):
    """What to do. `run` takes `link`, `open` and `describe` take `trace`, `read` takes `upload` and `format`.

    `instead` names an operation that this one overtakes: nobody waits for that any more.
    """

    kind: Literal["open", "describe", "run", "read"]
    link: NotRequired[str]
    trace: NotRequired[str]
    upload: NotRequired[str]
    format: NotRequired[str]
    zone: NotRequired[str | None]
    map: NotRequired[dict[str, str] | None]
    instead: NotRequired[str]


class Uploaded(TypedDict):
    """A file that was taken in; further files of the same log are sent with the same upload."""

    upload: str
    files: int
    bytes: int


class Removed(TypedDict):
    """Nothing of it is left."""

    upload: str


class Choice(TypedDict):
    """A word, and what it means."""

    name: str
    meaning: str


class TraceChoice(TypedDict):
    """A trace that can be chosen."""

    trace: str
    title: str


class FormatChoice(TypedDict):
    """A kind of log that can be sent."""

    name: str
    title: str
    expects: str
    options: list[str]


class Limits(TypedDict):
    """What the page takes on."""

    upload_bytes: int
    seconds: float
    workers: int


class About(TypedDict):
    """All that can be chosen."""

    version: str
    traces: list[TraceChoice]
    rules: dict[str, list[Choice]]
    by_estimate: list[str]
    formats: list[FormatChoice]
    limits: Limits
