"""Built-in plans by name, among them those that measure isolation and test the speed model."""

from __future__ import annotations

from collections.abc import Callable

from fleetlab.bench.mig_plan import mig_plan
from fleetlab.bench.plans import (
    CLASSES,
    SIX,
    WHOLE,
    BenchCell,
    Seat,
    SuitePlan,
    Tenant,
    breaking,
    classes,
    crowded,
    mix_cells,
    mode_cells,
    pairs,
    serving,
    shuffle_cells,
    sm_curve,
    solo,
    stressor_pairs,
)
from fleetlab.bench.user_plans import llm, notebook
from fleetlab.sharing.modes import Share

# Pairs and triples that no other plan measures: every tenant that only computes forward beside every training that
# rests, and groups of three of which no more than pairs are known. Without `launch`, whose rate alone varies by 15 %.
HELD_OUT = (
    *(
        f"{tenant} {resting}"
        for tenant in ("resnet-infer", "bert-infer", "llm-decode")
        for resting in ("resnet-light", "bert-light", "resnet-medium", "bert-medium")
    ),
    "resnet-train resnet-infer llm-decode",
    "bert-train bert-infer resnet-infer",
    "resnet-train bert-train llm-decode",
    "resnet-infer bert-infer llm-decode",
    "llm-decode llm-decode resnet-infer",
    "resnet-infer bert-light resnet-medium",
    "llm-decode resnet-light bert-medium",
    "bert-infer bert-light resnet-medium",
)
DUTIES = (0.25, 0.5, 1.0)
WORST = {
    f"{name}-{duty * 100:.0f}": Tenant(name, {"duty": duty}) for name in ("gemm", "hbm", "l2", "h2d") for duty in DUTIES
}
VICTIMS = ("resnet-train", "resnet-infer")


QUICK = ("resnet-train", "resnet-infer", "llm-decode")
HALVES = {"time-slicing": ("time-slicing", WHOLE), "mps": ("mps", WHOLE), "mps@50": ("mps", Share(50))}


def quick(seed: int = 0, blocks: int = 2) -> SuitePlan:
    """A training, an inference and a decoder in pairs, under time slicing, MPS, and MPS with half of the SMs each."""
    mixes = [("resnet-infer", "resnet-train"), ("llm-decode", "resnet-train"), *((t, t) for t in QUICK[:2])]
    cells = mode_cells(HALVES, mixes, blocks=blocks, seed=seed)
    return SuitePlan("quick", {t: SIX[t] for t in QUICK}, cells, settle=0.6, window=2.0, seed=seed)


def held_out(seed: int = 0, blocks: int = 1) -> SuitePlan:
    """Pairs and triples to test predictions on: nothing else measures them."""
    mixes = [tuple(words.split()) for words in HELD_OUT]
    cells: list[BenchCell] = []
    for name, mode in (("heldout-ts", "time-slicing"), ("heldout-mps", "mps")):
        cells += shuffle_cells(mix_cells(name, mode, mixes), blocks=blocks, seed=seed)
    named = {tenant for mix in mixes for tenant in mix}
    tenants = {name: tenant for name, tenant in (SIX | CLASSES).items() if name in named}
    return SuitePlan("heldout", tenants, tuple(cells), settle=0.4, window=2.0, seed=seed)


def neighbors(seed: int = 0, blocks: int = 1) -> SuitePlan:
    """A training and an inference beside each stressor at each duty: the worst neighbor."""
    cells: list[BenchCell] = []
    for name, mode, share in (
        ("neighbors-ts", "time-slicing", WHOLE),
        ("neighbors-mps", "mps", WHOLE),
        ("neighbors-mps-50", "mps", Share(50)),
    ):
        once = [BenchCell(name, mode, 0, (Seat(victim, share=share),)) for victim in VICTIMS]
        once += [
            BenchCell(name, mode, 0, (Seat(victim, share=share), Seat(worst, share=share)))
            for victim in VICTIMS
            for worst in WORST
        ]
        cells += shuffle_cells(once, blocks=blocks, seed=seed)
    tenants = {victim: SIX[victim] for victim in VICTIMS} | WORST
    return SuitePlan("neighbors", tenants, tuple(cells), settle=0.25, window=0.8, seed=seed)


BY_NAME: dict[str, Callable[..., SuitePlan]] = {
    "quick": quick,
    "solo": solo,
    "sm-curve": sm_curve,
    "pairs-ts": lambda **k: pairs("time-slicing", **k),
    "pairs-mps": lambda **k: pairs("mps", **k),
    "pairs-mps-50": lambda **k: pairs("mps", share=Share(50), **k),
    "breaking": breaking,
    "classes": classes,
    "stressors": stressor_pairs,
    "serving": serving,
    "crowded": crowded,
    "heldout": held_out,
    "neighbors": neighbors,
    "llm": llm,
    "notebook": notebook,
    "mig": mig_plan,
}
