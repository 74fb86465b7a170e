"""Tables of single workloads, stress tests and probes of isolation."""

from __future__ import annotations

from fleetlab.core.catalog.tables.bench_columns import BENCH, STEPS
from fleetlab.core.catalog.tables.table import described

ISOLATION = described(
    "bench isolation",
    {
        "faults": (
            "a mode and a fault",
            "mode | fault | survived | wrong_results | slowed_to | longest_gap | new_process_after | error",
        ),
        "memory": (
            "a mode",
            "mode | held_mib | survived | refused | good_while_full | good_after | new_process_while_full | "
            "new_process_after",
        ),
        "performance": ("a mode and a stressor", "mode | stressor | duty | speed | max_ms | wrong"),
        "information": ("a mode and a way to free memory", "mode | freed_by | written_mib | read_mib | found"),
        "failed": ("a probe that failed", "cell | detail"),
    },
    {
        **BENCH,
        "fault": "what the other process does",
        "survived": "whether the neighbor survives",
        "wrong_results": "wrong results of the neighbor",
        "slowed_to": "rate of the neighbor during a hang over that before; null: no hang",
        "longest_gap": ("longest time without a result of the neighbor; null: not measured", "s"),
        "new_process_after": ("when a new process can open the GPU, from the event on", "s"),
        "error": "error of the neighbor; null: none",
        "held_mib": ("memory that the other process holds", "MiB"),
        "refused": "allocations of the neighbor that were refused",
        "good_while_full": "its results that were right meanwhile",
        "good_after": "whether its results are right afterwards",
        "new_process_while_full": "whether a new process can work meanwhile",
        "stressor": "what the other process runs",
        "duty": "part of the time that it runs",
        "speed": "rate of the neighbor over that alone",
        "max_ms": ("its longest step", "ms"),
        "wrong": "its wrong results",
        "freed_by": "how the memory was freed",
        "written_mib": ("memory that one process wrote", "MiB"),
        "read_mib": ("memory that the next process read", "MiB"),
        "found": "part of the writing that it found",
    },
)
STRESS = described(
    "bench stress",
    {
        "answers": ("a mode", "mode | good | breaks_at | why"),
        "steps": (
            "a number of tenants",
            "mode | tenants | throughput | low | high | unit | progress | worst | best | p95_ms | p95_low | p95_high "
            "| memory_mib | watts | cores | failures | good",
        ),
    },
    {
        **BENCH,
        "good": "whether the goals are met",
        "answers: good": "most tenants that meet the goals",
        "breaks_at": "first number that does not; null: none",
        "answers: why": "which goal is missed; null: none",
        "throughput": "work a second of all tenants; null: none ran",
        "progress": "mean progress of the tenants; null: the rate alone is not known",
        "best": "largest progress of a tenant",
        "cores": "CPU cores in use",
        "failures": "tenants that failed",
    },
)
WORKLOAD = described(
    "bench workload",
    {
        "epochs": (
            "an epoch",
            "epoch | steps | loss | accuracy? | accuracy_low? | accuracy_high? | test_accuracy? | test_accuracy_low? | "
            "test_accuracy_high? | rate | seconds",
        ),
        "throughput": ("a batch size", "batch | how | rate ±_ | busy | joules_an_item | memory_mib"),
        "latency": ("a batch size", f"batch | steps | {STEPS} | short"),
    },
    {
        **BENCH,
        "epoch": "number of the epoch",
        "steps": "training steps, or steps in the window",
        "loss": "mean loss",
        "accuracy": "part of the training data that is right",
        "test_accuracy": "part of the test data that is right",
        "seconds": ("how long it took", "s"),
        "batch": "items of a step",
        "how": "as a CUDA graph, compiled or eager",
        "busy": "part of the window in which a step ran",
    },
)
RESULTS = (ISOLATION, STRESS, WORKLOAD)
