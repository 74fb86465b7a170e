"""Tables of suites and their analysis: how workloads share a GPU, measured."""

from __future__ import annotations

from fleetlab.core.catalog.tables.bench_columns import BENCH, SPENT, STEPS
from fleetlab.core.catalog.tables.table import described

CARD = "watts | sm_mhz | throttled"
TOKENS = " | ".join(
    f"{of}_{p}_{end}" for of in ("ttft", "tpot") for p in ("p50", "p95") for end in ("ms", "low", "high")
)
SERVED = (
    f"requests? | unfinished? | refused? | {TOKENS} | itl_p99_ms? | goodput | goodput_low? | goodput_high? | "
    "goodput_least? | goodput_most? | good_per_s? | tokens_per_s? | running? | waiting_most? | kv_most? | keeps_up? | "
    "valid?"
)
CELLS = "n | p50_ms | p50_low | p50_high | p95_ms | p95_low | p95_high | each_ms | slowdown | low | high | short?"
CHOICE = "goal | best | verdict | value ±_? | second? | margin ±_? | level? | modes? | falls_behind?"
SUITE = described(
    "bench suite, show",
    {
        "alone": (
            "a tenant alone",
            f"stage | tenant | unit | blocks | rate | low | high | p50_ms | sms | starved | cpu | memory_mib | {CARD}",
        ),
        "progress": ("a tenant and its neighbors", "stage | tenant | beside | blocks | progress | low | high"),
        "mixes": (
            "a mix",
            "stage | mix | tenants | blocks? | stp | low? | high? | antt? | jain? | worst? | unfairness? | watts? | "
            "sm_mhz? | throttled? | energy_times ±_?",
        ),
        "latency": ("a tenant in a closed loop", f"stage | tenant | beside | blocks? | n | {STEPS} | short?"),
        "serving": (
            "a tenant in an open loop",
            f"stage | tenant | beside | blocks? | offered? | answered? | n | {STEPS} | lag_p99_ms | unsent | keeps_up "
            f"| valid | "
            "short?",
        ),
        "llm": ("a server of a language model", f"stage | tenant | beside | servers | {SERVED}"),
        "notebook": ("a kind of notebook cell", f"stage | cell | users | beside | {CELLS}"),
        "costs": (
            "a tenant and its neighbors",
            "stage | tenant | beside | unit | blocks? | gpu_s_per_1000 | gpu_s_low? | gpu_s_high? | joules_an_item | "
            "joules_low? | joules_high? | cost_per_1000? | cost_low? | cost_high?",
        ),
        "runs": ("a mix", "stage | mix | tried | ok | success | low | high | seconds | busy | util | cpu"),
        "checks": ("a check", "check | checked | failed | passed | worst"),
        "failures": ("a tenant that failed", "cell | seat | copy? | kind | detail"),
    },
    {
        **BENCH,
        "tried": "how often it was tried",
        "ok": "how often it succeeded",
        "success": "part that succeeded",
        "seconds": ("measured in all", "s"),
        "busy": "part of the window in which a step ran or waited for the GPU; null: not measured",
        "util": "part of the time in which a kernel ran; null: not measured",
    },
)
ANALYZE = described(
    "bench analyze, all",
    {
        "answers": ("a question", "question | answer"),
        "expected": ("an expectation", "mode | what | expected | came ±_ | verdict"),
        "kinds": ("a kind of mix and a goal", f"kind | mixes? | mix? | {CHOICE}"),
        "advice": ("a mix and a goal", f"kind | mix | {CHOICE}"),
        "mixes": (
            "a mix and a mode",
            "mix | kind | tenants | mode | blocks | stp ±_ | worst ±_ | antt ±_ | p95_times ±_ | energy_times ±_ | "
            "util | watts",
        ),
        "progress": ("a tenant, its neighbors and a mode", "mode | tenant | beside | blocks | progress ±_"),
        "scale": (
            "a number of copies",
            "tenant | mode | tenants | blocks? | unit? | rate ±_? | percentile? | tail_ms ±_? | times ±_? | unsent? | "
            "state | why?",
        ),
        "curve": ("a tenant on fewer SMs", "tenant | sms | blocks? | progress ±_?"),
        "serving": (
            "a served tenant",
            "served | background | mode | blocks? | offered | answered? | requests? | unsent? | p50_ms ±_? | p95_ms "
            "±_? | p99_ms ±_? | lag_p99_ms? | keeps_up? | valid? | background_progress?",
        ),
        "llm": ("a server of a language model", f"mode | tenant | beside | servers | {SERVED}"),
        "notebook": ("a kind of notebook cell", f"mode | cell | users | beside | {CELLS}"),
        "costs": ("a tenant and a mode", f"tenant | mode | tenants | blocks? | unit | {SPENT}"),
        "checks": ("a check of a suite", "suite | check | checked | failed | passed | worst"),
        "failures": ("a tenant that failed", "suite? | cell | seat? | mix? | mode? | kind | detail"),
        "modes": ("a mode, of `bench all`", "mode | possible | why"),
        "stages": ("a stage, of `bench all`", "plan | blocks | settle | window | state"),
    },
    {
        **BENCH,
        "question": "a question on sharing",
        "answer": "the answer, with numbers",
        "what": "what is expected of the mode",
        "expected": "the expected number",
        "came": "the measured one; null: not measured",
        "verdict": "whether the best is better beyond its interval; of an expectation, whether it came",
        "mixes": "how many mixes",
        "goal": "what is best: throughput, least progress, latency, cost, energy",
        "best": "the best mode",
        "value": "its value of the goal",
        "second": "the next best mode; null: there is none",
        "margin": "by how much the best is better; null: there is no second",
        "level": "modes that are as good",
        "modes": "modes that were compared",
        "falls_behind": "modes under which a server does not keep up",
        "p95_times": "P95 of the step time over that alone; null: too few steps",
        "util": "part of the time in which a kernel ran",
        "percentile": "percentile of the tail",
        "tail_ms": ("latency at it", "ms"),
        "times": "the same over that of one copy",
        "state": "whether the goal holds with so many copies; of a stage, finished or how far it came",
        "served": "tenant that serves requests",
        "background": "its neighbor; empty: none",
        "background_progress": "progress of the neighbor; null: there is none",
        "suite": "folder of the suite",
        "plan": "name of the plan",
        "settle": ("time before the measured window; null: as in the plan", "s"),
        "window": ("measured window; null: as in the plan", "s"),
        "possible": "whether the GPU allows it",
        "modes: why": "why not; empty: it does",
    },
)
RESULTS = (SUITE, ANALYZE)
