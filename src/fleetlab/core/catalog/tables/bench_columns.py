"""Columns that the tables of `bench` share."""

from __future__ import annotations

from fleetlab.core.catalog.tables.table import Meanings

STEPS = "p50_ms | p50_low | p50_high | p95_ms | p95_low | p95_high | p99_ms | p99_low | p99_high"
SPENT = "gpu_s_per_1000 ±_ | joules_an_item ±_ | cost_per_1000 ±_?"

PERCENTILE: Meanings = {
    f"{p}_{end}": (text, "ms")
    for p, name in (("p50", "median"), ("p95", "95th percentile"), ("p99", "99th percentile"))
    for end, text in (
        ("ms", f"{name} of the step times or latencies; null: too few for it"),
        ("low", "lower end of its 95 % interval"),
        ("high", "upper end of its 95 % interval"),
    )
}
BENCH: Meanings = {
    **PERCENTILE,
    **{
        f"{of}_{p}_{end}": (f"{name}, {text}; infinite: it did not come", "ms")
        for of, name in (("ttft", "time to first token from the scheduled time"), ("tpot", "time per output token"))
        for p in ("p50", "p95")
        for end, text in (
            ("ms", f"{p.upper()}"),
            ("low", f"lower end of the 95 % interval of {p.upper()}"),
            ("high", f"upper end of the 95 % interval of {p.upper()}"),
        )
    },
    "stage": "part of the plan: mode, limits",
    "mode": "[sharing mode](names.md#sharing-modes), with its limits",
    "tenant": "workload, with its limits where it has some",
    "beside": "its neighbors; empty: none",
    "mix": "all tenants of a cell",
    "tenants": "number of tenants",
    "blocks": "repetitions",
    "unit": "what the rate counts",
    "rate": "work a second",
    "sms": "streaming multiprocessors; null: not limited",
    "starved": "part of the steps that found the GPU idle",
    "cpu": "CPU cores in use",
    "memory_mib": ("GPU memory; null: not measured", "MiB"),
    "watts": ("mean power, by the energy counter; null: no counter", "W"),
    "sm_mhz": ("mean clock of the SMs; null: no GPU", "MHz"),
    "throttled": "whether there was a reason of throttling; null: no GPU",
    "progress": "rate over the rate alone on the whole GPU",
    "stp": ("system throughput: sum of the progress of all tenants; null: the rate alone is not known", "GPUs"),
    "antt": "average normalized turnaround time: mean of 1 over progress",
    "jain": "Jain's index of the progress: 1 if all have the same",
    "worst": "least progress of a tenant",
    "unfairness": "largest over least progress",
    "energy_times": "energy of the work over that of the same work alone; null: no counter",
    "n": "how many values",
    "short": "for which percentiles there are too few values",
    "offered": ("requests scheduled a second", "1/s"),
    "answered": ("requests answered a second", "1/s"),
    "lag_p99_ms": ("how late the generator was, P99; null: not measured", "ms"),
    "unsent": "requests that were never sent",
    "keeps_up": "whether nearly all that is offered is answered; null: the window was too short to tell",
    "valid": "whether the generator was on time",
    "servers": "copies of the server",
    "requests": "requests in all",
    "unfinished": "requests that the end of the window cut off",
    "refused": "requests that the server refused",
    "itl_p99_ms": ("99th percentile of the time between two tokens", "ms"),
    "goodput": "part of the requests that meet both goals, without those that were cut off while they met them",
    "goodput_least": "the same, if all of those had missed",
    "goodput_most": "the same, if all of those had met",
    "good_per_s": ("requests a second of each server that meet both goals", "1/s"),
    "tokens_per_s": ("tokens a second of each server", "1/s"),
    "running": "mean of the requests that are served at once",
    "waiting_most": "most requests that waited at once",
    "kv_most": "most of the key-value cache in use, of all",
    "cell": "kind of notebook cell; of failures, name of the measured cell",
    "users": "users at once",
    "each_ms": ("geometric mean of the time to answer; of a training, per step", "ms"),
    "slowdown": "the same over one user alone; null: that was not measured",
    "gpu_s_per_1000": ("GPU seconds of 1000 items", "s"),
    "joules_an_item": ("energy of an item; null: no counter", "J"),
    "cost_per_1000": "price of 1000 items, with `--price`",
    **{
        f"{short}_{end}": f"{side} end of the 95 % interval of `{of}`"
        for short, of in (("gpu_s", "gpu_s_per_1000"), ("joules", "joules_an_item"), ("cost", "cost_per_1000"))
        for end, side in (("low", "lower"), ("high", "upper"))
    },
    "check": "what must hold of a valid measurement",
    "checked": "how many cells or tenants were checked",
    "failed": "how many do not hold",
    "passed": "whether all hold; null: it could not be checked",
    "checks: worst": "the worst of them, in words",
    "seat": "which tenant of the cell",
    "copy": "number of its copy",
    "kind": "kind of the failure, of the mix, or of the number: measured, predicted, published",
    "detail": "the error",
    "workload": "workload or class of work",
    "profile": "MIG profile",
    "speed": "progress over progress on a whole GPU of its own",
    "speeds": "how many speeds are compared",
    "mae": "mean absolute error of the speeds",
    "r2": "R² against the mean of the measured speeds",
    "inside": "how many are inside their interval",
    "predicted": "predicted speed",
    "measured": "measured speed",
    "error": "predicted less measured",
    "size": "number of tenants",
    "90 % low": "lower end of the 90 % prediction interval",
    "90 % high": "upper end of the 90 % prediction interval",
    "bias": "mean error, with its sign",
    "low": "lower end of the 95 % interval of the column before it; null: too few values for an interval",
}
