"""What squeue prints as JSON, in the forms of its versions, as rows of sacct."""

import json

import pytest

from fleetlab.core import TraceError
from fleetlab.schedulers.slurm.reader.squeue_json import queue_rows

# As 22.05 writes it: plain numbers, null where there is none.
OLD = {
    "job_id": 7, "array_job_id": 0, "array_task_id": None, "array_task_string": "", "het_job_id": 0, "name": "train",
    "user_name": "ann", "account": "vision", "partition": "gpu", "qos": "normal", "job_state": "RUNNING",
    "state_reason": "None", "priority": 4294901759, "submit_time": 1794932668, "eligible_time": 1794932668,
    "start_time": 1794932669, "end_time": 1794932969, "time_limit": 5, "features": "", "resv_name": "",
    "tres_req_str": "cpu=1,node=1,gres/gpu=8", "tres_alloc_str": "cpu=1,node=1,gres/gpu=8,gres/gpu:a100=8",
    "nodes": "n01",
}  # fmt: skip


def number(value):
    return {"set": value is not None, "infinite": False, "number": value or 0}


# As 23.11 does: objects and lists.
NEW = OLD | {name: number(OLD[name]) for name in OLD if name.endswith(("_time", "_id")) and name != "job_id"}
NEW |= {"job_state": ["RUNNING"], "priority": number(4294901759), "time_limit": number(5)}


def rows(*jobs):
    return queue_rows(json.dumps({"meta": {}, "errors": [], "jobs": jobs}))


@pytest.mark.parametrize("job", [OLD, NEW], ids=["22.05", "23.11"])
def test_a_running_job_has_its_times_nodes_and_resources(job):
    row = rows(job)[0]
    assert row["JobID"] == row["JobIDRaw"] == "7"
    assert (row["Submit"], row["Start"], row["End"]) == ("1794932668", "1794932669", "")
    assert (row["State"], row["NodeList"], row["TimelimitRaw"]) == ("RUNNING", "n01", "5")
    assert row["AllocTRES"] == OLD["tres_alloc_str"]


def test_what_the_scheduler_expects_of_a_waiting_job_is_not_taken_for_a_start():
    row = rows(OLD | {"job_state": "PENDING", "state_reason": "Resources"})[0]
    assert (row["Start"], row["End"], row["NodeList"], row["Reason"]) == ("", "", "None assigned", "Resources")


@pytest.mark.parametrize("job", [OLD, NEW], ids=["22.05", "23.11"])
def test_tasks_that_wait_stand_in_one_row_and_others_each_in_theirs(job):
    wrap = number if job is NEW else lambda value: value
    waiting = job | {"array_job_id": wrap(4), "array_task_string": "3-9%2"}
    running = job | {"array_job_id": wrap(4), "array_task_id": wrap(2)}
    first = job | {"array_job_id": wrap(4), "array_task_id": {"set": True, "number": 0} if job is NEW else 0}
    assert [row["JobID"] for row in rows(waiting, running, first)] == ["4_[3-9%2]", "4_2", "4_0"]


def test_a_part_of_a_heterogeneous_job_is_named_by_its_place():
    assert rows(OLD | {"job_id": 13, "het_job_id": 12, "het_job_offset": 1})[0]["JobID"] == "12+1"


def test_no_time_limit_is_said_in_slurms_word():
    assert rows(NEW | {"time_limit": {"set": True, "infinite": True, "number": 0}})[0]["TimelimitRaw"] == "UNLIMITED"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"jobs": 3}', '{"jobs": {}}', '{"errors": []}', "null"])
def test_what_is_no_list_of_jobs_is_refused(text):
    with pytest.raises(TraceError, match="no JSON list of jobs"):
        queue_rows(text)


def test_a_list_with_errors_is_refused_since_jobs_may_be_missing():
    with pytest.raises(TraceError, match="no JSON list of jobs"):
        queue_rows(json.dumps({"errors": [{"error": "slurm_load_jobs"}], "jobs": []}))


def test_an_empty_queue_is_an_empty_list():
    assert queue_rows('{"jobs": [], "errors": []}') == []
