"""What a spec guarantees to its tenants, and how strongly each stack keeps it, with links to measurements."""

from __future__ import annotations

from dataclasses import dataclass

from fleetlab.stacks.isolation import isolation_records, measured_mode
from fleetlab.stacks.spec import Spec

PAGE = "docs/measurements/sharing.md"
# In order of strength; a stack that gives less than requested loses the guarantee.
STRENGTHS = (
    "none",
    "by consent",
    "by placement",
    "on average",
    "by a library",
    "by the driver",
    "by the hardware",
    "own GPU",
)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One guarantee: how strongly it was requested, and how strongly it is kept."""

    guarantee: str
    requested: str
    kept: str
    why: str
    measured: str  # where, or "not measured"

    @property
    def lost(self) -> bool:
        """Whether it is kept less strongly than requested."""
        return STRENGTHS.index(self.kept) < STRENGTHS.index(self.requested)


def guarantees_of(spec: Spec, held: Spec, stack: str) -> list[Guarantee]:
    """Each guarantee, as the spec requests it and as the stack keeps it."""
    guarantees = []
    for guarantee, strength in GUARANTEES.items():
        kept, why = _kept(held, stack, guarantee)
        requested = strength(spec)
        if not why and STRENGTHS.index(kept) < STRENGTHS.index(requested):
            why = "this stack cannot express it"
        guarantees.append(Guarantee(guarantee, requested, kept, why, _measured(held, guarantee)))
    return guarantees


def _measured(held: Spec, guarantee: str) -> str:
    """Where it was measured: by a probe of isolation, or in a suite."""
    record = isolation_records().get((measured_mode(held), guarantee))
    return record.link if record else MEASURED[guarantee].get(held.mode, "not measured")


def _kept(held: Spec, stack: str, guarantee: str) -> tuple[str, str]:
    """How strongly it is kept, and why if that is not obvious."""
    kept = GUARANTEES[guarantee](held)
    if stack in ("device-plugin", "gpu-operator") and held.mode == "mps" and guarantee == "memory cap":
        return "by the driver", EVEN
    if stack == "kueue" and held.mode == "mig":
        return "by placement", UNCUT
    weaker = WEAKER.get((stack, guarantee))
    if stack == "dra" and held.mode == "mps" and not held.equal and guarantee != "fault isolation":
        weaker = ("by consent", LARGEST)
    shared = held.mode in ("mps", "time-slicing")
    if weaker and shared and STRENGTHS.index(kept) > STRENGTHS.index(weaker[0]):
        return weaker
    return kept, ""


# --- strength of a spec without any stack ----------------------------------------------------------------------------


def _by_mode(spec: Spec) -> str | None:
    if spec.mode == "exclusive":
        return "own GPU"
    return "by the hardware" if spec.mode == "mig" and spec.turns == 1 else None


def _memory(spec: Spec) -> str:
    every = bool(spec.tenants) and all(share.memory_mib for share in spec.tenants)
    return _by_mode(spec) or ("by the driver" if every else "none")


def _compute(spec: Spec) -> str:
    every = bool(spec.tenants) and all(share.percent for share in spec.tenants)
    return _by_mode(spec) or ("by the driver" if every else "none")


def _faults(spec: Spec) -> str:
    # Under time slicing each tenant has its own context; under MPS a fatal fault of one client ends all of its server.
    return _by_mode(spec) or ("none" if spec.mode == "mps" else "by the driver")


def _fairness(spec: Spec) -> str:
    # Time slicing is fair; MPS is so only with limits.
    return _by_mode(spec) or (_compute(spec) if spec.mode == "mps" else "by the driver")


GUARANTEES = {"memory cap": _memory, "compute cap": _compute, "fault isolation": _faults, "fairness": _fairness}

# How strongly a stack keeps a guarantee, where that is weaker than the driver.
EVEN = "the plugin's daemon gives each client total/replicas, whatever was asked for"
LARGEST = "the daemon holds all to the largest limit; a tenant's own is in its environment, and it may change that"
LIBRARY = "a library loaded before CUDA holds it: a program that goes around the library goes around it"
REACTIVE = "checked about every 120 ms and corrected after: held on average, not at any time"
CONSENT = "the tenant's own environment: whoever changes it has no limit"
ADMITTED = "a quota admits pods, and holds nothing once they run"
UNCUT = "a quota counts instances, and cuts no GPU: they hold where mig-parted or the operator has cut one so"
WEAKER = {
    ("hami", "memory cap"): ("by a library", LIBRARY),
    ("hami", "compute cap"): ("on average", REACTIVE),
    ("volcano", "memory cap"): ("by a library", LIBRARY),
    ("volcano", "compute cap"): ("on average", REACTIVE),
    ("compose", "memory cap"): ("by consent", CONSENT),
    ("compose", "compute cap"): ("by consent", CONSENT),
    ("compose", "fairness"): ("by consent", CONSENT),
    ("env", "memory cap"): ("by consent", CONSENT),
    ("env", "compute cap"): ("by consent", CONSENT),
    ("env", "fairness"): ("by consent", CONSENT),
    ("kueue", "memory cap"): ("by placement", ADMITTED),
    ("kueue", "compute cap"): ("by placement", ADMITTED),
}

MEASURED: dict[str, dict[str, str]] = {
    "memory cap": {},
    "compute cap": {"mps": f"{PAGE}#parts-of-the-sms", "mig": "docs/measurements/slowdown.md#slices-mig-predicted"},
    "fault isolation": {},
    "fairness": {
        "time-slicing": f"{PAGE}#time-slicing",
        "mps": f"{PAGE}#mps-5050",
        "mig": "docs/measurements/slowdown.md#slices-mig-predicted",
    },
}
