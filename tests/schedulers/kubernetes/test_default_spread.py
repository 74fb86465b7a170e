"""Spreading that a configuration adds, what a constraint looks at, and namespaces of terms: upstream's cases and laws.

System defaulting without zones is a case of podtopologyspread/scoring_test.go of kubernetes/kubernetes (commit
008b3652), with a controller that selects the pods of its service. Policies are on the nodes and pods of cases of
TestPreFilterState in filtering_test.go; who fits follows from the counts that stand there.
"""

import json

import numpy as np
import pytest

import fleetlab
from fleetlab.core.errors import TraceError
from fleetlab.schedulers.kubernetes.config import (
    CONTROLLER,
    HOSTNAME,
    LATER,
    KubeScheduler,
    PodTerm,
    Requirement,
    SchedulingNode,
    SchedulingPod,
    Selector,
    SpreadConstraint,
    Taint,
    Toleration,
)  # fmt: skip
from fleetlab.schedulers.kubernetes.filters import affinity_allows, spread_allows
from fleetlab.schedulers.kubernetes.reader.scheduler_config import scheduler_in
from fleetlab.schedulers.kubernetes.reader.scheduling import scheduling_pod
from fleetlab.schedulers.kubernetes.scores import PLUGINS
from fleetlab.schedulers.kubernetes.state import Cache

ZONE = "topology.kubernetes.io/zone"
LATEST = KubeScheduler.of_release(LATER)
MINE = {CONTROLLER: "web"}


def scored(profile, counts, zones=None, pod=None):
    """The scores of a pod of a controller, on nodes that have so many of its pods."""
    labels = [{HOSTNAME: f"n{k}"} | ({ZONE: zones[k]} if zones else {}) for k in range(len(counts))]
    cache = Cache([SchedulingNode(f"n{k}", {"pods": 110}, of) for k, of in enumerate(labels)])
    for node, count in enumerate(counts):
        for k in range(count):
            cache.add(SchedulingPod(f"{node}-{k}", labels=MINE), node)
    full = profile.adds_to(pod or SchedulingPod("p", labels=MINE))
    return PLUGINS["PodTopologySpread"](cache, full, np.arange(len(counts)), profile).tolist()


def test_system_defaulting_on_nodes_without_zones_scores_as_scoring_test_go_has_it():
    assert scored(LATEST, (4, 3, 2, 1)) == [44, 66, 77, 100]


def test_in_release_1_20_nodes_without_a_zone_are_not_scored():
    assert scored(KubeScheduler(), (4, 3, 2, 1)) == [0, 0, 0, 0]


def test_system_defaulting_spreads_over_zones_before_hosts():
    """By hand: sums are 1.79 a pod on the host and 1.39 a pod in the zone, plus 2 and 4."""
    raw = [round(2 * np.log(6) + 2 + 2 * np.log(4) + 4), round(2 + 2 * np.log(4) + 4), 6, 6]
    wanted = [100 * (max(raw) + min(raw) - one) // max(raw) for one in raw]
    assert scored(LATEST, (2, 0, 0, 0), ["a", "a", "b", "b"]) == wanted


@pytest.mark.parametrize("pod", [
    SchedulingPod("p", labels={"foo": ""}),
    SchedulingPod("p", labels=MINE, spread=(SpreadConstraint(1, "rack", True, Selector()),)),
])  # fmt: skip
def test_pods_without_a_controller_or_with_constraints_of_their_own_get_none_by_default(pod):
    assert len(LATEST.adds_to(pod).spread) == len(pod.spread)


def test_a_list_of_constraints_takes_the_place_of_the_systems():
    text = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: [{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]
"""
    found = scheduler_in(text, "config.yaml").adds_to(SchedulingPod("p", labels=MINE)).spread
    assert [(one.max_skew, one.key, one.firm) for one in found] == [(1, "rack", True)]
    assert found[0].selector.matches(MINE)


def test_an_empty_list_spreads_nothing():
    assert config({"defaultingType": "List"}).adds_to(SchedulingPod("p", labels=MINE)).spread == ()


def config(arguments, version="v1"):
    made = {"apiVersion": f"kubescheduler.config.k8s.io/{version}", "kind": "KubeSchedulerConfiguration",
            "profiles": [{"pluginConfig": [{"name": "PodTopologySpread", "args": arguments}]}]}  # fmt: skip
    return scheduler_in(json.dumps(made), "config.json")


ONE = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"defaultingType": "Other"}, "neither System nor List: Other"),
        ({"defaultingType": "System", "defaultConstraints": [ONE]}, "must be empty"),
        ({"defaultConstraints": [ONE | {"maxSkew": 0}]}, "`maxSkew` is below 1"),
        ({"defaultConstraints": [ONE | {"topologyKey": ""}]}, "no `topologyKey`"),
        ({"defaultConstraints": [ONE | {"whenUnsatisfiable": "Never"}]}, "none of DoNotSchedule, ScheduleAnyway"),
        ({"defaultConstraints": [ONE | {"labelSelector": {"matchLabels": {"a": "b"}}}]}, "is not allowed"),
        ({"defaultConstraints": [ONE, ONE]}, "twice"),
        ({"defaultConstraints": ["rack"]}, "defaultConstraints"),
        ({"defaultConstraints": [ONE | {"nodeTaintsPolicy": "Maybe"}]}, "neither Honor nor Ignore: Maybe"),
        ({"defaultConstraint": [ONE]}, "unknown field `args.defaultConstraint`"),
        ({"defaultConstraints": [ONE | {"skew": 1}]}, "unknown field `defaultConstraints.skew`"),
    ],
)
def test_what_kube_scheduler_refuses_is_refused(arguments, said):
    with pytest.raises(TraceError, match=said):
        config({"defaultingType": "List"} | arguments)


@pytest.mark.parametrize("version", ["v1beta2", "v1beta3", "v1"])
def test_a_list_that_does_not_say_it_is_one_is_refused_since_v1beta2(version):
    with pytest.raises(TraceError, match="a list needs List"):
        config({"defaultConstraints": [ONE]}, version)


def test_a_default_constraint_keeps_what_it_says_of_domains():
    said = ONE | {"minDomains": 3, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}
    one = (
        config({"defaultingType": "List", "defaultConstraints": [said]})
        .adds_to(SchedulingPod("p", labels=MINE))
        .spread[0]
    )
    assert (one.min_domains, one.honors_affinity, one.honors_taints) == (3, False, True)


def test_in_v1beta1_constraints_are_a_list_by_themselves():
    assert len(config({"defaultConstraints": [ONE]}, "v1beta1").default_spread) == 1


def test_a_profile_with_default_constraints_survives_plain_values():
    profile = config({"defaultingType": "List", "defaultConstraints": [ONE]})
    assert KubeScheduler.from_values(json.loads(json.dumps(profile.to_values()))) == profile


# -- which nodes a constraint looks at ---------------------------------------------------------------------------------

HAS_BAR = Selector((Requirement("bar", "Exists"),))
UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
TOLERATES = (Toleration("node.kubernetes.io/unschedulable", None, ""),)
SELECTS_FOO = Selector((Requirement("foo", "Exists"),))


def allowed(profile, pod, constraint, third):
    """Which of three nodes keep within the skew, with one, two and no pods: a case of filtering_test.go."""
    foo = {"foo": ""} if third != "unselected" else {}
    taints = (UNSCHEDULABLE,) if third == "tainted" else ()
    cache = Cache([
        SchedulingNode("a", {"pods": 110}, {"node": "a", "foo": ""}),
        SchedulingNode("b", {"pods": 110}, {"node": "b", "foo": ""}),
        SchedulingNode("c", {"pods": 110}, {"node": "c", **foo}, taints),
    ])  # fmt: skip
    for name, node in (("p-a", 0), ("p-b", 1), ("p-c", 1)):
        cache.add(SchedulingPod(name, labels={"bar": ""}), node)
    one = SpreadConstraint(1, "node", True, HAS_BAR, **constraint)
    full = profile.adds_to(SchedulingPod("p", labels={"foo": ""}, spread=(one,), **pod))
    return spread_allows(cache, full).tolist()


@pytest.mark.parametrize(
    ("pod", "constraint", "third", "expected"),
    [
        ({}, {"honors_taints": True}, "tainted", [True, True, True]),  # c is not looked at: the least is 1
        ({"tolerations": TOLERATES}, {"honors_taints": True}, "tainted", [True, False, True]),
        ({}, {}, "tainted", [True, False, True]),
        ({"selector": SELECTS_FOO}, {}, "unselected", [True, True, True]),
        ({"selector": SELECTS_FOO}, {"honors_affinity": False}, "unselected", [True, False, True]),
    ],
    ids=["taints honored", "tolerated", "taints ignored", "affinity honored", "affinity ignored"],
)
def test_the_domains_of_a_constraint_are_those_of_nodes_that_its_policies_include(pod, constraint, third, expected):
    assert allowed(LATEST, pod, constraint, third) == expected


def test_release_1_20_knows_no_policies():
    assert allowed(KubeScheduler(), {}, {"honors_taints": True}, "tainted") == [True, False, True]


@pytest.mark.parametrize(("profile", "expected"), [(LATEST, [True, True]), (KubeScheduler(), [False, True])])
def test_pods_on_nodes_that_are_not_looked_at_count_in_release_1_20_alone(profile, expected):
    """Two nodes of zone z, one of them not selected and with two pods; and one of zone y with one."""
    has = {"pods": 110}
    cache = Cache([
        SchedulingNode("a", has, {"zone": "z", "foo": ""}), SchedulingNode("b", has, {"zone": "y", "foo": ""}),
        SchedulingNode("c", has, {"zone": "z"}),
    ])  # fmt: skip
    for name, node in (("1", 1), ("2", 2), ("3", 2), ("4", 2)):
        cache.add(SchedulingPod(name, labels={"bar": ""}), node)
    one = SpreadConstraint(1, "zone", True, HAS_BAR)
    pod = profile.adds_to(SchedulingPod("p", selector=SELECTS_FOO, spread=(one,)))
    assert spread_allows(cache, pod).tolist()[:2] == expected


# -- as a list has them ------------------------------------------------------------------------------------------------


def listed(name="p", owner=None, **spec):
    owners = [{"kind": owner, "uid": "u1", "controller": True}] if owner else []
    about = {"name": name, "namespace": "a", "uid": name, "creationTimestamp": "2026-05-01T10:00:00Z",
             "ownerReferences": owners}  # fmt: skip
    has = {"containers": [{"resources": {"requests": {"cpu": "1"}}}], **spec}
    return {"kind": "Pod", "metadata": about, "spec": has, "status": {"phase": "Pending"}}


@pytest.mark.parametrize(
    ("owner", "count"), [("ReplicaSet", 2), ("StatefulSet", 2), ("ReplicationController", 2), ("Job", 0), (None, 0)]
)
def test_pods_of_controllers_that_select_are_spread_and_those_of_jobs_are_not(owner, count):
    assert len(LATEST.adds_to(scheduling_pod(listed(owner=owner))).spread) == count


def test_policies_are_read():
    one = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor",
           "nodeAffinityPolicy": "Ignore"}  # fmt: skip
    found = scheduling_pod(listed(topologySpreadConstraints=[one])).spread[0]
    assert (found.honors_affinity, found.honors_taints) == (False, True)


def near(**term):
    wishes = [{"topologyKey": HOSTNAME, "labelSelector": {}, **term}]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": wishes}}}


NAME = "kubernetes.io/metadata.name"
NOT_B = {"key": NAME, "operator": "NotIn", "values": ["b"]}


@pytest.mark.parametrize(
    ("term", "own", "other"),
    [
        ({}, True, False),
        ({"namespaceSelector": {}}, True, True),
        ({"namespaceSelector": {"matchLabels": {NAME: "b"}}}, False, True),
        ({"namespaceSelector": {"matchLabels": {NAME: "b"}}, "namespaces": ["a"]}, True, True),
        ({"namespaceSelector": {"matchExpressions": [NOT_B]}}, True, False),
    ],
)  # fmt: skip
def test_a_term_is_about_pods_of_the_namespaces_that_it_names_or_selects(term, own, other):
    found = scheduling_pod(listed(**near(**term)))
    answers = []
    for namespace in ("a", "b"):
        cache = Cache([SchedulingNode("n", {"pods": 110}, {HOSTNAME: "n"})])
        cache.add(SchedulingPod("there", namespace), 0)
        answers.append(not affinity_allows(cache, found)[0])
    assert answers == [own, other]


def test_namespaces_chosen_by_other_labels_are_read_as_its_own_and_told(tmp_path):
    pod = listed(**near(namespaceSelector={"matchLabels": {"team": "x"}}))
    assert scheduling_pod(pod).anti_affinity[0] == PodTerm(HOSTNAME, Selector(), ("a",))
    (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "items": [pod]}))
    notes = fleetlab.read(tmp_path / "pods.json", "kubernetes").notes
    assert any(note.startswith("1 pods choose namespaces of others by labels") for note in notes)
