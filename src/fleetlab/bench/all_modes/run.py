"""Run the stages one after the other; `all.json` says what was chosen, what the GPU allows, and how far it is."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fleetlab.bench.all_modes.stages import PROGRAMS, ChosenStage, choose, least_minutes, named_stages, seconds_of
from fleetlab.bench.isolation.run import modes as isolation_modes
from fleetlab.bench.isolation.run import run_isolation
from fleetlab.bench.options import AllOptions, IsolationOptions
from fleetlab.bench.suite import SuiteRun, finished_cells
from fleetlab.devices.errors import BenchError
from fleetlab.devices.files import atomic_write, check_folder
from fleetlab.devices.options import start
from fleetlab.devices.progress import Progress, print_progress
from fleetlab.sharing.status import SUITE_MODES, suite_modes

STOPPED = "stopped; finished cells are kept, run the same command again to resume"
MANIFEST = "all.json"
FINISHED = "finished"


def main(words: Sequence[str] | None = None) -> int:
    """Run all stages; exit status 0 if complete, 3 if cells are missing, 2 for an error."""
    return start("fleetlab.bench.all_modes", AllOptions, _run, words, stopped=STOPPED)


def _run(options: AllOptions) -> int:
    complete = run_all(options, progress=print_progress)
    print_progress(f"`fleetlab bench analyze {options.out} --out {options.out}/analysis` writes the report")
    return 0 if complete else 3


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
        self._file = options.out / MANIFEST
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
            msg = f"nothing fits into {self._options.minutes:g} minutes"
            raise BenchError(msg, hint=self._longer())
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
        left = 60 * o.minutes - sum(self._left(stage) for stage in before)
        known = {stage.name for stage in before}
        names = [name for name in named_stages(o.stages) if ChosenStage(name).name not in known]
        if {"quick"} & set(names) and known:
            names.remove("quick")
        return before + choose(names, left, self._allowed, seed=o.seed)

    def _before(self) -> list[ChosenStage]:
        if not self._file.exists():
            return []
        was = json.loads(self._file.read_text("utf-8"))
        for key, now in (("seed", self._options.seed), ("rehearsal", self._options.rehearse)):
            if was.get(key) != now:
                msg = f"{self._options.out}: contains another run: {key} {was.get(key)}, not {now}"
                raise BenchError(msg, hint="name another folder with --out")
        stages = [(ChosenStage(s["plan"]), s.get("state", "")) for s in was["stages"]]
        self._was = {stage.name: state for stage, state in stages}
        return [ChosenStage(s["plan"], s["blocks"], s["settle"], s["window"]) for s in was["stages"]]

    def _left(self, stage: ChosenStage) -> float:
        """Seconds for what an earlier run left of a stage."""
        if stage.plan in PROGRAMS:
            return PROGRAMS[stage.plan] if self._was.get(stage.name) != FINISHED else 0.0
        made = stage.made(self._allowed, seed=self._options.seed, rehearse=self._options.rehearse)
        if made is None:
            return 0.0
        done = finished_cells(self._options.out / stage.name)
        missing = sum(cell.name not in done for cell in made.cells)
        return seconds_of(made) * missing / len(made.cells)

    def _stage(self, stage: ChosenStage) -> str:
        left = self._until - time.monotonic()
        if left <= 0:
            return "no time left"
        try:
            return self._isolation(left) if stage.plan == "isolation" else self._suite(stage, left)
        except BenchError as e:  # the next stage may still be measured
            self._progress(f"stage {stage.name} failed: {e}")
            return f"failed: {e}"

    def _suite(self, stage: ChosenStage, left: float) -> str:
        o = self._options
        plan = stage.made(self._allowed, seed=o.seed, rehearse=o.rehearse)
        if plan is None:
            return "its modes are not possible here"
        self._progress(f"stage {stage.name}: {len(plan.cells)} cells, {left / 60:.1f} minutes left")
        skipped = SuiteRun(
            plan,
            o.out / stage.name,
            limit=left,
            device=o.device,
            rehearse=o.rehearse,
            allow_mig=o.allow_mig,
            progress=self._progress,
        ).run()
        missing = len(plan.cells) - len(finished_cells(o.out / stage.name))
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
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "minutes": o.minutes,
            "seed": o.seed,
            "rehearsal": o.rehearse,
            "modes": self._modes,
            "stages": [
                asdict(stage) | {"state": self._states.get(stage.name, "not started")} for stage in self._stages
            ],
        }
        atomic_write(self._file, json.dumps(about, indent=1))


def all_record(folder: Path) -> dict[str, Any] | None:
    """What `bench all` wrote about a folder; None if it did not make it."""
    try:
        record = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and {"modes", "stages"} <= set(record) else None
