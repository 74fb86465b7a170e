"""The JSON that the HTTP interface takes and returns; its OpenAPI description is made from these types."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class ErrorMessage(TypedDict):
    """What is wrong, and what to do about it."""

    error: str
    hint: str | None


class Quantity(TypedDict):
    """A number with its 95 % interval, null where there is none, and both as text in a readable unit."""

    value: float | None
    low: float | None
    high: float | None
    text: str


class MetricRow(TypedDict):
    """One metric of the baseline and of the scenario, and their paired difference."""

    metric: str
    unit: str
    better: Literal["lower", "higher"] | None
    base: Quantity
    now: Quantity
    change: Quantity
    verdict: Literal["lower", "higher", "same", "not significant", "unknown"]


class ReasonRow(TypedDict):
    """Mean wait per job that is charged to one reason; all reasons add up to the mean wait."""

    reason: str
    meaning: str
    base: Quantity
    now: Quantity
    change: Quantity


class AllocationRow(TypedDict):
    """GPU allocation of one GPU type while jobs arrive, from 0 to 1."""

    gpu_type: str
    base_nodes: int
    nodes: int
    base: float | None
    now: float | None


class RecordedWait(TypedDict):
    """The mean wait that the log recorded beside that of the same jobs in the baseline, and why they differ."""

    jobs: int
    recorded: Quantity
    simulated: Quantity
    why: str


class RunComparison(TypedDict):
    """A scenario compared with the baseline, on the jobs that completed in both.

    `submitted` says which jobs those are of, where only a part of them is measured.
    """

    link: str
    title: str
    base_title: str
    population: str
    submitted: str
    headline: str
    findings: list[str]
    rows: list[MetricRow]
    wait_reasons: list[ReasonRow]
    allocation: list[AllocationRow]
    notes: list[str]
    seconds: float
    cpu_seconds: float
    recorded: RecordedWait | None
    html: str


class TimelinePanels(TypedDict):
    """Jobs submitted in each bin of time, and the mean number of jobs that wait in it, by reason."""

    bins: int
    arrivals: list[int]
    waiting: dict[str, list[float]]


class TimelineAbout(TypedDict):
    """The rows, levels and colors of a timeline and its panels; whether there is a baseline to compare with."""

    about: dict[str, Any]
    compared: bool


class TimelineQueue(TypedDict):
    """The panels by reason, what reasons mean, and the planes that tiles have."""

    panels: TimelinePanels
    meanings: dict[str, str]
    planes: list[str]


class TimelineTile(TypedDict):
    """Planes of one tile by name, [rows, bins] of bytes: zlib in base64; null: all 0."""

    planes: dict[str, str | None]


class TimelineJob(TypedDict):
    """A job that runs at a point: what it asks for, and its times in seconds from the first submission."""

    job: int
    name: NotRequired[str | None]
    user: str | None
    submitted: float
    instances: int
    gpus: float
    begin: float
    end: float


class TimelineJobs(TypedDict):
    """How many jobs run at a point, and a few of them."""

    count: int
    jobs: list[TimelineJob]


class EstimateMessage(TypedDict):
    """A number of a result, as `--json` prints it."""

    metric: str
    value: float | None
    low: float | None
    high: float | None
    unit: str


class NodeMenu(TypedDict):
    """Nodes and GPUs of one GPU type, or the nodes without a GPU; `nodes` of an address edits them by this name."""

    name: str
    nodes: int
    gpus: int


class TraceSummary(TypedDict):
    """The contents of a trace."""

    trace: str
    title: str
    source: str
    summary: list[EstimateMessage]
    nodes: list[NodeMenu]
    estimates: list[str]
    notes: list[str]


class TraceDescription(TypedDict):
    """The description of a trace: as HTML, and as `fleetlab describe --json` prints it."""

    trace: str
    html: str
    result: dict[str, Any]


class AdviceRow(TypedDict):
    """One recommendation: its effect on the mean wait, what it requires and costs, and the words that try it.

    `tier` is 0 for the model alone, 1 for a setting, 2 for changes of jobs, 3 for parts without a price, 4 for nodes.
    """

    action: str
    verdict: str
    effect: Quantity
    requires: str
    tier: int
    cost: float
    cost_text: str
    words: dict[str, str] | None


class Advice(TypedDict):
    """What one study recommends, the cheapest first, and what it found."""

    study: str
    findings: list[str]
    rows: list[AdviceRow]
    notes: list[str]


class FoundJob(TypedDict):
    """A job that was found: `words` mean it alone; its wait is simulated, in seconds, and `recorded` by the log."""

    words: str
    job: int
    name: str | None
    user: str | None
    group: str | None
    gpus: float
    wait: float
    recorded: float | None
    reason: str


class JobStory(TypedDict):
    """The story of one job; or the jobs that were found, where several are meant.

    `strip` is its life as HTML, `meanings` says how others held it up, `result` is as `explain --json` prints it.
    """

    job: str
    found: list[FoundJob]
    findings: list[str]
    strip: str
    meanings: dict[str, str]
    result: dict[str, Any]


class LogPreview(TypedDict):
    """An uploaded log before it is read: the formats that it looks like, its first rows, and the map of its columns.

    `spelled` has the columns as expressions name them, `targets` the columns of a workload that can be mapped.
    """

    formats: list[str]
    header: list[str]
    rows: list[list[str]]
    spelled: list[str]
    map: dict[str, str]
    targets: list[str]
    note: str


class RejectedRow(TypedDict):
    """A row of a log that was rejected, and why."""

    file: str
    line: int
    reason: str


class RejectReason(TypedDict):
    """How many rows were rejected for one reason."""

    reason: str
    rows: int


class LogSummary(TypedDict):
    """An uploaded log that was read, the name of its trace, and its notes: first which column became which.

    `reject_reasons` counts the rejected rows by reason, `rejected` lists the first of them.
    """

    trace: str
    title: str
    jobs: int
    rejects: int
    reject_reasons: list[RejectReason]
    rejected: list[RejectedRow]
    notes: list[str]


class ProgressMessage(TypedDict):
    """What is being counted, how many are done, and which fraction of all, where that is known.

    `answer` is there once numbers are known, before the figures are drawn.
    """

    what: str
    count: int
    fraction: float | None
    answer: NotRequired[RunComparison]


class OperationMessage(TypedDict):
    """The state of an operation; with its result or its error once it is over. `ahead` counts requests before it.

    `expected` is how many seconds such work takes, by what it took before.
    """

    operation: str
    kind: Literal["open", "describe", "run", "advise", "explain", "preview", "read"]
    status: Literal["running", "done", "failed", "cancelled"]
    ahead: int
    seconds: float
    expected: float | None
    progress: ProgressMessage | None
    result: NotRequired[RunComparison | TraceSummary | TraceDescription | Advice | JobStory | LogPreview | LogSummary]
    error: NotRequired[ErrorMessage]


class OperationRequest(TypedDict):
    """What to do. `run` needs `link`; `open` and `describe` need `trace`; `preview` and `read` need `upload`.

    `read` also needs `format`; `advise` needs `link` and `study`, and takes `goal`, such as `p90 wait < 10m`.

    `explain` needs `link` and takes `job`, by whose words jobs are found (without: the longest waits), and `what_if`:
    whether to simulate what would have started the job sooner.

    `replaces` names an operation whose result is no longer needed.
    """

    kind: Literal["open", "describe", "run", "advise", "explain", "preview", "read"]
    link: NotRequired[str]
    study: NotRequired[Literal["diagnose", "capacity", "calibrate"]]
    goal: NotRequired[str]
    job: NotRequired[str]
    what_if: NotRequired[bool]
    trace: NotRequired[str]
    upload: NotRequired[str]
    format: NotRequired[str]
    zone: NotRequired[str | None]
    map: NotRequired[dict[str, str] | None]
    replaces: NotRequired[str]


class UploadMessage(TypedDict):
    """An uploaded file; further files of the same log are sent with the same upload."""

    upload: str
    files: int
    bytes: int


class UploadRemoved(TypedDict):
    """An upload that was deleted."""

    upload: str


class Choice(TypedDict):
    """A value of an option, and its meaning."""

    name: str
    meaning: str


class OptionMessage(TypedDict):
    """A word of a scenario: its help, its default as text, and its values where they are built in."""

    name: str
    kind: Literal["choice", "flag", "text"]
    help: str
    default: str
    example: str
    choices: list[Choice]


class TraceChoice(TypedDict):
    """A trace that can be chosen."""

    trace: str
    title: str


class FormatChoice(TypedDict):
    """A log format that can be uploaded."""

    name: str
    title: str
    expects: str
    options: list[str]


class PageLimits(TypedDict):
    """The largest upload, the longest computation, and the number of processes."""

    upload_bytes: int
    seconds: float
    workers: int


class PageOptions(TypedDict):
    """Everything that can be chosen on the page. `uses_estimate` lists the orders and backfill rules that do.

    `compiling` lists the rules that are still being compiled: their first use takes longer.
    """

    version: str
    traces: list[TraceChoice]
    options: list[OptionMessage]
    uses_estimate: list[str]
    formats: list[FormatChoice]
    compiling: list[str]
    limits: PageLimits
