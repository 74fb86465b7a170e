"""A layout is made, proved and undone, through a stand-in for `nvidia-smi` that can fail and lie."""

import os
import signal

import pytest

from fleetlab.gpu.devices import nvidia_smi
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing import records
from fleetlab.gpu.sharing.mig import apply
from fleetlab.gpu.sharing.mig.layouts import gpu_profiles, mig_gpu, parse_layout, place

MAKE = "mig -i 0 -cgi 2g.35gb:0,2g.35gb:2,3g.71gb:4 -C"
pytestmark = pytest.mark.usefixtures("own", "root")


@pytest.fixture
def root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.fixture
def ctrl_c():
    """Raises in this process, also where the runner of the tests has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def said():
    return []


@pytest.fixture
def layout():
    return place(mig_gpu("H200"), parse_layout("3g.71gb,2x2g.35gb"))


def as_it_was(smi):
    return not smi["instances"] and smi["mig"] == smi["pending"] == "Disabled" and records.read("mig-0") is None


def test_the_commands_and_their_undoing_are_those_one_would_type(layout):
    plan = apply.layout_commands(layout, 0)
    assert [apply.command_line(c) for c in plan.do] == ["nvidia-smi -i 0 -mig 1", f"nvidia-smi {MAKE}"]
    assert [apply.command_line(c) for c in plan.undo] == [
        "nvidia-smi mig -i 0 -dci",
        "nvidia-smi mig -i 0 -dgi",
        "nvidia-smi -i 0 -mig 0",
    ]


def test_a_layout_is_made_proved_and_undone(smi, layout, said):
    parts = apply.apply(layout, 0, progress=said.append)
    assert smi.changes == ["-i 0 -mig 1", MAKE]
    assert parts == [("2g.35gb", "MIG-1"), ("2g.35gb", "MIG-2"), ("3g.71gb", "MIG-3")]
    apply.undo(0, progress=said.append)
    assert smi.changes[2:] == ["mig -i 0 -dci -gi 1,2,3", "mig -i 0 -dgi -gi 1,2,3", "-i 0 -mig 0"]
    assert as_it_was(smi)
    assert said == [f"nvidia-smi {line}" for line in smi.changes]


def test_mig_that_was_on_stays_on(smi, layout, said):
    smi.set(mig="Enabled", pending="Enabled")
    apply.apply(layout, 0, progress=said.append)
    apply.undo(0, progress=said.append)
    assert not any("-mig" in line.split() for line in smi.changes)
    assert smi["mig"] == "Enabled"
    assert not smi["instances"]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"processes": [[4711, "python"]]}, "processes are running on GPU 0: 4711"),
        ({"mig": "[N/A]", "pending": "[N/A]"}, "GPU 0 does not support MIG"),
        (
            {"mig": "Enabled", "pending": "Enabled", "instances": [["1g.18gb", 7, 0, 1]]},
            "already has instances: 1g.18gb at 0",
        ),
        ({"pending": "Enabled"}, "after a pending reset"),
    ],
)
def test_a_card_that_is_not_free_is_refused_and_left_alone(smi, layout, said, state, why):
    smi.set(**state)
    with pytest.raises(BenchError, match=why):
        apply.apply(layout, 0, progress=said.append)
    assert smi.changes == []
    assert records.read("mig-0") is None


def test_only_root_may(smi, layout, said, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BenchError, match="only root"):
        apply.apply(layout, 0, progress=said.append)
    assert smi.changes == []


def test_a_second_layout_is_refused_while_the_first_is_remembered(smi, layout, said):
    apply.apply(layout, 0, progress=said.append)
    before = smi.changes
    with pytest.raises(BenchError, match="fleetlab created a layout"):
        apply.apply(layout, 0, progress=said.append)
    assert smi.changes == before


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        ({"fails": {"-mig": "Unable to enable MIG Mode: In use by another client"}}, "In use by another client"),
        ({"fails": {"-cgi": "Failed to create GPU instances: Insufficient Permissions"}}, "Insufficient Permissions"),
        ({"half": True}, "Insufficient Resources"),
        ({"lies": ["-mig"]}, "did not become active"),
        ({"lies": ["-cgi"]}, "created other instances: none"),
        ({"moves": {"2": 6}}, "created other instances: 2g.35gb:0, 2g.35gb:6, 3g.71gb:4"),
        ({"parts": False}, "MIG devices are: none"),
        ({"pends": True}, "Enabled after a reset"),
    ],
)
def test_what_fails_midway_is_undone(smi, layout, said, trouble, why):
    smi.set(**trouble)
    with pytest.raises(BenchError, match=why):
        apply.apply(layout, 0, progress=said.append)
    assert as_it_was(smi)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_midway_undoes(smi, layout, said):
    smi.set(interrupts=True)
    with pytest.raises(KeyboardInterrupt):
        apply.apply(layout, 0, progress=said.append)
    assert as_it_was(smi)


def test_what_cannot_be_undone_is_told_and_remembered_until_it_can(smi, layout, said):
    smi.set(parts=False, fails={"-dgi": "Failed to destroy GPU instances: In use by another client"})
    with pytest.raises(BenchError, match="rolling back failed") as e:
        apply.apply(layout, 0, progress=said.append)
    assert "share mig undo --gpu 0 --really" in e.value.hint
    smi.set(fails={})
    apply.undo(0, progress=said.append)
    assert as_it_was(smi)


def test_an_undoing_that_lies_is_found_out(smi, layout, said):
    apply.apply(layout, 0, progress=said.append)
    smi.set(lies=["-dgi", "-mig"])
    with pytest.raises(BenchError, match="is not restored"):
        apply.undo(0, progress=said.append)
    assert records.read("mig-0") is not None


def test_others_instances_are_not_undone(smi, layout, said):
    apply.apply(layout, 0, progress=said.append)
    smi.set(instances=[["1g.18gb", 9, 6, 1]])
    with pytest.raises(BenchError, match=r"fleetlab did not create: 1g\.18gb"):
        apply.undo(0, progress=said.append)
    assert smi["instances"]


def test_nothing_is_undone_while_processes_run(smi, layout, said):
    apply.apply(layout, 0, progress=said.append)
    smi.set(processes=[[4711, "python"]])
    with pytest.raises(BenchError, match="4711"):
        apply.undo(0, progress=said.append)
    assert len(smi["instances"]) == 3


def test_another_card_of_the_same_number_is_not_undone(smi, layout, said):
    apply.apply(layout, 0, progress=said.append)
    smi.set(uuid="GPU-other")
    with pytest.raises(BenchError, match="is not the one whose layout was changed"):
        apply.undo(0, progress=said.append)


def test_where_nothing_was_made_nothing_is_undone(smi, said):
    with pytest.raises(BenchError, match="fleetlab created no layout on GPU 0"):
        apply.undo(0, progress=said.append)
    assert smi["log"] == []


@pytest.mark.parametrize("text", ["{", "[]", '{"gpu": 0}'])
def test_a_record_that_is_none_is_an_error_and_changes_nothing(smi, said, own, text):
    records.write("mig-0", {})
    (own / "mig-0.json").write_text(text)
    with pytest.raises(BenchError, match="mig-0"):
        apply.undo(0, progress=said.append)
    assert smi.changes == []


def test_a_card_tells_its_own_profiles(smi):
    cut = gpu_profiles(0)
    assert cut.name == "NVIDIA H200"
    assert cut.profiles == mig_gpu("H200").profiles


def test_where_a_driver_does_not_tell_places_the_known_ones_do(smi):
    smi.set(places="")
    assert gpu_profiles(0).profiles == mig_gpu("H200").profiles


def test_an_unknown_card_that_does_not_tell_places_is_refused(smi):
    smi.set(places="", profiles=smi["profiles"].replace("1g.18gb ", "1g.29gb "))
    with pytest.raises(BenchError, match=r"unknown placements of profile `1g.29gb`"):
        gpu_profiles(0)


def test_a_card_without_mig_says_so(smi):
    smi.set(mig="[N/A]", pending="[N/A]", name="NVIDIA L4")
    with pytest.raises(BenchError, match="GPU 0 does not support MIG: NVIDIA L4"):
        gpu_profiles(0)


def test_a_list_of_instances_that_is_garbage_is_not_an_empty_one(smi):
    smi.set(garbage=True)
    with pytest.raises(BenchError, match="not a list of instances"):
        apply.instances(0)


def test_a_card_that_is_not_there_is_named(smi):
    with pytest.raises(BenchError, match="no GPU with index 3") as e:
        nvidia_smi.gpu(3)
    assert e.value.hint == "there are 0"
