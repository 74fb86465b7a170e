"""A KubeSchedulerConfiguration of v1beta2, v1beta3 and v1, as the documentation of Kubernetes has its fields."""

import pytest

from fleetlab.core import TraceError
from fleetlab.schedulers.kubernetes.config import LATER_SCORES, Requirement, Selector, Shape
from fleetlab.schedulers.kubernetes.reader.scheduler_config import read_scheduler

pytest.importorskip("yaml")
HEAD = "apiVersion: kubescheduler.config.k8s.io/{version}\nkind: KubeSchedulerConfiguration\n"


@pytest.fixture
def read(tmp_path):
    def text(body, version="v1"):
        path = tmp_path / "scheduler.yaml"
        path.write_text(HEAD.format(version=version) + body)
        return read_scheduler(path)

    return text


def test_v1_has_the_weights_of_today(read):
    found = read("")
    assert (found.release, found.strategy) == ("1.34", "LeastAllocated")
    assert dict(found.weights) == LATER_SCORES
    assert LATER_SCORES["TaintToleration"] == 3


def test_v1beta2_still_had_the_weights_of_before(read):
    found = read("", "v1beta2").weights
    assert [found[name] for name in ("TaintToleration", "NodeAffinity", "InterPodAffinity")] == [1, 1, 1]
    assert read("", "v1beta3").weights == LATER_SCORES


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [
        ("score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: 5}]}", {"NodeResourcesFit": 5}),
        ("score: {disabled: [{name: ImageLocality}]}", {k: w for k, w in LATER_SCORES.items() if k != "ImageLocality"}),
        ("multiPoint: {enabled: [{name: NodeResourcesFit, weight: 4}]}", LATER_SCORES | {"NodeResourcesFit": 4}),
        ("multiPoint: {disabled: [{name: '*'}], enabled: [{name: NodeAffinity}, {name: DefaultBinder}]}",
         {"NodeAffinity": 1}),
        ("multiPoint: {enabled: [{name: NodeAffinity, weight: 7}]}, "
         "score: {enabled: [{name: NodeAffinity, weight: 9}]}",
         LATER_SCORES | {"NodeAffinity": 9}),
        ("filter: {disabled: [{name: NodePorts}]}", LATER_SCORES),
    ],
)  # fmt: skip
def test_points_are_merged_as_the_scheduler_does(read, plugins, expected):
    assert dict(read(f"profiles: [{{plugins: {{{plugins}}}}}]").weights) == expected


PACKING = """
percentageOfNodesToScore: 30
profiles:
- percentageOfNodesToScore: 60
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: nvidia.com/gpu, weight: 5}, {name: cpu}]
        requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
  - name: NodeResourcesBalancedAllocation
    args: {resources: [{name: nvidia.com/gpu, weight: 1}]}
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 9, ignorePreferredTermsOfExistingPods: true}
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [batch]}]}]
"""


def test_arguments_of_plugins_are_read(read):
    found = read(PACKING)
    assert (found.strategy, found.shape) == ("RequestedToCapacityRatio", Shape(((0, 0), (100, 10))))
    assert found.resources == {
        "NodeResourcesFit": {"nvidia.com/gpu": 5, "cpu": 1},
        "NodeResourcesBalancedAllocation": {"nvidia.com/gpu": 1},
    }
    assert (found.percentage, found.hard_affinity, found.ignore_preferred) == (60, 9, True)
    assert found.added_required == (Selector((Requirement("pool", "In", ("batch",)),)),)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("{type: Most}", "`scoringStrategy.type` is none of LeastAllocated, MostAllocated"),
        ("{resources: [{name: cpu, weight: 0}]}", "`scoringStrategy.resources.weight` is not from 1 to 100: 0"),
        ("{resources: [{name: cpu, weight: 101}]}", "is not from 1 to 100: 101"),
        ("{type: RequestedToCapacityRatio}", "no `scoringStrategy.requestedToCapacityRatio.shape`"),
    ],
)
def test_a_strategy_that_the_scheduler_would_refuse_is_refused(read, args, message):
    with pytest.raises(TraceError, match=message):
        read(f"profiles: [{{pluginConfig: [{{name: NodeResourcesFit, args: {{scoringStrategy: {args}}}}}]}}]")


def test_a_plugin_of_somebody_else_is_refused(read):
    with pytest.raises(TraceError, match="Coscheduling"):
        read("profiles: [{plugins: {multiPoint: {enabled: [{name: Coscheduling}]}}}]")


def test_a_plugin_that_became_a_strategy_says_where_it_is_now(read):
    with pytest.raises(TraceError, match=r"scoringStrategy\.type: MostAllocated"):
        read("profiles: [{plugins: {score: {enabled: [{name: NodeResourcesMostAllocated}]}}}]")


def test_a_file_may_have_quotas_beside_the_configuration(read):
    quota = "---\nkind: ResourceQuota\nmetadata: {name: q, namespace: a}\nspec: {hard: {pods: 3}}\n"
    assert read(f"\n{quota}").admission.quotas[0].hard == {"pods": 3}


def test_what_is_wrong_with_an_object_is_said_with_its_kind_and_name(read):
    quota = "---\nkind: ResourceQuota\nmetadata: {name: q, namespace: a}\nspec: {hard: {pods: some}}\n"
    with pytest.raises(TraceError, match=r"ResourceQuota a/q: `spec.hard.pods` is not a quantity: some"):
        read(f"\n{quota}")
