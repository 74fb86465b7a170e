"""Which layouts are possible: against what NVIDIA and others published, and against brute force."""

import json
from collections import Counter
from functools import reduce
from itertools import product
from operator import or_

import pytest
from realtest.archives import gpu_sharing

from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing.mig import layouts
from fleetlab.gpu.sharing.mig.layouts import (
    BY_NAME,
    MigGpu,
    MigProfile,
    layout_name,
    maximal_layouts,
    mig_gpu,
    parse_layout,
    parse_placements,
    parse_profiles,
    place,
    slices_left,
)

PROBE = gpu_sharing() / "h200" / "probe.json"
# The 18 layouts of an A100 in MISO's repository (Li et al., SoCC 2022), as slices of compute.
MISO = (
    7,
    214,
    1114,
    33,
    213,
    1113,
    322,
    3211,
    3112,
    31111,
    2122,
    21211,
    21112,
    111211,
    111112,
    211111,
    121111,
    1111111,
)


@pytest.fixture(params=BY_NAME)
def cut(request):
    return BY_NAME[request.param]


@pytest.fixture
def classic():
    """An A100 without the profiles that came later: 1g with twice the memory, and with media extensions."""
    card = mig_gpu("A100-40")
    return MigGpu(card.name, tuple(p for p in card.profiles if p.name not in ("1g.10gb", "1g.5gb+me")), card.sms)


@pytest.fixture(params=[name for name, cut in BY_NAME.items() if cut.slices == 7])
def seven(request):
    """The cards with 7 compute slices and 8 memory slices."""
    return BY_NAME[request.param]


def slices(layout):
    return "".join(sorted((str(one.profile.slices) for one in layout), reverse=True))


def test_what_we_know_of_an_h200_is_what_one_told():
    table = json.loads(PROBE.read_text())["mig profiles"]
    known_ = [(p.name, p.id, p.sms, p.memory_gib, p.most) for p in mig_gpu("H200").profiles]
    assert parse_profiles(table, 0) == known_


def test_profiles_of_another_card_are_not_ours():
    table = json.loads(PROBE.read_text())["mig profiles"]
    with pytest.raises(BenchError, match="no MIG profiles for GPU 1"):
        parse_profiles(table, 1)


@pytest.mark.parametrize("garbage", ["", "No MIG-supported devices found.", "\x00\x01|||", "| 0 MIG | x"])
def test_what_is_not_a_table_of_profiles_is_refused(garbage):
    with pytest.raises(BenchError, match="lists no MIG profiles"):
        parse_profiles(garbage, 0)


def test_places_are_read_as_the_driver_prints_them():
    said = "GPU  0 Profile ID 15 Placements: {0,2,4,6}:2\nGPU  0 Profile ID  0 Placement : {0}:8\n"
    assert parse_placements(said + "GPU  1 Profile ID  5 Placement : {0}:4\n", 0) == {
        15: (2, (0, 2, 4, 6)),
        0: (8, (0,)),
    }


def test_a_card_holds_as_many_of_each_profile_as_nvidia_says_and_no_more(cut):
    for profile in cut.profiles:
        assert len(place(cut, [profile.name] * profile.most)) == profile.most
        with pytest.raises(BenchError, match="not possible"):
            place(cut, [profile.name] * (profile.most + 1))


def test_an_a100_has_19_layouts_by_place_and_14_by_size(classic):
    # Left half 4, 3, 22, 211, 112 or 1111; right half 3, 21 or 111; or all of it: 6 × 3 + 1.
    found = maximal_layouts(classic)
    assert len(found) == 19
    assert len({slices(layout) for layout in found}) == 14


def test_misos_layouts_are_ours_but_for_4_and_3(classic):
    ours = {slices(layout) for layout in maximal_layouts(classic)}
    theirs = {"".join(sorted(str(code), reverse=True)) for code in MISO}
    assert len(MISO) == 18
    assert ours - theirs == {"43"}
    assert not theirs - ours


def test_maximal_layouts_are_those_of_brute_force(cut):
    every = [layouts.Placement(start, p) for p in cut.profiles if p.plain for start in p.starts]
    taken = [0] * (1 << len(every))  # slices of each subset, or -1 where two overlap
    for subset in range(1, len(taken)):
        low = subset & -subset
        rest, one = taken[subset ^ low], every[low.bit_length() - 1].bits
        taken[subset] = -1 if rest < 0 or rest & one else rest | one
    good = [s for s, bits in enumerate(taken) if bits > 0 and all(bits & one.bits for one in every)]
    expected = {frozenset(str(one) for k, one in enumerate(every) if s >> k & 1) for s in good}
    assert {frozenset(map(str, layout)) for layout in maximal_layouts(cut)} == expected


def test_on_these_cards_counts_and_sums_of_slices_decide(seven):
    cut = seven
    # Nowhere do the slices suffice while their places do not: checked for all 127 choices.
    seen = 0
    for counts in product(*(range(p.most + 1) for p in cut.profiles)):
        wanted = [p for p, n in zip(cut.profiles, counts, strict=True) for _ in range(n)]
        if not wanted or sum(p.slices for p in wanted) > 7 or sum(p.size for p in wanted) > 8:
            continue
        seen += 1
        placed = place(cut, [p.name for p in wanted])
        assert Counter(one.profile for one in placed) == Counter(wanted)
        assert reduce(or_, (one.bits for one in placed)).bit_count() == sum(p.size for p in wanted)
    assert seen == 127


def test_no_layout_has_more_sms_than_the_card(cut):
    whole = max(p.sms for p in cut.profiles)
    assert all(sum(one.profile.sms for one in layout) <= whole for layout in maximal_layouts(cut))


def test_a_layout_is_placed_so_that_more_can_be_added(seven):
    cut = seven
    three, one = cut.profiles[4].name, cut.profiles[0].name
    # From slice 0 the 3g would shut out a fourth 1g: its half has four slices of memory and of compute.
    assert [str(p) for p in place(cut, [three])] == [f"{three}:4"]
    assert len(place(cut, [three] + [one] * 4)) == 5


def test_what_is_left_over_is_told():
    h200 = mig_gpu("H200")
    assert slices_left(place(h200, parse_layout("2x3g.71gb")), h200) == (1, 0)
    assert slices_left(place(h200, parse_layout("7x1g.18gb")), h200) == (0, 1)


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ("8x1g.18gb", "8 of 1g.18gb, but a GPU holds at most 7"),
        ("4g.71gb,2x2g.35gb", "need 4 + 2 + 2 = 8 compute slices, but a GPU has 7"),
        ("2x3g.71gb,1g.18gb", "2x3g.71gb and 1g.18gb need 4 + 4 + 1 = 9 memory slices, but a GPU has 8"),
        ("7g.141gb,1g.18gb+me", "7 + 1 = 8 compute slices"),
        ("2x1g.18gb+me", "at most 1"),
    ],
)
def test_what_does_not_fit_is_told_in_slices(layout, why):
    with pytest.raises(BenchError) as e:
        place(mig_gpu("H200"), parse_layout(layout))
    assert why in str(e.value)
    assert "layouts --model H200-141" in e.value.hint


def test_slices_that_would_do_in_all_but_not_where_they_are_are_told_so():
    odd = MigProfile("2g.2gb", 1, 2, 2.0, 3, 2, (1, 3))
    card = MigGpu(
        "odd", (odd, MigProfile("4g.4gb", 0, 4, 4.0, 1, 4, (0,)), MigProfile("7g.8gb", 2, 7, 8.0, 1, 8, (0,))), 7
    )
    with pytest.raises(BenchError, match=r"2g.2gb needs 2 memory slices starting at 1, 3, and beside 4g.4gb none"):
        place(card, ["4g.4gb", "2g.2gb"])


@pytest.mark.parametrize("words", ["", ",", "3g.71gb,,1g.18gb", "0x1g.18gb", "100x1g.18gb", "1g.18gb 2g.35gb", "3x"])
def test_what_is_not_a_layout_is_refused(words):
    with pytest.raises(BenchError, match=r"not a layout|no profile"):
        place(mig_gpu("H200"), parse_layout(words))


def test_a_layout_is_told_as_it_is_asked_for():
    asked = "3g.71gb,2g.35gb,2x1g.18gb"
    assert layout_name(place(mig_gpu("H200"), parse_layout(asked))) == asked


@pytest.mark.parametrize(("name", "hint"), [("A100", "A100-40, A100-80"), ("V100", "H200-141"), ("", "H200-141")])
def test_a_card_of_no_or_of_several_kinds_lists_what_there_is(name, hint):
    with pytest.raises(BenchError) as e:
        mig_gpu(name)
    assert hint in e.value.hint


def test_a_card_is_found_by_the_beginning_of_its_name():
    assert mig_gpu("h200").name == mig_gpu("H200-141").name == "H200-141"


# --- models, as published listings have them ------------------------------------------------------------------------

# Rows of `nvidia-smi mig -lgip`: name, id, number, GiB, SMs.
LISTED = {
    "A30-24": "1g.6gb 14 4 5.81 14, 1g.6gb+me 21 1 5.81 14, 2g.12gb 5 2 11.69 28, 2g.12gb+me 6 1 11.69 28, "
    "4g.24gb 0 1 23.44 56",
    "H100-94": "1g.12gb 19 7 10.75 16, 1g.12gb+me 20 1 10.75 16, 1g.24gb 15 4 21.62 26, 2g.24gb 14 3 21.62 32, "
    "3g.47gb 9 2 46.38 60, 4g.47gb 5 1 46.38 64, 7g.94gb 0 1 93.12 132",
    "GH200-96": "1g.12gb 19 7 11.0 16, 1g.12gb+me 20 1 11.0 16, 1g.24gb 15 4 23.0 26, 2g.24gb 14 3 23.0 32, "
    "3g.48gb 9 2 46.5 60, 4g.48gb 5 1 46.5 64, 7g.96gb 0 1 93.0 132",
    "RTX-PRO-6000-96": "1g.24gb 14 4 23.62 46, 1g.24gb+me 21 1 23.62 46, 1g.24gb+gfx 47 4 23.62 46, "
    "1g.24gb+me.all 65 1 23.62 46, 1g.24gb-me 67 4 23.62 46, 2g.48gb 5 2 47.38 94, 2g.48gb+gfx 35 2 47.38 94, "
    "2g.48gb+me.all 64 1 47.38 94, 2g.48gb-me 66 2 47.38 94, 4g.96gb 0 1 95.0 188, 4g.96gb+gfx 32 1 95.0 188",
}
# And of `-lgipp`.
PLACED = {
    "A30-24": {14: (1, (0, 1, 2, 3)), 21: (1, (0, 1, 2, 3)), 5: (2, (0, 2)), 6: (2, (0, 2)), 0: (4, (0,))},
    "RTX-PRO-6000-96": dict.fromkeys((14, 21, 47, 65, 67), (3, (0, 3, 6, 9)))
    | dict.fromkeys((5, 35, 64, 66), (6, (0, 6)))
    | dict.fromkeys((0, 32), (12, (0,))),
}


@pytest.mark.parametrize("model", LISTED)
def test_profiles_are_those_that_a_card_of_the_model_listed(model):
    ours = [f"{p.name} {p.id} {p.most} {p.memory_gib} {p.sms}" for p in BY_NAME[model].profiles]
    assert ours == LISTED[model].split(", ")


@pytest.mark.parametrize("model", PLACED)
def test_placements_are_those_that_a_card_of_the_model_listed(model):
    assert {p.id: (p.size, p.starts) for p in BY_NAME[model].profiles} == PLACED[model]


def test_a_b200_has_what_nvidias_listing_shows_and_says_what_it_does_not():
    card = mig_gpu("B200")
    assert [(p.name, p.sms) for p in card.profiles[:4]] == [
        ("1g.23gb", 18),
        ("1g.23gb+me", 18),
        ("1g.45gb", 30),
        ("2g.45gb", 36),
    ]
    assert "not from a listing" in card.notes[0]


@pytest.mark.parametrize(
    ("product", "model"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100-40"),
        ("NVIDIA A100-PCIE-40GB", "A100-40"),
        ("NVIDIA A100 80GB PCIe", "A100-80"),
        ("NVIDIA A30", "A30-24"),
        ("NVIDIA H100 80GB HBM3", "H100-80"),
        ("NVIDIA H100 NVL", "H100-94"),
        ("NVIDIA GH200 480GB", "GH200-96"),
        ("NVIDIA H200", "H200-141"),
        ("NVIDIA B200", "B200-180"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000-96"),
    ],
)
def test_a_product_name_of_the_driver_is_a_model(product, model):
    assert mig_gpu(product).name == model


def test_an_h100_with_fewer_sms_is_not_taken_for_one_with_132():
    with pytest.raises(BenchError, match="unknown GPU model with MIG: `NVIDIA H100 PCIe`"):
        mig_gpu("NVIDIA H100 PCIe")


def test_a_profile_may_be_named_by_its_slices(cut):
    one = cut.profile("1g")
    assert (one.slices, one.plain, one.size) == (1, True, min(p.size for p in cut.profiles))


def test_an_a30_has_5_layouts_by_place():
    # Each half is 2 or 11; or all of it: 2 × 2 + 1.
    assert len(maximal_layouts(mig_gpu("A30"))) == 5
