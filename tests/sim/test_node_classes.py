"""Which nodes a job may use: classes of nodes, masks of jobs, and who is refused."""

import polars as pl
import pytest

from fleetlab import Cluster, Workload
from fleetlab.core import WorkloadError
from fleetlab.core.catalog.reasons import FITS_NOWHERE, GANG_TOO_LARGE, NO_SUCH_NODE, UNREAD_CONSTRAINT
from fleetlab.sim.node_classes import NodeClasses
from fleetlab.sim.world import world

CLUSTER = Cluster.of(
    pl.DataFrame(
        {
            "node": ["n0", "n1", "n2", "n3", "n4"],
            "gpu_type": ["A", "A", "B", "B", None],
            "gpus": [2, 2, 4, 4, 0],
            "cpu_milli": [4000] * 5,
            "partitions": [["x"], ["x", "y"], ["y"], ["y"], ["y"]],
            "features": [["ib"], ["ib", "big"], [], ["big"], []],
        }
    ),
    source="five nodes",
)


def jobs(*rows):
    schema = {"partitions": pl.List(pl.String), "gpu_types": pl.List(pl.String), "constraint": pl.String}
    usual = {"submit": 0.0, "runtime": 1.0, "gpu_milli": 1000, "instances": 1, "partitions": [], "gpu_types": []}
    usual |= {"constraint": None, "distinct_nodes": False, "exclusive": False}
    return Workload.of(pl.DataFrame([usual | row for row in rows], schema_overrides=schema), source="by hand")


def nodes_of(cluster=CLUSTER, **row):
    """Return the nodes that a job may use, beside others that tell all nodes apart."""
    others = [{"partitions": ["x"]}, {"partitions": ["y"]}, {"constraint": "ib"}, {"constraint": "big"}]
    classes = NodeClasses.of(jobs(row, *others).frame, cluster)
    return {f"n{n}" for n, bit in enumerate(classes.bits) if classes.mask[0] & bit}


@pytest.mark.parametrize(
    ("row", "nodes"),
    [
        ({}, {"n0", "n1", "n2", "n3"}),  # it needs a GPU
        ({"gpu_milli": 0}, {"n0", "n1", "n2", "n3", "n4"}),
        ({"partitions": ["x"]}, {"n0", "n1"}),
        ({"partitions": ["x", "y"]}, {"n0", "n1", "n2", "n3"}),
        ({"partitions": ["y"], "gpu_milli": 0}, {"n1", "n2", "n3", "n4"}),
        ({"partitions": ["y"], "gpu_types": ["A"]}, {"n1"}),
        ({"constraint": "big"}, {"n1", "n3"}),
        ({"constraint": "!ib", "partitions": ["y"]}, {"n2", "n3"}),
        ({"partitions": ["z"]}, set()),
        ({"constraint": "ib", "gpu_types": ["B"]}, set()),
    ],
)
def test_a_job_may_use_the_nodes_of_its_types_partitions_and_features(row, nodes):
    assert nodes_of(**row) == nodes


def test_nodes_that_no_job_tells_apart_are_one_class():
    classes = NodeClasses.of(jobs({}, {"gpu_types": ["A"]}).frame, CLUSTER)
    assert classes.of_node.tolist() == [0, 0, 1, 1, 2]


def test_a_cluster_without_partitions_and_features_takes_jobs_that_name_some():
    bare = Cluster.of(CLUSTER.frame.drop("partitions", "features"), source="bare")
    assert nodes_of(bare, partitions=["x"], constraint="ib") == {"n0", "n1", "n2", "n3"}


def test_a_job_that_no_node_may_run_is_refused_with_its_reason():
    found = world(
        jobs(
            {"partitions": ["nobody's"]}, {"constraint": "ib&!ib"}, {"constraint": "ib&("},
            {"gpu_milli": 4000, "partitions": ["x"]},
            {"partitions": ["x"], "instances": 5}, {"partitions": ["x"], "instances": 4},
            {"partitions": ["x"], "instances": 3, "distinct_nodes": True},
            {"partitions": ["x"], "instances": 3, "exclusive": True},
        ),
        CLUSTER,
    )  # fmt: skip
    assert dict(found.refused.select("job", "reason").iter_rows()) == {
        0: NO_SUCH_NODE, 1: NO_SUCH_NODE, 2: UNREAD_CONSTRAINT, 3: FITS_NOWHERE, 4: GANG_TOO_LARGE, 6: GANG_TOO_LARGE,
        7: GANG_TOO_LARGE,
    }  # fmt: skip


def test_the_queue_of_a_job_is_its_set_of_partitions():
    found = NodeClasses.of(
        jobs({"partitions": ["y", "x"]}, {}, {"partitions": ["x", "y"]}, {"partitions": ["y"]}).frame, CLUSTER
    )
    assert [found.queues[q] for q in found.queue] == [("x", "y"), ("",), ("x", "y"), ("y",)]


def test_more_classes_than_bits_are_refused():
    names = [f"p{k}" for k in range(63)]
    cluster = Cluster.of(
        pl.DataFrame({"node": names, "gpu_type": "A", "gpus": 1, "partitions": [[name] for name in names]}),
        source="many",
    )
    with pytest.raises(WorkloadError, match="more than 62 kinds of nodes"):
        NodeClasses.of(jobs(*({"partitions": [name]} for name in names)).frame, cluster)
