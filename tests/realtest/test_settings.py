"""What is submitted to the real Slurm, without one."""

from dataclasses import replace

import pytest
from realtest.everything import ALL
from realtest.jobs import USERS, Job, draw_jobs, span
from realtest.settings import ACCOUNTS

from fleetlab.core.queues import QueueTree
from fleetlab.schedulers.slurm.reader.conf import read_conf
from fleetlab.schedulers.slurm.reader.conf_writer import accounts, slurm_conf


@pytest.mark.parametrize("name", ALL)
def test_a_setting_submits_the_same_each_time(name):
    assert ALL[name].replay(200) == ALL[name].replay(200)


@pytest.mark.parametrize("name", ALL)
def test_a_job_refers_only_to_jobs_before_it(name):
    seen = set()
    for step in ALL[name].replay(400).steps():
        words = step.command() if isinstance(step, Job) else step.words
        refers = {part.split("}")[0] for word in words for part in word.split("{")[1:]}
        assert refers <= seen
        if isinstance(step, Job):
            seen.add(step.key)


@pytest.mark.parametrize("name", ALL)
def test_every_partition_and_class_that_a_job_names_exists(name):
    setting = ALL[name]
    partitions = {p.name for p in setting.slurm.partitions}
    classes = {q.name for q in setting.slurm.qos}
    for job in setting.replay(400).jobs:
        named = [word[2:] for word in job.words if word.startswith("-p")]
        assert set(",".join(named).split(",") if named else []) <= partitions
        assert {word[2:] for word in job.words if word.startswith("-q")} <= classes


@pytest.mark.parametrize("name", ALL)
def test_nodes_that_something_happens_to_are_there(name):
    setting = ALL[name]
    nodes = set(setting.cluster(20).frame["node"])
    for act in setting.replay(100).acts:
        for word in act.words:
            if word.startswith(("NodeName=", "Nodes=")):
                assert set(word.partition("=")[2].split(",")) <= nodes


@pytest.mark.parametrize("name", ALL)
def test_a_setting_can_be_written_as_slurm_reads_it(name):
    setting = ALL[name]
    text = slurm_conf(setting.cluster(20), setting.slurm)
    assert text.count("PartitionName=") == len(setting.slurm.partitions)
    assert "Nodes= " not in text
    assert accounts(setting.slurm)


@pytest.mark.parametrize("name", ALL)
def test_what_is_written_reads_back_as_the_same_rules(name, tmp_path):
    setting = ALL[name]
    (tmp_path / "slurm.conf").write_text(slurm_conf(setting.cluster(20), setting.slurm))
    read = read_conf(tmp_path / "slurm.conf")
    # What slurm.conf does not hold: classes, accounts, and how long a prolog takes.
    elsewhere = {"qos": (), "queues": QueueTree(), "prolog": 0.0, "epilog": 0.0, "select_flags": ()}
    wanted, got = (replace(slurm, **elsewhere) for slurm in (setting.slurm, read))
    assert got == wanted


def test_jobs_come_as_fast_as_the_load_says():
    jobs = draw_jobs(300, 160, 1.25, 1)
    assert sum(job.work for job in jobs) / 160 / span(jobs) == pytest.approx(1.25, rel=0.01)


def test_no_job_runs_into_its_limit_unless_it_is_to():
    assert all(job.seconds < 60 * job.limit + 1 for job in draw_jobs(2000, 160, 1.0, 1))


def test_every_user_has_an_account():
    assert {queue.user for queue in ACCOUNTS.values() if queue.user} == set(USERS)
