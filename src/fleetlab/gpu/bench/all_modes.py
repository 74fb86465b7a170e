"""One machine, all modes: a sequence of plans in one folder, within a time budget, that resumes after any end.

`python -m fleetlab.gpu.bench.all_modes --out FOLDER --minutes 30` runs it on a machine with few packages. `all.json`
says what was chosen, what the GPU allows, and how far it is.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fleetlab.gpu.bench.isolation.run import modes as isolation_modes
from fleetlab.gpu.bench.isolation.run import run_isolation
from fleetlab.gpu.bench.options import AllOptions, IsolationOptions
from fleetlab.gpu.bench.plans import BY_NAME, SuitePlan
from fleetlab.gpu.bench.run import STOPPED, RunFolder, SuiteRun, make_plan, now
from fleetlab.gpu.bench.workers.pool import LEAD
from fleetlab.gpu.devices.console import BenchError, Progress, check_folder, print_progress, start
from fleetlab.gpu.sharing.status import SUITE_MODES, suite_modes

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


def named_stages(text: str) -> list[str]:
    """Read names of plans and TOML files, separated by commas; all that there are if none is named."""
    named = [word.strip() for word in text.split(",") if word.strip()]
    if not named:
        return [name for name in STAGES if name in BY_NAME]
    available = (*BY_NAME, *PROGRAMS)
    if unknown := [word for word in named if word not in available and not word.endswith(".toml")]:
        msg = f"unknown stage: {', '.join(unknown)}"
        raise BenchError(msg, hint=f"there are {', '.join(available)}; or a TOML file")
    names = [ChosenStage(word).name for word in named]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BenchError(f"two stages have the same name: {', '.join(twice)}")
    return named


def choose(names: Sequence[str], seconds: float, modes: Container[str], *, seed: int = 0) -> list[ChosenStage]:
    """Which stages fit into so many seconds: first short ones in order of use, then at full length what time is left.

    A TOML file keeps its own lengths. `quick` is left out where all pairs are measured.
    """
    rest = [name for name in names if name != "quick"]
    short = _fitting(rest, seconds, modes, seed)
    if "quick" in names and not set(PAIRS) <= {stage.plan for stage in short}:
        short = _fitting(names, seconds, modes, seed)
    remaining = seconds - MARGIN - sum(_seconds(stage, modes, seed) for stage in short)
    chosen = []
    for stage in short:
        more = _seconds(ChosenStage(stage.plan), modes, seed) - _seconds(stage, modes, seed)
        fits = more <= remaining
        remaining -= more if fits else 0
        chosen.append(ChosenStage(stage.plan) if fits else stage)
    return chosen


def _fitting(names: Iterable[str], seconds: float, modes: Container[str], seed: int) -> list[ChosenStage]:
    stages, remaining = [], seconds - MARGIN
    for name in names:
        stage = _short(name)
        if 0 < (taken := _seconds(stage, modes, seed)) <= remaining:
            stages.append(stage)
            remaining -= taken
    return stages


def _short(name: str) -> ChosenStage:
    if name.endswith(".toml") or name in WHOLE:
        return ChosenStage(name)
    return ChosenStage(name, settle=SETTLE, window=WINDOW)


def least_minutes(names: Iterable[str], modes: Container[str], *, seed: int = 0) -> tuple[int, str] | None:
    """The fewest minutes in which one of these stages fits, and which; None if none is possible."""
    each = [(_seconds(_short(name), modes, seed), name) for name in names]
    taken, name = min((one for one in each if one[0]), default=(0.0, ""))
    return (math.ceil((taken + MARGIN) / 60), name) if name else None


def _seconds(stage: ChosenStage, modes: Container[str], seed: int) -> float:
    """How long it takes; 0 if none of its modes is possible."""
    if stage.plan in PROGRAMS:
        return PROGRAMS[stage.plan]
    plan = stage.made(modes, seed=seed, rehearse=False)
    return seconds_of(plan) if plan else 0.0


# --- run the stages one after the other; `all.json` says what was chosen ---------------------------------------------


MANIFEST = "all.json"
FINISHED = "finished"


def _run(options: AllOptions) -> int:
    complete = run_all(options, progress=print_progress)
    print_progress(f"`fleetlab bench analyze {options.out} --out {options.out}/analysis` writes the report")
    return 0 if complete else 3


main = partial(start, "fleetlab.gpu.bench.all_modes", AllOptions, _run, stopped=STOPPED)


def run_all(options: AllOptions, *, progress: Progress) -> bool:
    """Measure what the GPU allows and the time is enough for; whether every chosen cell was measured."""
    return AllRun(options, progress).run()


def modes_here(*, rehearse: bool, allow_mig: bool = False) -> list[dict[str, Any]]:
    """Each sharing mode of a suite: whether the GPU allows it now, and why not. Nothing is changed."""
    if rehearse:
        return [{"mode": mode, "possible": True, "why": "a rehearsal: plain processes"} for mode in SUITE_MODES]
    here = suite_modes(allow_mig=allow_mig)
    if here[0].gpu is None:
        raise BenchError(here[0].why, hint="--rehearse runs all stages on the CPU with tiny sizes")
    return [{"mode": one.name, "possible": one.possible, "why": one.why} for one in here]


class AllRun:
    """One folder; each stage is a suite in a folder of its own."""

    def __init__(self, options: AllOptions, progress: Progress) -> None:
        self._options, self._progress = options, progress
        self._until = time.monotonic() + 60 * options.minutes
        self._folder = RunFolder(options.out, about=MANIFEST)
        self._was: dict[str, str] = {}  # states of stages in an earlier run
        self._modes = modes_here(rehearse=options.rehearse, allow_mig=options.allow_mig)
        self._allowed = {one["mode"] for one in self._modes if one["possible"]}

    def run(self) -> bool:
        """Run what is chosen, in order."""
        check_folder(self._options.out)
        for one in self._modes:
            if not one["possible"]:
                self._progress(f"not measured: {one['mode']}: {one['why']}")
        self._stages = self._chosen()
        if not self._stages:
            raise BenchError(f"nothing fits into {self._options.minutes:g} minutes", hint=self._longer())
        self._states: dict[str, str] = {}
        self._declare()
        for stage in self._stages:
            self._states[stage.name] = self._stage(stage)
            self._declare()
        return all(state == FINISHED for state in self._states.values())

    def _longer(self) -> str:
        """How many minutes the shortest of the named stages needs."""
        least = least_minutes(named_stages(self._options.stages), self._allowed, seed=self._options.seed)
        if least is None:
            return "none of these plans has a mode that is possible here: `fleetlab share status` says why"
        return f"--minutes {least[0]} is enough for {least[1]}, the shortest of these plans"

    def _chosen(self) -> list[ChosenStage]:
        """What an earlier run chose, and what else the time is enough for."""
        o, before = self._options, self._before()
        remaining = 60 * o.minutes - sum(self._seconds_missing(stage) for stage in before)
        names_before = {stage.name for stage in before}
        names = [name for name in named_stages(o.stages) if ChosenStage(name).name not in names_before]
        if {"quick"} & set(names) and names_before:
            names.remove("quick")
        return before + choose(names, remaining, self._allowed, seed=o.seed)

    def _before(self) -> list[ChosenStage]:
        self._folder.check_same(seed=self._options.seed, rehearsal=self._options.rehearse)
        was = self._folder.read() or {"stages": []}
        stages = [(ChosenStage(s["plan"]), s.get("state", "")) for s in was["stages"]]
        self._was = {stage.name: state for stage, state in stages}
        return [ChosenStage(s["plan"], s["blocks"], s["settle"], s["window"]) for s in was["stages"]]

    def _seconds_missing(self, stage: ChosenStage) -> float:
        """Seconds for what an earlier run left of a stage."""
        if stage.plan in PROGRAMS:
            return PROGRAMS[stage.plan] if self._was.get(stage.name) != FINISHED else 0.0
        plan = stage.made(self._allowed, seed=self._options.seed, rehearse=self._options.rehearse)
        if plan is None:
            return 0.0
        done = RunFolder(self._options.out / stage.name).finished()
        missing = sum(cell.name not in done for cell in plan.cells)
        return seconds_of(plan) * missing / len(plan.cells)

    def _stage(self, stage: ChosenStage) -> str:
        remaining = self._until - time.monotonic()
        if remaining <= 0:
            return "no time left"
        try:
            return self._isolation(remaining) if stage.plan == "isolation" else self._suite(stage, remaining)
        except BenchError as e:  # the next stage may still be measured
            self._progress(f"stage {stage.name} failed: {e}")
            return f"failed: {e}"

    def _suite(self, stage: ChosenStage, left: float) -> str:
        o = self._options
        plan = stage.made(self._allowed, seed=o.seed, rehearse=o.rehearse)
        if plan is None:
            return "its modes are not possible here"
        self._progress(f"stage {stage.name}: {len(plan.cells)} cells, {left / 60:.1f} minutes left")
        how: dict[str, Any] = {name: getattr(o, name) for name in ("device", "rehearse", "allow_mig")}
        skipped = SuiteRun(plan, o.out / stage.name, limit=left, **how, progress=self._progress).run()
        missing = len(plan.cells) - len(RunFolder(o.out / stage.name).finished())
        if not missing:
            return FINISHED
        return f"{missing} cells without time" if skipped else f"{missing} cells failed"

    def _isolation(self, left: float) -> str:
        o = self._options
        names = [name for name, mode in isolation_modes(1).items() if mode.sharing in self._allowed]
        probes = IsolationOptions(
            out=o.out / "isolation", modes=",".join(names), limit=left, device=o.device, rehearse=o.rehearse
        )
        self._progress(f"stage isolation: {left / 60:.1f} minutes left")
        skipped = run_isolation(probes, progress=self._progress)
        return f"{len(skipped)} cells without time" if skipped else FINISHED

    def _declare(self) -> None:
        o = self._options
        about = {
            "written": now(),
            "minutes": o.minutes,
            "seed": o.seed,
            "rehearsal": o.rehearse,
            "modes": self._modes,
            "stages": [
                asdict(stage) | {"state": self._states.get(stage.name, "not started")} for stage in self._stages
            ],
        }
        self._folder.declare(about)


def all_record(folder: Path) -> dict[str, Any] | None:
    """What `bench all` wrote about a folder; None if it did not make it."""
    try:
        record = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and {"modes", "stages"} <= set(record) else None


if __name__ == "__main__":
    sys.exit(main())
