"""The plans of `bench all`, the most useful first, and which of them fit into a time budget."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

from fleetlab.bench.built_in_plans import BY_NAME
from fleetlab.bench.plans import SuitePlan
from fleetlab.bench.run import make_plan
from fleetlab.bench.workers.pool import LEAD
from fleetlab.devices.errors import BenchError

# In order of use; names that this version has no plan for are left out.
PAIRS = ("pairs-ts", "pairs-mps", "pairs-mps-50")  # together they say all that `quick` says
STAGES = (
    "quick",
    *PAIRS,
    "serving",
    "classes",
    "llm",
    "notebook",
    "mig",
    "crowded",
    "sm-curve",
    "stressors",
    "breaking",
    "solo",
    "neighbors",
    "heldout",
)
# Stages that are not plans of a suite, and their length in seconds. They run only if named: a probe of isolation fills
# the memory of the GPU and ends processes on it.
PROGRAMS = {"isolation": 300.0}
SETTLE, WINDOW = 0.8, 2.5  # s; of a stage for which there is no time at full length
# A queue that grows looks well at first, and users of notebooks think for longer than that: at full length or not.
WHOLE = ("quick", "serving", "llm", "notebook", "crowded")
LOADING = 20.0  # s to start the processes of a stage and to load them; 6 to 17 on an H200
TURN = 0.4  # s between two cells
MARGIN = 70.0  # s that the last stage needs in reserve


@dataclass(frozen=True, slots=True)
class ChosenStage:
    """A plan, and how long its measurements are; None is as in the plan."""

    plan: str  # a name, or a TOML file
    blocks: int | None = None
    settle: float | None = None
    window: float | None = None

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.plan.rpartition("/")[2].removesuffix(".toml")

    def made(self, modes: Container[str], *, seed: int, rehearse: bool) -> SuitePlan | None:
        """Its plan without cells of other modes; None if none is left."""
        lengths = {} if rehearse else {"settle": self.settle, "window": self.window}
        whole = make_plan(self.plan, blocks=self.blocks, seed=seed, rehearse=rehearse, **lengths)
        if whole.name == "mig" and "mig" not in modes:  # the other cells of this plan are to be compared with MIG
            return None
        cells = tuple(cell for cell in whole.cells if cell.mode.partition(":")[0] in modes)
        return replace(whole, cells=cells) if cells else None


def seconds_of(plan: SuitePlan) -> float:
    """How long a plan takes on a GPU."""
    cell = LEAD + plan.settle + plan.window + TURN
    return LOADING * len(plan.stages()) + cell * len(plan.cells)


def named_stages(words: str) -> list[str]:
    """Read names of plans and TOML files, separated by commas; all that there are if none is named."""
    named = [word.strip() for word in words.split(",") if word.strip()]
    if not named:
        return [name for name in STAGES if name in BY_NAME]
    known = (*BY_NAME, *PROGRAMS)
    if unknown := [word for word in named if word not in known and not word.endswith(".toml")]:
        msg = f"unknown stage: {', '.join(unknown)}"
        raise BenchError(msg, hint=f"there are {', '.join(known)}; or a TOML file")
    names = [ChosenStage(word).name for word in named]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        msg = f"two stages have the same name: {', '.join(twice)}"
        raise BenchError(msg)
    return named


def choose(names: Sequence[str], seconds: float, modes: Container[str], *, seed: int = 0) -> list[ChosenStage]:
    """Which stages fit into so many seconds: first short ones in order of use, then at full length what time is left.

    A TOML file keeps its own lengths. `quick` is left out where all pairs are measured.
    """
    rest = [name for name in names if name != "quick"]
    short = _fitting(rest, seconds, modes, seed)
    if "quick" in names and not set(PAIRS) & set(names) <= {stage.plan for stage in short}:
        short = _fitting(names, seconds, modes, seed)
    left = seconds - MARGIN - sum(_seconds(stage, modes, seed) for stage in short)
    chosen = []
    for stage in short:
        more = _seconds(ChosenStage(stage.plan), modes, seed) - _seconds(stage, modes, seed)
        fits = more <= left
        left -= more if fits else 0
        chosen.append(ChosenStage(stage.plan) if fits else stage)
    return chosen


def _fitting(names: Iterable[str], seconds: float, modes: Container[str], seed: int) -> list[ChosenStage]:
    stages, left = [], seconds - MARGIN
    for name in names:
        stage = (
            ChosenStage(name)
            if name.endswith(".toml") or name in WHOLE
            else ChosenStage(name, settle=SETTLE, window=WINDOW)
        )
        if 0 < (taken := _seconds(stage, modes, seed)) <= left:
            stages.append(stage)
            left -= taken
    return stages


def _seconds(stage: ChosenStage, modes: Container[str], seed: int) -> float:
    """How long it takes; 0 if none of its modes is possible."""
    if stage.plan in PROGRAMS:
        return PROGRAMS[stage.plan]
    made = stage.made(modes, seed=seed, rehearse=False)
    return seconds_of(made) if made else 0.0
