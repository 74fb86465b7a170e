"""A spec: what it may hold, what cannot be, and that writing it down loses nothing."""

import pytest

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing.modes import Share
from fleetlab.gpu.stacks.spec import BY_NAME, Spec, by_ids, gpu_model, parse, to_toml


def refusal(text):
    with pytest.raises(BenchError) as caught:
        parse(text, "lab.toml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('mode = "mig"\ngpu = "H200"\nlayout = "3g.71gb"\nreplicas = 7', "7 of 3g.71gb, but a GPU holds at most 2"),
        ('mode = "mig"\nlayout = "7x3g.71gb"', "7 of 3g.71gb, but a GPU holds at most 2"),
        ('mode = "mig"\ngpu = "H200"\nlayout = "2x3g.71gb,1g.18gb"', "= 9 memory slices, but a GPU has 8"),
        ('mode = "mig"\ngpu = "V100-16"\nlayout = "1g.5gb"', "V100-16 does not support MIG"),
        ('mode = "mig"\ngpu = "A100-40"\nlayout = "1g.18gb"', "A100-40 has no profile `1g.18gb`"),
        ('mode = "mig"\nlayout = "9g.999gb"', "no known GPU model has these profiles: 9g.999gb"),
        ('mode = "mig"\nlayout = "1g.18gb,1g.5gb"', "no known GPU model has these profiles: 1g.18gb, 1g.5gb"),
        ('mode = "mig"', "not a layout"),
        ('mode = "mig"\nlayout = "1g.18gb"\npercent = 50', "limits under mig: percent"),
        ('mode = "mig"\nlayout = "1g.18gb"\nturns = 0', "turns must be an integer from 1 to 100: 0"),
        ('mode = "mps"\nfractions = [0.5, 0.6]', "fractions exceed the GPU: 0.5 + 0.6 = 1.1"),
        ('mode = "mps"\nfractions = [nan]', "not fractions of a GPU"),
        ('mode = "mps"\nfractions = []', "not fractions of a GPU"),
        ('mode = "mps"\nfractions = [true]', "not fractions of a GPU"),
        ('mode = "mps"\nfractions = [-0.5]', "not fractions of a GPU"),
        ('mode = "mps"\nfractions = [0.5]\npercent = 3', "fractions set the limits already: percent"),
        ('mode = "mps"\nreplicas = 2\nfractions = [0.5]', "tenants are given twice: replicas and fractions"),
        ('mode = "mps"\ngpu = "T4"\nreplicas = 2\nmemory_mib = 20000', "above the memory of the GPU T4: 20000 MiB"),
        ('mode = "mps"\nreplicas = 2\npercent = 101', "not an active thread percentage: 101"),
        ('mode = "mps"\nreplicas = 2\npercent = 2.5', "percent must be an integer: 2.5"),
        ('mode = "mps"\nreplicas = 2\npriority = 3', "not a client priority: 3"),
        ('mode = "mps"', "number of tenants is missing"),
        ('mode = "mps"\nreplicas = 0', "replicas must be an integer from 1 to 100: 0"),
        ('mode = "mps"\nreplicas = true', "replicas must be an integer from 1 to 100: True"),
        ('mode = "mps"\nreplicas = 2\nlayout = "1g.18gb"', "layout need mode mig, not `mps`"),
        ('mode = "mps"\nreplicas = 2\ninterval = "short"', "needs mode time-slicing, not mps"),
        ('mode = "mps"\n[[tenant]]\nspeed = 2', "unknown key of a tenant: speed"),
        ('mode = "mps"\npercent = 5\n[[tenant]]\npercent = 2', "limits beside [[tenant]]: percent"),
        ('mode = "mps"\ntenant = 3', "tenants must be tables"),
        ('mode = "time-slicing"\nreplicas = 1', "not a number of tenants for time-slicing: 1"),
        ('mode = "time-slicing"\nreplicas = 2\npriority = 1', "priority needs mode mps"),
        ('mode = "time-slicing"\nreplicas = 2\ninterval = "2ms"', "unknown interval: `2ms`"),
        ('mode = "exclusive"\nreplicas = 2', "mode exclusive has one tenant without limits"),
        ('mode = "turns"\nreplicas = 2', "unknown mode: `turns`"),
        ('mode = "turns"', "unknown mode: `turns`"),
        ('mode = "turns"\nlayout = "1g.18gb"', "unknown mode: `turns`"),
        ("mode = 3", "mode must be a string: 3"),
        ('mode = "exclusive"\ngpu = "K80"', "unknown GPU model: `K80`"),
        ('mode = "exclusive"\ngpu = "A100"', "ambiguous GPU model: `A100`"),
        ('mode = "exclusive"\nname = "Lab!"', "not a valid name in Kubernetes: `Lab!`"),
        ('mode = "exclusive"\nimage = "a b"', "not an image name: `a b`"),
        ('mode = "exclusive"\nnode = {"a b" = "c"}', "not a node label: `a b=c`"),
        ('mode = "exclusive"\nnode = "gpu"', "not node labels"),
        ('mode = "exclusive"\nspeed = 1', "unknown key: speed"),
        ('mode = "mps"\nreplicas = 2\nmemory_mib = 99999999999999999999', "above the memory of any GPU"),
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
    spec = parse('mode = "mps"\ngpu = "H200"\nfractions = [0.5, 0.29, 0.1]', "lab.toml")
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
        Spec("mps", (Share(50, 100, 1), Share(None, 3)), gpu="H200-141", image="a:1", queue="q"),
        Spec("mig", layout=("3g.71gb", "1g.18gb", "1g.18gb"), turns=4),
    ],
    ids=lambda spec: spec.mode,
)
def test_a_spec_written_down_and_read_is_the_same(spec):
    assert parse(to_toml(spec), "back") == spec


def test_every_card_is_known_by_its_ids_and_no_id_is_of_two():
    ids = [i for model in BY_NAME.values() for i in model.ids]
    assert len(ids) == len(set(ids))
    assert all(by_ids(frozenset(m.ids[:1])) is m for m in BY_NAME.values() if m.ids)
    assert by_ids(frozenset(gpu_model("H200").ids) | {"0x20B010DE"}) is None
    assert by_ids(frozenset()) is None
