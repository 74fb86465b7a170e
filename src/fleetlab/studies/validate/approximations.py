"""Approximations compared with the simulator, where they are known to be good and where they are known to fail.

Only the bound counts for or against the simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fleetlab.core.progress import Progress
from fleetlab.queueing import solve
from fleetlab.studies.validate.arrivals import CONSTANT, JobClass, RuntimeLaw, load
from fleetlab.studies.validate.line import Line
from fleetlab.studies.validate.means import ELEPHANTS, POWERS, ExactCase, GangMix
from fleetlab.studies.validate.schedules import Simulator

NEAR = 0.05  # of an approximation: as good as right
TAIL = "two moments do not determine waits with heavy-tailed runtimes"
HYPER, LOGNORMAL = RuntimeLaw("hyperexponential", scv=10.0), RuntimeLaw("lognormal", scv=10.0)
LENGTHS = {0.7: (25_000, 2_000), 0.9: (50_000, 8_000)}


class System(NamedTuple):
    """Poisson arrivals of jobs with these runtimes, on so many GPUs."""

    law: RuntimeLaw
    servers: int
    rho: float
    why: str

    def lines(self, simulate: Simulator, seed: int) -> list[Line]:
        """Compare the simulated mean wait with each approximation of it."""
        rate = self.servers * self.rho
        name = f"M/G/{self.servers}, {self.law.spelling}, ρ {self.rho}"
        case = ExactCase(name, {"mean wait": ()}, (JobClass(law=self.law),), self.servers, rate, LENGTHS[self.rho])
        (mean,) = case.measured(simulate, seed)["mean wait"]
        parameters = {"lam": rate, "mu": 1.0, "c": self.servers}
        two = parameters | {"ca2": 1.0, "cs2": self.law.scv}
        approximate = {model: solve(model, **two)["mean wait"] for model in ("Allen-Cunneen", "Whitt GI/G/m")}
        if not self.law.scv:
            approximate["Cosmetatos M/D/c"] = solve("Cosmetatos M/D/c", **parameters)["mean wait"]
        return [
            Line(name, f"mean wait by {model}", value, mean, near=NEAR, why=self.why, counts=False)
            for model, value in approximate.items()
        ]


SYSTEMS = (
    System(CONSTANT, 8, 0.7, "constant runtimes at a low load"),
    System(HYPER, 8, 0.7, TAIL),
    System(LOGNORMAL, 8, 0.7, TAIL),
    System(HYPER, 8, 0.9, TAIL),
    System(LOGNORMAL, 8, 0.9, TAIL),
)


def _kingman(simulate: Simulator, seed: int) -> list[Line]:
    law = RuntimeLaw("hyperexponential", scv=4.0)
    case = ExactCase(
        "GI/G/1, hyperexponential:1.0:4.0, ρ 0.7", {"mean wait": ()}, (JobClass(law=law),), 1, 0.7, LENGTHS[0.7]
    )
    bound = solve("Kingman", lam=0.7, mu=1.0, ca2=1.0, cs2=law.scv)["mean wait, at most"]
    (mean,) = case.measured(simulate, seed)["mean wait"]
    return [Line(case.name, "mean wait, at most, by Kingman", bound, mean, most=True)]


def _gangs(mix: GangMix, share: float) -> Callable[[Simulator, int], list[Line]]:
    """Compare gangs without backfill with RESET, and with a model without gangs."""

    def lines(simulate: Simulator, seed: int) -> list[Line]:
        rate = share * mix.limit()
        rho = rate * load(mix.classes) / mix.servers
        count = 40_000 if share > 0.8 else 15_000
        case = ExactCase(f"gangs, {mix.name}, {share} of the limit", {"mean JCT": ()}, mix.classes, mix.servers, rate,
                    (count, count // 6), ({"backfill": "none"},), moves=True)  # fmt: skip
        (mean,) = case.measured(simulate, seed)["mean JCT"]
        reset = solve("MSJ RESET", lam=rate, **mix.parameters)["mean response"]
        alone = solve("M/M/c", lam=rho * mix.servers, mu=1.0, c=mix.servers)["mean response"]
        return [
            Line(case.name, "mean JCT by RESET", reset, mean, near=NEAR, counts=False,
                 why="correct up to a constant, which matters at a low load"),
            Line(case.name, "mean JCT by M/M/c", alone, mean, near=NEAR, counts=False,
                 why="it does not model GPUs that idle while a gang does not fit"),
        ]  # fmt: skip

    return lines


def _filling(rho: float) -> Callable[[Simulator, int], list[Line]]:
    """Compare ServerFilling with its limit."""

    def lines(simulate: Simulator, seed: int) -> list[Line]:
        rate = rho * POWERS.servers / load(POWERS.classes)
        name, words = f"ServerFilling, {POWERS.name}, ρ {rho}", ({"order": "server_filling"},)
        case = ExactCase(
            name, {"mean JCT": ()}, POWERS.classes, POWERS.servers, rate, (6_000, 1_500), words, moves=True
        )
        (mean,) = case.measured(simulate, seed)["mean JCT"]
        about = solve("ServerFilling", lam=rate, **POWERS.parameters)["mean response"]
        return [Line(case.name, "mean JCT by its limit", about, mean, near=NEAR, counts=False,
                     why="correct up to a constant")]  # fmt: skip

    return lines


def compare(simulate: Simulator, *, seed: int, progress: Progress) -> list[Line]:
    """Compare every approximation with the simulator."""
    work: list[Callable[[Simulator, int], list[Line]]] = [system.lines for system in SYSTEMS]
    work += [_kingman, *(_gangs(mix, share) for mix in (ELEPHANTS, POWERS) for share in (0.5, 0.9)), _filling(0.5)]
    work += [_filling(0.8)]
    lines = []
    for k, part in enumerate(work):
        lines += part(simulate, seed)
        progress("comparing simulated waits with approximations", k + 1, (k + 1) / len(work))
    return lines
