"""Approximations beside the simulator, where they are known to be good, and where they are known to fail.

Nothing here speaks for or against the simulator, but for a bound, which must hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fleetlab.queueing import solve
from fleetlab.studies.validate._arrivals import CONSTANT, Kind, Law, load
from fleetlab.studies.validate._line import Line, Progress
from fleetlab.studies.validate.means import ELEPHANTS, POWERS, Case, Gangs
from fleetlab.studies.validate.schedules import Simulator

NEAR = 0.05  # of an approximation: as good as right
TAIL = "two moments do not say how run times of a heavy tail are spread over GPUs"
HYPER, LOGNORMAL = Law("hyperexponential", scv=10.0), Law("lognormal", scv=10.0)
LENGTHS = {0.7: (25_000, 2_000), 0.9: (50_000, 8_000)}


class System(NamedTuple):
    """Poisson arrivals of jobs with these run times, on so many GPUs."""

    law: Law
    servers: int
    rho: float
    why: str

    def lines(self, simulate: Simulator, seed: int) -> list[Line]:
        """The simulated mean wait beside each approximation of it."""
        rate = self.servers * self.rho
        name = f"M/G/{self.servers}, {self.law.words}, ρ {self.rho}"
        case = Case(name, {"mean wait": ()}, (Kind(law=self.law),), self.servers, rate, LENGTHS[self.rho])
        (found,) = case.measured(simulate, seed)["mean wait"]
        told = {"lam": rate, "mu": 1.0, "c": self.servers}
        two = told | {"ca2": 1.0, "cs2": self.law.scv}
        says = {model: solve(model, **two)["mean wait"] for model in ("Allen-Cunneen", "Whitt GI/G/m")}
        if not self.law.scv:
            says["Cosmetatos M/D/c"] = solve("Cosmetatos M/D/c", **told)["mean wait"]
        return [
            Line(name, f"mean wait by {model}", value, found, near=NEAR, why=self.why, counts=False)
            for model, value in says.items()
        ]


SYSTEMS = (
    System(CONSTANT, 8, 0.7, "constant run times at a low load"),
    System(HYPER, 8, 0.7, TAIL),
    System(LOGNORMAL, 8, 0.7, TAIL),
    System(HYPER, 8, 0.9, TAIL),
    System(LOGNORMAL, 8, 0.9, TAIL),
)


def _kingman(simulate: Simulator, seed: int) -> list[Line]:
    law = Law("hyperexponential", scv=4.0)
    case = Case("GI/G/1, hyperexponential:1.0:4.0, ρ 0.7", {"mean wait": ()}, (Kind(law=law),), 1, 0.7, LENGTHS[0.7])
    bound = solve("Kingman", lam=0.7, mu=1.0, ca2=1.0, cs2=law.scv)["mean wait, at most"]
    (found,) = case.measured(simulate, seed)["mean wait"]
    return [Line(case.name, "mean wait, at most, by Kingman", bound, found, most=True)]


def _gangs(mix: Gangs, share: float) -> Callable[[Simulator, int], list[Line]]:
    """Gangs in a strict line, beside RESET and beside a model that knows no gangs."""

    def lines(simulate: Simulator, seed: int) -> list[Line]:
        rate = share * mix.limit()
        rho = rate * load(mix.kinds) / mix.servers
        count = 40_000 if share > 0.8 else 15_000
        case = Case(f"gangs, {mix.name}, {share} of the limit", {"mean response": ()}, mix.kinds, mix.servers, rate,
                    (count, count // 6), ({"backfill": "none"},), moves=True)  # fmt: skip
        (found,) = case.measured(simulate, seed)["mean response"]
        reset = solve("MSJ RESET", lam=rate, **mix.told)["mean response"]
        alone = solve("M/M/c", lam=rho * mix.servers, mu=1.0, c=mix.servers)["mean response"]
        return [
            Line(case.name, "mean response by RESET", reset, found, near=NEAR, counts=False,
                 why="right but for a constant: it shows at a low load"),
            Line(case.name, "mean response by M/M/c", alone, found, near=NEAR, counts=False,
                 why="GPUs that idle behind a gang that does not fit are not in it"),
        ]  # fmt: skip

    return lines


def _filling(rho: float) -> Callable[[Simulator, int], list[Line]]:
    """ServerFilling beside its limit."""

    def lines(simulate: Simulator, seed: int) -> list[Line]:
        rate = rho * POWERS.servers / load(POWERS.kinds)
        case = Case(f"ServerFilling, {POWERS.name}, ρ {rho}", {"mean response": ()}, POWERS.kinds, POWERS.servers, rate,
                    (6_000, 1_500), ({"order": "server_filling"},), moves=True)  # fmt: skip
        (found,) = case.measured(simulate, seed)["mean response"]
        about = solve("ServerFilling", lam=rate, **POWERS.told)["mean response"]
        return [Line(case.name, "mean response by its limit", about, found, near=NEAR, counts=False,
                     why="right but for a constant")]  # fmt: skip

    return lines


def compare(simulate: Simulator, *, seed: int, progress: Progress) -> list[Line]:
    """Every approximation beside the simulator."""
    work: list[Callable[[Simulator, int], list[Line]]] = [system.lines for system in SYSTEMS]
    work += [_kingman, *(_gangs(mix, share) for mix in (ELEPHANTS, POWERS) for share in (0.5, 0.9)), _filling(0.5)]
    work += [_filling(0.8)]
    found = []
    for k, part in enumerate(work):
        found += part(simulate, seed)
        progress("approximations", k + 1, (k + 1) / len(work))
    return found
