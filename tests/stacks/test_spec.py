"""A spec: what it may hold, what cannot be, and that writing it down loses nothing."""

import pytest

from fleetlab.devices.errors import BenchError
from fleetlab.sharing.modes import Share
from fleetlab.stacks.gpu_models import BY_NAME, by_ids, known
from fleetlab.stacks.spec import Spec
from fleetlab.stacks.spec_file import parse, written


def refusal(text):
    with pytest.raises(BenchError) as caught:
        parse(text, "lab.toml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('mode = "mig"\ncard = "H200"\nlayout = "3g.71gb"\nreplicas = 7', "7 of 3g.71gb, and a card holds at most 2"),
        ('mode = "mig"\nlayout = "7x3g.71gb"', "7 of 3g.71gb, and a card holds at most 2"),
        ('mode = "mig"\ncard = "H200"\nlayout = "2x3g.71gb,1g.18gb"', "= 9 slices of memory, and a card has 8"),
        ('mode = "mig"\ncard = "V100-16"\nlayout = "1g.5gb"', "no MIG on the card V100-16"),
        (
            'mode = "mig"\ncard = "A100-40"\nlayout = "1g.18gb"',
            "no profile by that name on the card A100-40: `1g.18gb`",
        ),
        ('mode = "mig"\nlayout = "9g.999gb"', "no card that we know has these profiles: 9g.999gb"),
        ('mode = "mig"\nlayout = "1g.18gb,1g.5gb"', "no card that we know has these profiles: 1g.18gb, 1g.5gb"),
        ('mode = "mig"', "not a layout"),
        ('mode = "mig"\nlayout = "1g.18gb"\npercent = 50', "limits under mig: percent"),
        ('mode = "mig"\nlayout = "1g.18gb"\nturns = 0', "turns is a whole number from 1 to 100: 0"),
        ('mode = "mps"\nfractions = [0.5, 0.6]', "fractions that exceed the card: 0.5 + 0.6 = 1.1"),
        ('mode = "mps"\nfractions = [nan]', "not fractions of a card"),
        ('mode = "mps"\nfractions = []', "not fractions of a card"),
        ('mode = "mps"\nfractions = [true]', "not fractions of a card"),
        ('mode = "mps"\nfractions = [-0.5]', "not fractions of a card"),
        ('mode = "mps"\nfractions = [0.5]\npercent = 3', "fractions say the limits already: percent"),
        ('mode = "mps"\nreplicas = 2\nfractions = [0.5]', "tenants are said twice: replicas and fractions"),
        ('mode = "mps"\ncard = "T4"\nreplicas = 2\nmemory_mib = 20000', "above the memory of the card T4: 20000 MiB"),
        ('mode = "mps"\nreplicas = 2\npercent = 101', "not a percentage of the SMs: 101"),
        ('mode = "mps"\nreplicas = 2\npercent = 2.5', "percent is a whole number: 2.5"),
        ('mode = "mps"\nreplicas = 2\npriority = 3', "not a client priority: 3"),
        ('mode = "mps"', "how many tenants?"),
        ('mode = "mps"\nreplicas = 0', "replicas is a whole number from 1 to 100: 0"),
        ('mode = "mps"\nreplicas = true', "replicas is a whole number from 1 to 100: True"),
        ('mode = "mps"\nreplicas = 2\nlayout = "1g.18gb"', "layout belong to mig, and the mode is `mps`"),
        ('mode = "mps"\nreplicas = 2\ninterval = "short"', "belongs to time-slicing, and the mode is mps"),
        ('mode = "mps"\n[[tenant]]\nspeed = 2', "no such key of a tenant: speed"),
        ('mode = "mps"\npercent = 5\n[[tenant]]\npercent = 2', "limits beside [[tenant]]: percent"),
        ('mode = "mps"\ntenant = 3', "tenants are tables"),
        ('mode = "time-slicing"\nreplicas = 1', "not a number of tenants for time-slicing: 1"),
        ('mode = "time-slicing"\nreplicas = 2\npriority = 1', "priority belongs to mps"),
        ('mode = "time-slicing"\nreplicas = 2\ninterval = "2ms"', "no interval by that name: `2ms`"),
        ('mode = "exclusive"\nreplicas = 2', "exclusive is one tenant without limits"),
        ('mode = "turns"\nreplicas = 2', "no mode by that name: `turns`"),
        ('mode = "turns"', "no mode by that name: `turns`"),
        ('mode = "turns"\nlayout = "1g.18gb"', "no mode by that name: `turns`"),
        ("mode = 3", "mode is a word in quotes: 3"),
        ('mode = "exclusive"\ncard = "K80"', "no card by that name: `K80`"),
        ('mode = "exclusive"\ncard = "A100"', "several cards by that name: `A100`"),
        ('mode = "exclusive"\nname = "Lab!"', "not a name for Kubernetes: `Lab!`"),
        ('mode = "exclusive"\nimage = "a b"', "not an image: `a b`"),
        ('mode = "exclusive"\nnode = {"a b" = "c"}', "not a label of a node: `a b=c`"),
        ('mode = "exclusive"\nnode = "gpu"', "not labels of a node"),
        ('mode = "exclusive"\nspeed = 1', "no such key: speed"),
        ('mode = "mps"\nreplicas = 2\nmemory_mib = 99999999999999999999', "above the memory of any card"),
        ("mode = ", "not TOML"),
        ("mode = " + "[" * 3000, "not TOML"),
    ],
)
def test_what_cannot_be_is_refused_with_what_and_where(text, says):
    assert says in refusal(text)
    assert refusal(text).startswith("lab.toml: ")


def test_a_spec_without_a_mode_is_told_so():
    assert refusal("replicas = 2") == "lab.toml: no mode"


def test_fractions_are_parts_of_the_card_rounded_down():
    spec = parse('mode = "mps"\ncard = "H200"\nfractions = [0.5, 0.29, 0.1]', "lab.toml")
    # 143,771 MiB by half is 71,885.5; by 0.29 it is 41,693.59; a tenth is 14,377.1.
    assert spec.tenants == (Share(50, 71885), Share(29, 41693), Share(10, 14377))


def test_fractions_without_a_card_are_parts_of_its_processors_only():
    assert parse('mode = "mps"\nfractions = [0.25, 0.75]', "x").tenants == (Share(25), Share(75))


def test_replicas_of_a_layout_are_that_many_of_it():
    assert parse('mode = "mig"\nlayout = "3g.71gb"\nreplicas = 2', "x").layout == ("3g.71gb", "3g.71gb")


@pytest.mark.parametrize(
    "spec",
    [
        Spec("exclusive", (Share(),), name="one", node=(("a", "b"), ("c.d/e", "f"))),
        Spec("time-slicing", (Share(),) * 3, interval="long", namespace="gpu-lab"),
        Spec("mps", (Share(50, 100, 1), Share(None, 3)), card="H200-141", image="a:1", queue="q"),
        Spec("mig", layout=("3g.71gb", "1g.18gb", "1g.18gb"), turns=4),
    ],
    ids=lambda spec: spec.mode,
)
def test_a_spec_written_down_and_read_is_the_same(spec):
    assert parse(written(spec), "back") == spec


def test_every_card_is_known_by_its_ids_and_no_id_is_of_two():
    ids = [i for model in BY_NAME.values() for i in model.ids]
    assert len(ids) == len(set(ids))
    assert all(by_ids(frozenset(m.ids[:1])) is m for m in BY_NAME.values() if m.ids)
    assert by_ids(frozenset(known("H200").ids) | {"0x20B010DE"}) is None
    assert by_ids(frozenset()) is None
