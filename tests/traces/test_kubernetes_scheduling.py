"""Pods and configurations as kube-scheduler counts them."""

import json

import pytest

from fleetlab.core import TraceError
from fleetlab.schedulers.kubernetes.config import SCORES
from fleetlab.schedulers.kubernetes.reader.objects import MalformedObject
from fleetlab.schedulers.kubernetes.reader.scheduler_config import read_scheduler, scheduler_of
from fleetlab.schedulers.kubernetes.reader.scheduling import scheduling_pod

KIND = {"kind": "KubeSchedulerConfiguration"}


def requests(**amounts):
    return {"resources": {"requests": amounts}}


def pod_of(**spec):
    return scheduling_pod({"metadata": {"name": "p"}, "spec": spec})


def test_containers_add_up_and_the_largest_that_runs_before_counts():
    pod = pod_of(
        containers=[requests(cpu="2", memory="1G"), requests(cpu="1", memory="1G")],
        initContainers=[requests(cpu="2", memory="1G"), requests(cpu="2", memory="3G")],
    )
    assert pod.requests == {"cpu": 3000, "memory": 3 * 10**9}  # the example in fit.go


def test_a_container_without_requests_is_scored_as_if_it_had_some():
    pod = pod_of(containers=[requests(cpu="2"), requests()])
    assert pod.requests == {"cpu": 2000}
    assert pod.scored == {"cpu": 2100, "memory": 2 * 200 * 2**20}


def test_what_is_limited_is_requested():
    pod = pod_of(containers=[{"resources": {"limits": {"nvidia.com/gpu": 4}}}])
    assert pod.requests == {"nvidia.com/gpu": 4}


def test_a_negative_time_to_leave_is_a_second():
    assert pod_of(terminationGracePeriodSeconds=-5).grace == 1.0


def test_the_default_profile_has_the_weights_of_the_release():
    assert scheduler_of(KIND).weights == SCORES


def test_disabled_plugins_go_and_enabled_ones_come():
    score = {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeAffinity", "weight": 3}]}
    assert scheduler_of(KIND | {"profiles": [{"plugins": {"score": score}}]}).weights == {"NodeAffinity": 3}


def test_a_profile_is_found_by_its_name():
    profiles = [{}, {"schedulerName": "packing", "plugins": {"score": {"disabled": [{"name": "*"}]}}}]
    assert scheduler_of(KIND | {"profiles": profiles}, "packing").weights == {}
    with pytest.raises(MalformedObject, match="no profile named other: default-scheduler, packing"):
        scheduler_of(KIND | {"profiles": profiles}, "other")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod", "Pod without a name: neither a KubeSchedulerConfiguration nor a rule"),
        ("# nothing", "not a KubeSchedulerConfiguration"),
        (json.dumps(KIND | {"profiles": 3}), "`profiles` is not a list: 3"),
        ("{", "not YAML: while parsing a flow node"),
        ("a: [", "not YAML: .* expected the node content"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path, text, message):
    path = tmp_path / "scheduler.yaml"
    path.write_text(text)
    with pytest.raises(TraceError, match=message):
        read_scheduler(path)
