"""LimitRanges: cases of Kubernetes 1.20's own unit tests (plugin/pkg/admission/limitranger/admission_test.go)."""

import csv
from pathlib import Path

import pytest

from fleetlab.schedulers.kubernetes.admission import Container, CreatedPod, LimitItem, LimitRange
from fleetlab.schedulers.kubernetes.creations import violations, with_defaults
from fleetlab.schedulers.kubernetes.reader.objects import quantity
from fleetlab.schedulers.kubernetes.reader.site_rules import counted, limit_range

NAMES = {"cpu": "cpu", "memory": "memory", "storage": "ephemeral-storage"}
CASES = list(csv.DictReader((Path(__file__).parent / "limit_range_cases.csv").read_text().splitlines()))


def raw(text):
    pairs = [one.split("=") for one in text.split()]
    return {NAMES[name]: quantity(amount, name) for name, amount in pairs}


def amounts(text):
    return counted(raw(text))


def item_of(text):
    kind, _, rest = text.partition(": ")
    bounds = dict(one.strip().split(" ", 1) for one in rest.split(";"))
    ratio = {name: int(share * 1000) for name, share in raw(bounds.get("ratio", "")).items()}
    return LimitItem(kind, amounts(bounds.get("min", "")), amounts(bounds.get("max", "")), ratio=ratio)


def pod_of(case):
    main = Container(amounts(case["requests"]), amounts(case["limits"]))
    inits = [one.split(" <= ") for one in case["inits"].split(" / ") if one]
    return CreatedPod(
        "test", (*[main] * int(case["containers"]), *(Container(amounts(a), amounts(b), init=True) for a, b in inits))
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_bounds_refuse_what_test_pod_limit_func_refuses(case):
    bounds = LimitRange("test", "abc", (item_of(case["bounds"]),))
    assert (violations(pod_of(case), [bounds]) == []) == (case["allowed"] == "1")


def test_all_cases_of_the_table_are_here():
    assert (len(CASES), sum(case["allowed"] == "1" for case in CASES)) == (78, 37)


VALID = {
    "metadata": {"name": "abc", "namespace": "test"},
    "spec": {"limits": [{
        "type": "Container",
        "max": {"cpu": "100m", "memory": "2Gi"}, "min": {"cpu": "25m", "memory": "1Mi"},
        "default": {"cpu": "75m", "memory": "10Mi"}, "defaultRequest": {"cpu": "50m", "memory": "5Mi"},
    }]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ("", "cpu=50m memory=5Mi"),
        ("memory=512Mi", "cpu=50m memory=512Mi"),
        ("cpu=100m memory=1Gi", "cpu=100m memory=1Gi"),
    ],
)
def test_a_container_gets_what_it_does_not_say_as_test_merge_pod_resource_requirements_has_it(requests, expected):
    pod = CreatedPod("test", (Container(amounts(requests)), Container(amounts(requests), init=True)))
    filled = with_defaults(pod, [limit_range(VALID)])
    assert [one.requests for one in filled.containers] == [amounts(expected)] * 2
    assert [one.limits for one in filled.containers] == [amounts("cpu=75m memory=10Mi")] * 2


def test_a_maximum_alone_is_the_default_too_as_the_api_server_writes_it():
    alone = {"metadata": {"name": "abc"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}
    filled = with_defaults(CreatedPod("default", (Container(),)), [limit_range(alone)])
    assert filled.containers == (Container({"cpu": 2000}, {"cpu": 2000}),)
