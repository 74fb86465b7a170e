"""The simulation in which the story of a job takes place: the scenario, or of a large log the days around the job."""

from __future__ import annotations

from dataclasses import dataclass

from fleetlab.core import Scenario
from fleetlab.core.durations import duration
from fleetlab.core.progress import Progress
from fleetlab.sim import SimResult, simulate

LARGE = 150_000  # jobs: of more, those of some days are simulated
DAY = 86_400.0
EARLIER, LATER = DAY, 2 * DAY  # around the submission of the job, whose jobs can be named
WARM_UP = "2d"  # before that


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A simulation, and the number of the job in it."""

    scenario: Scenario
    result: SimResult
    job: int
    whole: Scenario  # of all jobs, by whose numbers and times the story is told
    notes: tuple[str, ...] = ()

    @property
    def jobs_before(self) -> int:
        """How many jobs of the whole come before the first of the simulation."""
        return self.scenario.first_row - self.whole.first_row

    @property
    def begin(self) -> float:
        """When the simulation begins, in seconds of the whole."""
        return self.scenario.begin - self.whole.begin


def scene_of(scenario: Scenario, job: int, progress: Progress, *, large: int = LARGE) -> Scene:
    """Simulate the scenario; of a large log, the days around a job, until it has started."""
    if len(scenario.workload) <= large or scenario.window or scenario.workload.frame["initial"][job]:
        return Scene(scenario, simulate(scenario, progress=progress), job, scenario)
    row, later = scenario.first_row + job, LATER
    submit = float(scenario.trace.workload.frame["submit"][row])
    last = float(scenario.trace.workload.frame["submit"][-1])
    while True:
        window = (max(submit - EARLIER, 0.0), submit + later)
        part = scenario.replace(window=window, warm_up=WARM_UP)
        mine = row - part.first_row
        result = simulate(part, progress=progress)
        if result.refused["job"].is_in([mine]).any() or _started_within(result, mine, window[1] - window[0]):
            break
        if window[1] > last:
            break
        later *= 4
    note = (
        f"of {len(scenario.workload):,} jobs, the {len(part.workload):,} that were submitted from "
        f"{duration(submit - window[0])} before to {duration(later)} after it are simulated, after those of "
        f"{duration(2 * DAY)} and what then still ran: window=0.. simulates all"
    )
    return Scene(part, result, mine, scenario, (note,))


def _started_within(result: SimResult, job: int, seconds: float) -> bool:
    """Whether a job started while jobs still arrived: after that too little is in its way."""
    start = result.jobs["start"].filter(result.jobs["job"] == job)
    load = 1.0 if result.scenario is None else result.scenario.load
    return len(start) == 1 and start[0] is not None and start[0] <= seconds / load
