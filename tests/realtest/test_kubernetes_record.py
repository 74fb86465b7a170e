"""What is read from the log and the events of kube-scheduler."""

import json
import os
from datetime import UTC, datetime

from realtest.kubernetes.record import attempts

LOG = """\
I1117 14:48:08.600000   19731 eventhandlers.go:172] add event for unscheduled pod default/pod-00002
I1117 14:48:08.621795   19731 scheduler.go:447] Attempting to schedule pod: default/pod-00002
I1117 14:48:08.640493   19731 factory.go:321] "Unable to schedule pod; no fit; waiting" pod="default/pod-00002" err="x"
I1117 14:48:08.709168   19731 scheduler.go:447] Attempting to schedule pod: default/pod-00002
I1117 14:48:08.709496   19731 factory.go:321] "Unable to schedule pod; no fit; waiting" pod="default/pod-00002" err="x"
I1117 14:48:09.861885   19731 eventhandlers.go:287] delete event for scheduled pod default/pod-00001
I1117 14:48:11.236248   19731 scheduler.go:447] Attempting to schedule pod: default/pod-00002
I1117 14:48:11.327523   19731 scheduler.go:592] "Successfully bound pod to node" pod="default/pod-00002" node="node-026"
"""


def test_a_victim_belongs_to_the_attempt_that_told_of_it_though_another_came_before_it_was_gone(tmp_path):
    local = datetime(2026, 11, 17, 14, 48, 8, 640412).astimezone()  # the log is in local time, events in UTC
    event = {
        "reason": "Preempted",
        "message": "Preempted by default/pod-00002 on node node-026",
        "involvedObject": {"name": "pod-00001"},
        "eventTime": local.astimezone(UTC).isoformat(),
    }
    (tmp_path / "seen.json").write_text("{}")
    (tmp_path / "events.json").write_text(json.dumps({"items": [event]}))
    log = tmp_path / "scheduler.log"
    log.write_text(LOG)
    os.utime(log, (local.timestamp(), local.timestamp()))  # a log has no year; that of its file counts

    found = [one for one in attempts(tmp_path) if one.what == "attempt"]

    assert [(bool(one.failed), one.node, one.preempts) for one in found] == [
        (True, "", ["pod-00001"]),
        (True, "", []),
        (False, "node-026", []),
    ]
