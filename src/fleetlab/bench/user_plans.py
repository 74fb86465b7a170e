"""Plans with servers of a language model and users of notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from fleetlab.bench.plans import SIX, WHOLE, BenchCell, Seat, SuitePlan, Tenant, mix_seats, shuffle_cells
from fleetlab.sharing.modes import Share


def llm(seed: int = 0, blocks: int = 1, counts: Sequence[int] = (1, 2, 4)) -> SuitePlan:
    """Servers of a language model: several, and one beside a training.

    A window is some ten times as long as a request, or it does not tell whether a server keeps up.
    """
    trainings, half = ("resnet-train", "bert-train"), Share(50)
    cells: list[BenchCell] = []
    for name, mode, share in (
        ("llm-ts", "time-slicing", WHOLE),
        ("llm-mps", "mps", WHOLE),
        ("llm-mps-50", "mps", half),
    ):
        # With limits each of four gets a quarter, as the device plugin of Kubernetes divides a GPU.
        once = [_copies(name, mode, "llm-serve", n, Share(25) if share == half and n > 2 else share) for n in counts]
        once += [BenchCell(name, mode, 0, mix_seats(("llm-serve", t), share)) for t in trainings]
        once += [BenchCell(name, mode, 0, (Seat(t),)) for t in trainings if share == WHOLE]
        cells += shuffle_cells(once, blocks=blocks, seed=seed)
    tenants = {"llm-serve": Tenant("llm-serve")} | {t: SIX[t] for t in trainings}
    return SuitePlan("llm", tenants, tuple(cells), settle=5.0, window=30.0, seed=seed)


def notebook(seed: int = 0, blocks: int = 1, counts: Sequence[int] = (1, 2, 4, 8)) -> SuitePlan:
    """Users of notebooks: several, and four of them beside a training or a server of a language model."""
    others = ("resnet-train", "llm-serve")
    cells: list[BenchCell] = []
    for name, mode in (("notebook-ts", "time-slicing"), ("notebook-mps", "mps")):
        once = [_copies(name, mode, "notebook", n) for n in counts]
        once += [BenchCell(name, mode, 0, mix_seats((*("notebook",) * 4, other), WHOLE)) for other in others]
        once += [BenchCell(name, mode, 0, (Seat(other),)) for other in others]
        cells += shuffle_cells(once, blocks=blocks, seed=seed)
    tenants = {name: Tenant(name) for name in ("notebook", *others)}
    return SuitePlan("notebook", tenants, tuple(cells), settle=2.0, window=25.0, seed=seed)


def _copies(stage: str, mode: str, tenant: str, n: int, share: Share = WHOLE) -> BenchCell:
    seats = tuple(Seat(tenant, k, share) for k in range(n))
    return BenchCell(stage, mode, 0, seats, label=f"{n}x{seats[0]}" if n > 1 else "")
