"""Tables of advice, profiles and predictions: how workloads would share a GPU."""

from __future__ import annotations

from fleetlab.core.catalog.tables.bench_columns import BENCH, SPENT
from fleetlab.core.catalog.tables.table import described

ERRORS = "speeds | mae ±_ | r2 ±_"
HELD_OUT = "models | speeds | median ±_ | mean ±_ | p90 ±_ | within"
ADVISE = described(
    "bench advise",
    {
        "choice": (
            "a mode",
            "mode | value ±_? | margin ±_? | verdict | more_blocks? | guarantees? | probes_kept? | probes? | "
            "probed_as?",
        ),
        "answers": ("a mode and a tenant, for notebooks", "{column}"),
        "beside": ("another number of a mode", "mode | tenant | value | of | value_low? | value_high?"),
        "flips": (
            "a mix that differs in one thing",
            "mix | changed | best | verdict | margin? | flips | kind? | tenants?",
        ),
        "settings": ("a setting", "for | setting | value | why"),
        "costs": ("a mode and a tenant", f"mode | tenant | unit | {SPENT}"),
        "guarantees": ("a guarantee", "guarantee | {mode}"),
        "isolation": ("a probe and a mode", "{column}"),
    },
    {
        **BENCH,
        "value": "value of the goal; of a setting, what to set; null: not measured",
        "margin": "by how much the best mode is better than this; null: it is the best",
        "verdict": "best, as good, worse, or predicted",
        "more_blocks": "repetitions that would decide; null: it is decided",
        "guarantees": "guarantees of the mode, for the goal isolation",
        "probes": "probes of isolation that were run under it",
        "probes_kept": "how many of them the neighbor survived unharmed",
        "probed_as": "the mode under which they were run",
        "of": "what the value is",
        "changed": "what differs from the mix that was asked for",
        "best": "the best mode for it",
        "flips": "whether that is another mode; null: it cannot be told",
        "for": "tenant or mode that the setting is for",
        "setting": "name of the setting",
        "guarantee": "what tenants are guaranteed",
        "{mode}": "what this mode gives",
        "{column}": "as its heading says",
    },
)
PROFILE = described(
    "bench profile, predict, compare",
    {
        "speeds": (
            "a workload beside a neighbor; of `compare`, a predicted speed",
            "mode | workload | neighbour? | speed? | low? | high? | kind? | mix? | size? | predicted? | 90 % low? | "
            "90 % high? | measured? | error? | inside?",
        ),
        "errors": (
            "a model on held-out speeds; of `compare`, a mode",
            f"mode | held_out? | among? | model? | tenants? | {ERRORS} | bias? | worst? | inside?",
        ),
        "intervals": ("a mode, of `--check`", "mode | speeds | inside | share | promised"),
        "several": (
            "a mode and a rule for several neighbors, of `--check`",
            "mode | works | rule | speeds | error | low | high | bias | worst",
        ),
        "predictions": (
            "a workload in a mix, of `predict`",
            "mode | mix | size | workload | predicted | 90 % low | 90 % high",
        ),
    },
    {
        **BENCH,
        "neighbour": "class beside it; null: alone",
        "kind": "measured, predicted or published; null: not said",
        "held_out": "what the model did not see: a pair, or a workload",
        "among": "which workloads: all, or those that fill the GPU",
        "errors: tenants": "number of tenants, or all",
        "worst": "largest error, with its sign",
        "share": "part inside",
        "promised": "part that the intervals promise",
        "speeds: inside": "whether the measured speed is inside the interval",
        "rule": "how several neighbors are put together",
        "works": "how many workloads on the GPU",
        "several: error": "mean absolute error of the speeds",
        "several: bias": "geometric mean of predicted over measured, less 1",
        "several: worst": "largest of predicted over measured, less 1",
    },
)
SLICES = described(
    "bench mig",
    {
        "slices": (
            "a workload on a slice; of `check`, measured beside predicted",
            "workload | profile | sms? | memory? | speed? | measured ±_? | predicted? | low | high | kind? | error? | "
            "inside?",
        ),
        "profiles": (
            "a profile, of `check` and `published`",
            "table? | formula? | profile | speeds | median_error? | mean_error? | worst_error? | bias? | inside? | "
            "{error}?",
        ),
        "workloads": (
            "a workload, of `check`",
            "workload | speeds | median_error | mean_error | worst_error | bias | inside",
        ),
        "neighbors": ("a workload beside others, of `check`", "workload | profile | beside_others | runs"),
        "tables": ("a published table and a formula, of `published`", f"table | formula | {HELD_OUT}"),
    },
    {
        **BENCH,
        "sms": "part of the SMs of the GPU",
        "memory": "part of the memory of the GPU",
        "error": "predicted over measured, less 1",
        "slices: inside": "whether the measured speed is inside the predicted interval",
        "median_error": "median of the absolute errors",
        "mean_error": "mean of the absolute errors",
        "worst_error": "largest absolute error",
        "beside_others": "rate beside tenants on other instances over that alone: 1 is full isolation",
        "runs": "how many measurements",
        "table": "publication",
        "formula": "how the speed is predicted",
        "models": "how many models of the publication",
        "median": "median of the errors",
        "mean": "mean of the errors",
        "p90": "90th percentile of the errors",
        "within": "part of the held-out speeds within the P90 error of the other models",
        "{error}": "as in `tables`",
    },
)
RESULTS = (ADVISE, PROFILE, SLICES)
