"""Quotas of queues as rows that one can read and edit, whatever the scheduler calls its amounts."""

from dataclasses import replace

import pytest

from fleetlab import PolicyError
from fleetlab.core.schedulers import scheduler_of, schedulers

GPU = "nvidia.com/gpu"
SITES = {
    "kueue": {
        "cluster_queues": [
            {"name": team, "cohort": "lab", "weight": 2.0, "groups": [{"covered": [GPU, "cpu"], "flavors": {
                "h100": {GPU: {"nominal": 8, "borrowing_limit": 4}, "cpu": {"nominal": 1500}}}}]}
            for team in ("vision", "speech")
        ],
        "cohorts": [{"name": "lab", "groups": [{"covered": [GPU], "flavors": {"h100": {GPU: {"nominal": 2}}}}]}],
    },
    "volcano": {"queues": [
        {"name": "default"},
        {"name": "vision", "weight": 3, "capability": {GPU: 8, "cpu": 4000}, "deserved": {"cpu": 2000}},
    ]},
    "kai": {"queues": [
        {"name": "all"}, {"name": "vision", "parent": "all", "quotas": {GPU: {"deserved": 8, "limit": -1}}},
    ]},
}  # fmt: skip


def site(name):
    return scheduler_of({"kind": name} | SITES[name])


def row(scheduler, queue, resource=GPU):
    return next(one for one in scheduler.quotas() if (one.queue, one.resource) == (queue, resource))


@pytest.mark.parametrize("name", SITES)
def test_rows_that_are_not_edited_change_nothing(name):
    own = site(name)
    assert own.quotas()
    assert own.with_quotas(own.quotas()).quotas() == own.quotas()


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize("amount", [3.0, None])
def test_each_amount_can_be_edited_and_all_others_stay(name, amount):
    own = site(name)
    for k, one in enumerate(own.quotas()):
        for what in set(one.amounts) - {"weight", "overQuotaWeight", "nominalQuota"}:
            other = own.with_quotas([replace(one, amounts={what: amount})]).quotas()
            assert other[k].amounts[what] == amount
            assert [r for j, r in enumerate(other) if j != k] == [r for j, r in enumerate(own.quotas()) if j != k]
            assert {n: v for n, v in other[k].amounts.items() if n != what} == {
                n: v for n, v in one.amounts.items() if n != what
            }


def test_kueue_has_quotas_of_queues_and_cohorts_by_flavor():
    own = site("kueue")
    assert row(own, "vision").amounts == {"nominalQuota": 8, "borrowingLimit": 4, "lendingLimit": None, "weight": 2.0}
    assert row(own, "vision", "cpu").amounts["nominalQuota"] == 1.5  # cores
    assert (row(own, "vision").parent, row(own, "Cohort lab").amounts["nominalQuota"]) == ("lab", 2)
    more = own.with_quotas([replace(row(own, "vision"), amounts={"nominalQuota": 12, "weight": 1})])
    assert more.cluster_queues["vision"].group_of(GPU).flavors["h100"][GPU].nominal == 12
    assert (more.cluster_queues["vision"].weight, more.cluster_queues["speech"]) == (1, own.cluster_queues["speech"])


def test_weights_can_be_edited():
    volcano, kai = site("volcano"), site("kai")
    assert volcano.with_quotas([replace(row(volcano, "vision"), amounts={"weight": 5})]).queues[1].weight == 5
    changed = kai.with_quotas([replace(row(kai, "vision"), amounts={"overQuotaWeight": 2})])
    assert changed.queues[1].quotas[GPU].weight == 2


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"queue": "visoin"}, "no quota of nvidia.com/gpu in h100 for a queue visoin"),
        ({"resource": "amd.com/gpu"}, "no quota of amd.com/gpu"),
        ({"amounts": {"nominal": 3}}, "did you mean nominalQuota"),
        ({"amounts": {"nominalQuota": -1}}, "not a number from 0 on"),
        ({"amounts": {"nominalQuota": None}}, "nominalQuota of vision needs a number"),
    ],
)
def test_an_edit_of_what_is_not_there_is_refused(edit, message):
    own = site("kueue")
    with pytest.raises(PolicyError, match=message):
        own.with_quotas([replace(row(own, "vision"), **edit)])


def test_schedulers_without_queues_have_no_quotas():
    assert [
        name for name, kind in schedulers().items() if kind.has_defaults and kind().quotas() and name not in SITES
    ] == []
