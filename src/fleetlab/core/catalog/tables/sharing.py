"""Tables of `share`, `doctor`, `bench monitor` and `bench load`: a machine, its GPUs, and a server under load."""

from __future__ import annotations

from fleetlab.core.catalog.tables.table import Meanings, described

GPU_FIELDS = (
    "index | name | uuid | driver | memory_mib | used_mib | compute_mode | persistence | mig | mig_pending | "
    "time_slice | processes"
)
GPU: Meanings = {
    "gpu": "index of the GPU, as in nvidia-smi",
    "uuid": "the driver's own id of the GPU or MIG device",
    "name": "name of the GPU, process or variable",
    "memory_mib": ("memory; of a process, the most that it held", "MiB"),
    "pid": "process id",
}
STATUS = described(
    "share status",
    {
        "gpus": ("a GPU", GPU_FIELDS),
        "processes": ("a process on a GPU", "uuid | pid | name | memory_mib"),
        "mps": ("an MPS daemon", "pipe | whose | answers | percent | memory | servers | clients"),
        "modes": ("a GPU and a sharing mode", "gpu | name | possible | why"),
    },
    {
        **GPU,
        "index": "index of the GPU, as in nvidia-smi",
        "driver": "version of the driver",
        "used_mib": ("memory in use", "MiB"),
        "compute_mode": "who may use it: Default, Exclusive_Process or Prohibited",
        "persistence": "whether persistence mode is on",
        "mig": "whether MIG mode is on; null: it has none",
        "mig_pending": "MIG mode after the next reset; null: it has none",
        "time_slice": "time slice of the driver; null: not known",
        "processes": "how many processes are on it",
        "pipe": "its pipe directory",
        "whose": "who started it",
        "answers": "whether it answers",
        "percent": ("default active thread percentage; null: no limit", "%"),
        "memory": "default memory limit of a client; null: none",
        "servers": "process ids of its servers",
        "clients": "process ids of their clients",
        "modes: gpu": "index of the GPU; null: the mode is of no one GPU",
        "modes: name": "[sharing mode](names.md#sharing-modes)",
        "possible": "whether it can be used now",
        "modes: why": "why not; empty: it can",
    },
)
MIG = described(
    "share mig",
    {
        "devices": ("a MIG device that `apply --really` made", "profile | uuid"),
        "do": ("a command that makes the layout", "command"),
        "undo": ("a command that undoes it", "command"),
        "{model} (profiles)": (
            "a profile: of `profiles`; the table has the name of the GPU",
            "profile | compute_slices | memory_slices | sms | memory_gib | most | starts",
        ),
        "{model} (layouts)": (
            "a layout: of `layouts`; the table has the name of the GPU",
            "layout | instances | ways | sms | compute_left | memory_left",
        ),
        "{model} (check)": (
            "an instance: of `check`; the table has the name of the GPU",
            "profile | start | size | sms | memory_gib",
        ),
    },
    {
        **GPU,
        "command": "the command line",
        "profile": "name of the MIG profile, such as 1g.18gb",
        "compute_slices": "compute slices that an instance takes",
        "memory_slices": "memory slices that an instance takes",
        "sms": "streaming multiprocessors; of a layout, of all its instances",
        "memory_gib": ("memory of an instance", "GiB"),
        "most": "how many fit on a GPU",
        "starts": "memory slices at which an instance may start",
        "layout": "its profiles",
        "instances": "how many instances it has",
        "ways": "number of placements of the same profiles",
        "compute_left": "compute slices that are not used",
        "memory_left": "memory slices that are not used",
        "start": "first memory slice of the instance",
        "size": "memory slices of the instance",
    },
)
CONFIGURATION = described(
    "share start, emit, read, lint",
    {
        "environment": ("a variable of MPS clients: of `start`", "name | value"),
        "lost": ("a part that the stack cannot express: of `emit`", "part | requested | kept | why"),
        "guarantees": ("a guarantee: of `emit`", "guarantee | requested | kept | lost | why | measured"),
        "file": ("the file: of `emit`", "stack | text"),
        "spec": ("the spec: of `read`", "format | mode | toml"),
        "findings": ("a problem: of `lint`", "code | severity | where | what | do"),
    },
    {
        **GPU,
        "value": "its value",
        "part": "part of the spec",
        "requested": "what the spec asks for",
        "kept": "what the stack gives",
        "guarantee": "what tenants are guaranteed: memory, compute, faults and the like",
        "lost": "whether the stack gives less",
        "guarantees: why": "why it is lost; null: it is not",
        "measured": "the measurement that tells, where there is one",
        "stack": "stack that the file is for",
        "text": "its text",
        "format": "format of the file",
        "mode": "[sharing mode](names.md#sharing-modes)",
        "toml": "the spec in TOML",
        "code": "code of the rule",
        "severity": "error, warning or note",
        "where": "path in the file",
        "what": "what is wrong",
        "do": "what to do",
    },
)
DOCTOR = described(
    "doctor",
    {
        "commands": ("commands that need the same", "commands | runs | lacks"),
        "machine": ("a fact", "what | value"),
        "GPUs": ("a GPU", "GPU | name? | driver? | memory_mib?"),
        "extras": ("an extra of the package", "extra | for | installed | missing"),
        "programs": ("a program", "program | found | for"),
    },
    {
        **GPU,
        "commands": "names of the commands",
        "runs": "yes, no, or what is left without what lacks",
        "lacks": "extras, programs or devices that are missing",
        "value": "its value",
        "GPU": "index of the GPU, as in nvidia-smi",
        "driver": "version of the driver",
        "extra": "its name, for `pip install`",
        "for": "what it is for",
        "installed": "packages of it that are installed, with their versions",
        "missing": "packages of it that are not",
        "program": "name of the program",
        "found": "whether it is on the PATH",
    },
)
MONITOR = described(
    "bench monitor",
    {
        "gpus": (
            "a GPU",
            "gpu | samples | seconds | util | low | high | used_mib | celsius | joules | watts | sm_mhz_low | "
            "throttled",
        ),
        "processes": ("a process on a GPU", "gpu | pid | name | kind | samples | memory_mib | util"),
    },
    {
        **GPU,
        "samples": "samples of it",
        "seconds": ("first sample to last", "s"),
        "util": ("mean of the time in which a kernel ran; null: not measured", "%"),
        "used_mib": ("most memory in use; null: not measured", "MiB"),
        "celsius": ("highest temperature; null: not measured", "°C"),
        "joules": ("energy, by the counter; null: the GPU has none", "J"),
        "watts": ("energy over time; null: the GPU has no counter", "W"),
        "sm_mhz_low": ("lowest clock of the SMs; null: not measured", "MHz"),
        "throttled": "part of the samples with a reason of throttling; null: not measured",
        "kind": "compute, graphics, or MPS client",
    },
)
LOAD = described(
    "bench load",
    {
        "requests": ("what became of requests", "requests | count | percent"),
        "latency": ("a kind of latency and a percentile", "of | requests | percentile | ms | low | high | why"),
        "tokens": ("a token time and a percentile", "metric | n | percentile | ms | low | high | why"),
        "timeline": ("a second", "second | offered | answered | p50_ms | p99_ms"),
        "how": ("a fact of the run", "how | it_was"),
        "trials": (
            "a rate that was tried, of a search",
            "rate | verdict | requests | ms | low | high | lost_percent | lag_ms | stretches | why",
        ),
    },
    {
        "requests": "how many requests",
        "requests: requests": "answered, refused, failed and the like",
        "count": "how many",
        "percent": ("the same, of those offered", "%"),
        "of": "answers, refusals or other failures",
        "percentile": "P50 and the like",
        "ms": ("the latency at it; null: too few requests", "ms"),
        "why": "why there is none, or no interval; null: there is",
        "metric": "time to first token, time per output token, or time between tokens",
        "n": "how many values",
        "second": ("second of the run", "s"),
        "offered": "requests scheduled in it",
        "answered": "requests answered in it",
        "p50_ms": ("median latency of these; null: none", "ms"),
        "p99_ms": ("99th percentile of these; null: none", "ms"),
        "how": "name of the fact",
        "it_was": "what it was",
        "rate": ("offered rate", "1/s"),
        "verdict": "whether the goal was met at this rate",
        "lost_percent": ("requests refused, failed or not sent", "%"),
        "lag_ms": ("how late the generator was, P99", "ms"),
        "stretches": "how often the run was made longer to decide",
    },
)
RESULTS = (STATUS, MIG, CONFIGURATION, DOCTOR, MONITOR, LOAD)
