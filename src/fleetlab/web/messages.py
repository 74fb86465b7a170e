"""The JSON of the HTTP interface, and its errors; the OpenAPI description is made from these types."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from fleetlab.core import FleetlabError

STUDIES = ("diagnose", "capacity", "calibrate")  # that the page asks for advice
GOAL = "p90 wait < 10m"  # that it proposes


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
    """One metric of the baseline and of the scenario, and their paired difference: means over replicas.

    `verdict` is lower or higher where neither is better.
    """

    metric: str
    unit: str
    better: Literal["lower", "higher"] | None
    base: Quantity
    now: Quantity
    change: Quantity
    verdict: Literal["better", "worse", "lower", "higher", "no difference", "not decided"]


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
    """The mean wait that the log recorded beside that of the same jobs in the baseline.

    `why` is empty where they are within a quarter of each other.
    """

    jobs: int
    recorded: Quantity
    simulated: Quantity
    why: str


class SettingRow(TypedDict):
    """A setting of the site's scheduler that a scenario changes."""

    name: str
    was: str
    becomes: str


class SimulatedScheduler(TypedDict):
    """What schedules the jobs of a scenario; `replaces`: the scheduler of the site, where it is not simulated.

    `error` is by how much a simulated mean wait may be off, `accuracy` what recorded runs say of it; empty: none have.
    """

    title: str
    replaces: str
    error: str
    accuracy: str
    settings: list[SettingRow]
    notes: list[str]


class RunComparison(TypedDict):
    """A scenario compared with the baseline, on the jobs that completed in both.

    `submitted` says which jobs those are of, where only a part of them is measured. `rows` rest on so many `replicas`
    of `scope`, of those `planned` until verdicts are looked at next; 1 is the log as it is, which all else is of.
    """

    link: str
    title: str
    base_title: str
    population: str
    scope: str
    replicas: int
    planned: int
    submitted: str
    headline: str
    findings: list[str]
    rows: list[MetricRow]
    wait_reasons: list[ReasonRow]
    allocation: list[AllocationRow]
    scheduler: SimulatedScheduler
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
    """The panels by reason, what reasons mean, the planes that tiles have, and the labels of their colors."""

    panels: TimelinePanels
    meanings: dict[str, str]
    planes: list[str]
    labels: dict[str, list[str]]


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


class QuotaRow(TypedDict):
    """What a queue has of one resource, by the names of its scheduler; null: no limit."""

    queue: str
    parent: str
    flavor: str
    resource: str
    amounts: dict[str, float | None]


class SchedulerChange(TypedDict):
    """Another setting of the site's scheduler that may help, and the word of a scenario that tries it."""

    title: str
    action: str
    scheduler: str


class SiteScheduler(TypedDict):
    """How the cluster of a trace is configured: `lines` and `quotas` can be edited."""

    name: str
    title: str
    lines: str
    quotas: list[QuotaRow]
    changes: list[SchedulerChange]


class RecordedRun(TypedDict):
    """GPUs that jobs held and jobs that waited, as the log recorded them: means of bins of `width` seconds."""

    width: float
    gpus: list[float]
    waiting: list[float]


class TraceSummary(TypedDict):
    """The contents of a trace; `assumed` says which nodes were assumed, `warnings` what is wrong with it."""

    trace: str
    title: str
    source: str
    summary: list[EstimateMessage]
    nodes: list[NodeMenu]
    estimates: list[str]
    scheduler: SiteScheduler | None
    synthetic: bool
    assumed: str
    warnings: list[str]
    recorded: RecordedRun | None
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
    kind: Literal["open", "describe", "run", "refine", "advise", "explain", "preview", "read"]
    status: Literal["running", "done", "failed", "cancelled"]
    ahead: int
    seconds: float
    expected: float | None
    progress: ProgressMessage | None
    result: NotRequired[RunComparison | TraceSummary | TraceDescription | Advice | JobStory | LogPreview | LogSummary]
    error: NotRequired[ErrorMessage]


class OperationRequest(TypedDict):
    """What to do. `run` needs `link`, and so does `refine`, which compares by replicas.

    `open` and `describe` need `trace`; `preview` and `read` need `upload`.

    `read` also needs `format`; `advise` needs `link` and `study`, and takes `goal`, such as `p90 wait < 10m`.

    `explain` needs `link` and takes `job`, by whose words jobs are found (without: the longest waits), and `what_if`:
    whether to simulate what would have started the job sooner.

    `replaces` names an operation whose result is no longer needed.
    """

    kind: Literal["open", "describe", "run", "refine", "advise", "explain", "preview", "read"]
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


# -- errors with a status of their own; all others of the package are 400 --------------------------------------------


class NotFound(FleetlabError):
    """There is no such trace, upload or operation."""

    status = 404


class TooLarge(FleetlabError):
    """An upload is larger than the page takes."""

    status = 413


class TooManyRequests(FleetlabError):
    """The queue is full."""

    status = 429


class WorkerEnded(FleetlabError):
    """The process that worked on a request has ended, and so has the one that tried again."""

    status = 503


class TookTooLong(FleetlabError):
    """The work was stopped at its time limit."""

    status = 504
