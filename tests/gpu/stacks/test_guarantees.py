"""What is left of a guarantee in each stack, and where the lab measured it."""

import re
from pathlib import Path

import pytest

from fleetlab.gpu.sharing.modes import Share
from fleetlab.gpu.stacks import Spec, emit
from fleetlab.gpu.stacks.emitting import MEASURED, STRENGTHS
from fleetlab.gpu.stacks.formats import BY_NAME
from fleetlab.gpu.stacks.formats.format import about_stack

ROOT = Path(__file__).parents[3]
MPS = Spec("mps", (Share(50, 8000),) * 2)
TURNS = Spec("time-slicing", (Share(50, 8000),) * 2)
CUT = Spec("mig", layout=("3g.71gb", "3g.71gb"))


def kept(spec, to):
    return {one.guarantee: one.kept for one in emit(spec, to=to).guarantees}


def test_a_link_leads_to_a_heading():
    links = set(MEASURED.values())
    for link in links:
        page, _, anchor = link.partition("#")
        titles = re.findall(r"^#+ (.+)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
        slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
        assert anchor in slugs, link


@pytest.mark.parametrize(
    ("spec", "to", "memory", "compute", "faults", "fair"),
    [
        (MPS, "dra", "by the driver", "by the driver", "none", "by the driver"),
        (MPS, "env", "by consent", "by consent", "none", "by consent"),
        (MPS, "hami", "by a library", "on average", "by the driver", "by the driver"),
        (MPS, "kai", "by the driver", "none", "none", "none"),
        (MPS, "kueue", "none", "none", "none", "none"),
        (MPS, "device-plugin", "by the driver", "by the driver", "none", "by the driver"),
        (TURNS, "device-plugin", "none", "none", "by the driver", "by the driver"),
        (TURNS, "volcano", "by a library", "on average", "by the driver", "by the driver"),
        (TURNS, "kueue", "by placement", "by placement", "by the driver", "by the driver"),
        (CUT, "mig-parted", *["by the hardware"] * 4),
        (CUT, "kueue", *["by placement"] * 4),
        (CUT, "kai", *["by the hardware"] * 4),
        (CUT, "dra", *["by the hardware"] * 4),
    ],
)
def test_what_is_kept_of_a_promise(spec, to, memory, compute, faults, fair):
    assert list(kept(spec, to).values()) == [memory, compute, faults, fair]


def test_a_limit_that_only_some_tenants_have_is_no_promise():
    assert kept(Spec("mps", (Share(50, 8000), Share())), "dra")["memory cap"] == "none"


def test_unequal_limits_in_a_claim_hang_on_the_tenant():
    assert kept(Spec("mps", (Share(50, 8000), Share(25, 8000))), "dra")["compute cap"] == "by consent"


def test_turns_on_an_instance_are_as_turns_on_a_card():
    assert kept(Spec("mig", layout=("3g.71gb",), turns=2), "dra")["memory cap"] == "none"


def test_every_word_for_a_strength_is_one_of_the_scale():
    weaker = [about_stack(name).get("weaker", {}) for name in BY_NAME]
    assert {strength for one in weaker for strength, _ in one.values()} <= set(STRENGTHS)
