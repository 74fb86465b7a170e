"""Every model by name: what it takes, how good it is, where it holds, where it comes from."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from fleetlab.queueing.formulas import ggm, infinite, loss, mg1, mmc, multiserver, priority, sharing, staffing
from fleetlab.queueing.formulas.output import FormulaOutput


@dataclass(frozen=True, slots=True)
class QueueModel:
    """A formula and what must be known of it; `kind` is exact, approximate, asymptotic or bound."""

    name: str
    formula: Callable[..., FormulaOutput]
    kind: str
    holds: str
    source: str

    @property
    def takes(self) -> tuple[str, ...]:
        """Its parameters, as the theory names them."""
        return tuple(inspect.signature(self.formula).parameters)


EXACT, NEAR, LIMIT, BOUND = "exact", "approximate", "asymptotic", "bound"

_ALL: tuple[tuple[str, Callable[..., FormulaOutput], str, str, str], ...] = (
    ("M/M/1", mmc.mm1, EXACT, "Poisson arrivals, exponential service times, one server", "Erlang 1917"),
    ("M/M/c", mmc.mmc, EXACT, "Poisson arrivals, exponential service times, c identical servers, one queue",
     "Erlang 1917"),
    ("Erlang B", mmc.blocked, EXACT, "Poisson arrivals, jobs that find no free server are lost; any service times",
     "Erlang 1917"),
    ("Erlang C", mmc.delayed, EXACT, "Poisson arrivals, exponential service times", "Erlang 1917"),
    ("M/G/1", mg1.fcfs, EXACT, "Poisson arrivals, one server, order independent of service times",
     "Pollaczek 1930, Khinchine 1932"),
    ("M/G/1 PS", mg1.ps, EXACT, "Poisson arrivals, one server shared equally; any service time distribution",
     "Sakata, Noguchi, Oizumi 1971"),
    ("M/G/1 SJF", mg1.sjf, EXACT, "Poisson arrivals, one server, runtimes known, no preemption",
     "Phipps 1956, after Cobham 1954"),
    ("M/G/1 SRPT", mg1.srpt, EXACT, "Poisson arrivals, one server, runtimes known, preemptive resume",
     "Schrage, Miller 1966"),
    ("M/G/1 priority", priority.cobham, EXACT, "Poisson arrivals, one server, no preemption", "Cobham 1954"),
    ("M/G/1 preemptive priority", priority.preemptive, EXACT, "Poisson arrivals, one server, preemptive resume",
     "White, Christie 1958; Miller 1960"),
    ("M/M/c priority", priority.mmc_priority, EXACT, "exponential service times of one mean, no preemption",
     "Cobham 1954; Kella, Yechiali 1985"),
    ("M/M/c preemptive priority", priority.mmc_preemptive, EXACT,
     "exponential service times of one mean, preemptive resume", "Buzen, Bondi 1983"),
    ("M/G/c priority", priority.bondi_buzen, NEAR, "moderate to high load, service times not far from exponential",
     "after Bondi, Buzen 1984, with Whitt 1993"),
    ("M/G/inf", infinite.mg_inf, EXACT, "Poisson arrivals, no waiting; any service time distribution", "Palm 1943"),
    ("Mt/G/inf", infinite.mt_g_inf, EXACT, "Poisson arrivals at a periodic rate, no waiting",
     "Eick, Massey, Whitt 1993"),
    ("MOL", infinite.modified_offered_load, NEAR, "loads below c that change slowly compared with service times",
     "Jennings, Mandelbaum, Massey, Whitt 1996"),
    ("Kaufman-Roberts", loss.kaufman_roberts, EXACT,
     "Poisson arrivals, jobs that do not fit are lost; any service times", "Kaufman 1981, Roberts 1981"),
    ("Allen-Cunneen", ggm.allen_cunneen, NEAR,
     "high load, CV² near 1; too high where cs2 is far above 1 and c above 1",
     "Allen 1978, after Lee, Longton 1959"),
    ("Whitt GI/G/m", ggm.whitt, NEAR,
     "CV² up to a few; for c = 1 and Poisson arrivals M/G/1 is exact; two moments do not determine the wait",
     "Whitt 1993; Gupta, Harchol-Balter, Dai, Zwart 2010 for its limits"),
    ("Cosmetatos M/D/c", ggm.cosmetatos, NEAR, "Poisson arrivals, constant service times", "Cosmetatos 1975"),
    ("Bjorklund-Elldin M/G/c", ggm.bjorklund_elldin, NEAR, "Poisson arrivals, cs2 from 0 to 1",
     "Björklund, Elldin 1964; Cosmetatos 1975"),
    ("Kraemer-Langenbach-Belz", ggm.kraemer_langenbach_belz, NEAR, "one server, ca2 not far above 1",
     "Krämer, Langenbach-Belz 1976"),
    ("Kingman", ggm.kingman, BOUND, "one server, independent inter-arrival and service times; tight at high load",
     "Kingman 1962"),
    ("Halfin-Whitt", staffing.halfin_whitt, LIMIT, "many servers, high load, exponential service times",
     "Halfin, Whitt 1981"),
    ("square-root staffing", staffing.square_root, LIMIT,
     "many servers, exponential service times; Erlang C beside it is exact",
     "Halfin, Whitt 1981; Borst, Mandelbaum, Reiman 2004"),
    ("M/G/c PS", sharing.pooled, EXACT, "jobs spread evenly over all GPUs; any service time distribution",
     "Cohen 1979"),
    ("GPU sharing", sharing.shared, EXACT,
     "one GPU with its own Poisson arrivals; too high where a scheduler balances load", "Cohen 1979"),
    ("MSJ saturated", multiserver.saturated, EXACT, "FCFS, exponential service times by class",
     "Baccelli, Foss 1995; Grosof, Harchol-Balter, Scheller-Wolf 2020"),
    ("MSJ two classes", multiserver.two_classes, EXACT, "as MSJ saturated, for two classes and any c",
     "Grosof, Harchol-Balter, Scheller-Wolf 2020"),
    ("MSJ RESET", multiserver.reset, LIMIT, "loads near maximum throughput; constant additive error",
     "Grosof, Hong, Harchol-Balter, Scheller-Wolf 2023"),
    ("ServerFilling", multiserver.server_filling, LIMIT,
     "c and needs that are powers of 2, high load; constant additive error",
     "Grosof, Harchol-Balter, Scheller-Wolf 2022"),
)  # fmt: skip
MODELS = {row[0]: QueueModel(*row) for row in _ALL}
