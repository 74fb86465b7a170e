"""Tables of forecasts and placement plans."""

from __future__ import annotations

from fleetlab.core.catalog.resources import RESOURCES
from fleetlab.core.catalog.tables.table import Meanings, described

LOADS = " | ".join(("cpu", "memory", "rdma", "disk", "gpu"))
REQUESTS = " | ".join(RESOURCES[name].request for name in ("cpu", "memory", "gpu", "gpu_memory", "rdma", "disk"))
PLACED = "job | instance | node | gpus"
MISFIT = "job | instances | rule | resource | requested | available | missing | why | proved"
SKILL = "skill ± | against | skill against last | last low | last high"
TO_PLACE: Meanings = {
    "rule": "what prevents it: one node, GPU types, capacity, instances of an app per node",
    "resource": "of which there is too little; null: none",
    "requested": "how much is requested",
    "available": "how much there is",
    "missing": "how much is missing",
    "proved": "whether it is proved that no placement exists",
    "instances": "instances that have no place",
    "gpus": "GPUs of the node that it gets: a bit for each, 1 for the first; 0: none",
}
FORECAST = described(
    "forecast",
    {
        "chosen": (
            "a series and a number of steps ahead, with the selected model",
            f"part | resource | steps ahead | model | NRMSE | low | high | {SKILL} | covered 95% | width 95% | "
            f"reserve 95% | "
            "explained | verdict",
        ),
        "next": (
            "a series and a step to come",
            "part | resource | from | forecast | low 80% | high 80% | low 95% | high 95% | unit | model",
        ),
        "NRMSE, steps ahead: {steps}": ("a model", "part | family | model | {resource}"),
        "leaderboard": (
            "a series, a number of steps ahead and a model",
            f"part | resource | steps ahead | model | family | selected | NRMSE | low | high | NRMSE on past folds | "
            f"{SKILL} | "
            "explained | MASE ± | WAPE ± | pinball ± | covered 80% | covered low 80% | covered high 80% | width 80% | "
            "reserve 80% | covered 95% | covered low 95% | covered high 95% | width 95% | reserve 95%",
        ),
        "overfitting": ("a series and a model", "part | resource | model | training | past folds | tail"),
        "weights": ("a model of the ensemble", "part | model | {resource}"),
        "tuning": (
            "a trial of the settings of a network",
            "part | model | trial | window | width | depth | dropout | rate | relative squared error | epochs | "
            "selected",
        ),
        "unannounced": ("a resource", "resource | share of requests | NRMSE if all else were known"),
    },
    {
        "part": "part of the demand: all, or a value of `by`",
        "resource": "[resource](names.md#resources) whose demand it is",
        "steps ahead": "how many steps lie between what is known and what is forecast",
        "NRMSE": "root mean squared error over the mean of the actual values; null: the mean is 0",
        "skill": "relative reduction of the root mean squared error against the best simple model",
        "against": "that simple model",
        "skill against last": "the same against the last value",
        "last": "skill against the last value",
        **{f"covered {p}%": f"how often the {p} % interval holds the value" for p in (80, 95)},
        **{
            f"covered {end} {p}%": f"{end} end of the 95 % interval of `covered {p}%`"
            for p in (80, 95)
            for end in ("low", "high")
        },
        **{f"width {p}%": f"mean width of the {p} % interval, over the mean of the values" for p in (80, 95)},
        **{
            f"reserve {p}%": f"mean half width of the {p} % interval, in the resource's unit: what to add to a forecast"
            for p in (80, 95)
        },
        "explained": "part of the variance about the mean that the forecast explains",
        "verdict": "predictable, partly, not predictable, or unknown",
        "from": ("begin of the step", "s"),
        "forecast": "the value that is forecast",
        **{f"{end} {p}%": f"{end} end of the {p} % prediction interval" for p in (80, 95) for end in ("low", "high")},
        "family": "family of the model: simple, classic, boosted, network, ensemble, own",
        "{resource}": "NRMSE of this model for this resource; null: not known",
        "selected": "whether it was selected, by the folds before the tail",
        "NRMSE on past folds": "the same on the folds by which models were selected",
        "MASE": "mean absolute error over that of the seasonal naive forecast in training",
        "WAPE": "sum of absolute errors over the sum of the values",
        "pinball": "mean pinball loss of the interval's ends, over the mean of the values",
        "training": "NRMSE on what it learned from; null: not kept",
        "past folds": "NRMSE on the folds before the tail",
        "tail": "NRMSE on the held-out end",
        "weights: {resource}": "weight of this model in the ensemble for this resource",
        "trial": "number of the trial",
        "window": "steps that the network sees",
        "width": "neurons of a layer",
        "depth": "layers",
        "dropout": "share of neurons dropped in training",
        "rate": "learning rate",
        "relative squared error": "on its own folds, over that of the mean",
        "epochs": "passes over the training data",
        "share of requests": "part of the requests in the tail that no earlier request of the same app announced",
        "NRMSE if all else were known": "the error that those alone would leave",
    },
)
PLAN_AHEAD = described(
    "plan (ahead)",
    {
        "demand": (
            "a part of the demand",
            "part | running | waiting | forecast | median | {upper} | held out below | below low | below high | "
            "models | new, median | new, {upper}",
        ),
        "nodes": ("a kind of nodes", "kind | there | now | median | {upper} | more, median | more, {upper} | missing"),
        "does not fit": ("a job without a place", f"demand | {MISFIT}"),
        "plans": ("a demand", "demand | instances | do not fit | nodes needed | value | bound | search"),
        "shapes": (
            "a kind of request",
            f"part | app | {REQUESTS} | gpu_types | max_per_node | requested | median | {{upper}}",
        ),
        "placements": ("an instance of the upper quantile; `plan --out` writes this table", PLACED),
    },
    {
        **TO_PLACE,
        **{
            r.request: (f"request of an instance: {r.meaning}", r.unit if r.scale == 1 else f"1/{r.scale:,} {r.unit}")
            for r in RESOURCES
        },
        "part": "part of the demand: all, or a value of `by`",
        "running": "instances that run now",
        "waiting": "instances that wait now",
        "forecast": "resource by which instances are forecast",
        "median": "nodes, or instances, at the median of the forecast",
        "{upper}": "the same at the upper quantile, such as P90",
        "held out below": "how often the demand of the held-out end was at most the upper quantile",
        "below": "how often it was at most that",
        "models": "models of the forecast",
        "new, median": "instances to come, at the median",
        "new, {upper}": "instances to come, at the upper quantile",
        "kind": "kind of nodes: GPU type, GPUs, and what else they have",
        "there": "nodes that there are",
        "now": "nodes that what runs and waits now needs",
        "more, median": "nodes more than now, at the median",
        "more, {upper}": "nodes more than now, at the upper quantile",
        "nodes: missing": "nodes that are not there, at the upper quantile",
        "demand": "now, median, or the upper quantile",
        "plans: instances": "instances to place",
        "do not fit": "instances that have no place",
        "nodes needed": "nodes that the plan uses",
        "value": "value of the objective; null: nothing was placed",
        "bound": "no placement is below that; null: nothing was placed",
        "search": "how the search ended: proved, searched, or by the clock; null: nothing was placed",
        "app": "program or service; null: not named",
        "gpu_types": "GPU types that it may use; empty: any",
        "max_per_node": "most instances of its app on one node; 0: no limit",
        "shapes: requested": "instances of this kind in the recent past",
    },
)
PLAN = described(
    "plan",
    {
        "does not fit": ("a job without a place", MISFIT),
        "nodes": ("a kind of nodes", f"pool | gpu_type | gpus | there | in use | instances | {LOADS}"),
        "loads": ("a node in use", f"node | pool | gpu_type | instances | gpus | {LOADS}"),
        "placements": ("an instance; `--out` writes this table", PLACED),
    },
    {
        **TO_PLACE,
        "nodes: gpus": "GPUs of each node",
        "loads: gpus": "GPUs of the node",
        "there": "nodes that there are",
        "in use": "nodes that have an instance",
        "nodes: instances": "instances on them",
        "loads: instances": "instances on it",
        **{
            name: (
                f"part of its {RESOURCES[name].meaning} that is requested; null: it has none, or none is in use",
                "%",
            )
            for name in ("cpu", "memory", "rdma", "disk", "gpu")
        },
    },
)
DEFRAGMENT = described(
    "defragment",
    {
        "freed": ("a node or GPU that becomes free", "frees | moves | minutes"),
        "moves": ("a move, in order", "step | job | instance | from | from_gpus | to | to_gpus | minutes | frees"),
        "placements": ("an instance after all moves; `--out` writes this table", PLACED),
    },
    {
        "frees": "node or GPU that is free after these moves",
        "moves": "how many it takes",
        "minutes": ("time that moving takes: restart and transfer", "min"),
        "step": "number of the move",
        "from": "node that it leaves",
        "from_gpus": "GPUs that it leaves: a bit for each, 1 for the first",
        "to": "node that it goes to",
        "to_gpus": "GPUs that it goes to, in the same way",
        "gpus": "GPUs of the node that it holds: a bit for each, 1 for the first; 0: none",
    },
)
RESULTS = (FORECAST, PLAN_AHEAD, PLAN, DEFRAGMENT)
