"""A scenario may have the scheduler of its site with some lines or quotas changed, also in an address."""

import json
from dataclasses import replace

import pytest

from fleetlab import FleetlabError, Scenario, synthesize
from fleetlab.core.data import open_trace
from fleetlab.core.schedulers import scheduler_of
from fleetlab.core.site_change import SiteChange

FAST = "SchedulerParameters=batch_sched_delay=0,bf_interval=1,bf_resolution=1,bf_continue"
GPU = "nvidia.com/gpu"


def changed(conf):
    return json.dumps({"kind": "site", "conf": conf})


@pytest.fixture(scope="module")
def sample():
    return open_trace("sample")


def test_a_line_replaces_that_of_the_site_and_all_else_stays(sample):
    scenario = Scenario.of(sample, scheduler=changed("bf_interval=7"))
    own = sample.scheduler
    assert scenario.scheduler == replace(own, backfill=replace(own.backfill, interval=7.0))


def test_what_differs_is_named_setting_by_setting(sample):
    change = SiteChange(FAST).change(sample.scheduler, sample.cluster)
    assert {s.name: (s.was, s.becomes) for s in change.settings} == {
        "batch_sched_delay": ("3", "0"), "bf_interval": ("30", "1"), "bf_resolution": ("60", "1"),
        "bf_continue": ("no", "yes"),
    }  # fmt: skip


def test_a_whole_file_may_be_given_and_what_is_of_no_concern_is_noted(sample):
    conf = f"ClusterName=lab\nSchedulerTyp=x\n{FAST}\n"
    change = SiteChange(conf).change(sample.scheduler, sample.cluster)
    assert len(change.settings) == 4
    assert any("SchedulerTyp" in note for note in change.notes)


def test_it_comes_back_from_an_address():
    scenario = Scenario.of("sample", scheduler=changed(FAST))
    again = Scenario.from_query(scenario.to_query())
    assert again.policy.scheduler == SiteChange(FAST)
    assert again.key == scenario.key
    assert scenario.title.startswith("site with SchedulerParameters=")


def test_a_line_is_never_the_name_of_a_file(sample, tmp_path):
    conf = tmp_path / "slurm.conf"
    conf.write_text(FAST)
    with pytest.raises(FleetlabError, match=r"not a line of slurm\.conf"):
        SiteChange(str(conf)).change(sample.scheduler, sample.cluster)


def test_amounts_of_queues_change_as_with_quotas_does():
    own = scheduler_of({"kind": "kai", "queues": [{"name": "a", "quotas": {GPU: {"deserved": 8, "limit": -1}}}]})
    row = next(r for r in own.quotas() if (r.queue, r.resource) == ("a", GPU))
    trace = replace(synthesize("pai2020", jobs=50), scheduler=own)
    edit = {"queue": "a", "parent": row.parent, "flavor": "", "resource": GPU, "amounts": {"quota": 3}}
    scenario = Scenario.of(trace, scheduler={"kind": "site", "amounts": [edit]})
    assert scenario.scheduler == own.with_quotas([replace(row, amounts={"quota": 3.0})])


@pytest.mark.parametrize("words", [{"trace": "pai:200"}, {"trace": "sample", "backfill": "easy"}])
def test_it_is_refused_without_a_site_or_beside_rules_of_a_policy(words):
    trace = words.pop("trace")
    with pytest.raises(FleetlabError):
        _ = Scenario.of(trace, scheduler=changed(FAST), **words).scheduler


def test_the_line_of_a_what_if_makes_its_scheduler(sample):
    own = sample.scheduler
    change = next(one for one in own.what_ifs() if one.line)
    assert SiteChange(change.line).change(own, sample.cluster).scheduler == change.scheduler
