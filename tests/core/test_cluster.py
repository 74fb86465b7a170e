"""The cluster: nodes by hand, all alike, or from a small TOML."""

import polars as pl
import pytest

from fleetlab.core import Cluster, WorkloadError

COLUMNS = [
    "node",
    "pool",
    "gpu_type",
    "gpus",
    "gpu_memory_mib",
    "cpu_milli",
    "memory_mib",
    "rdma_milli",
    "disk_mib",
    "partitions",
    "features",
    "weight",
]


def of(**columns: object) -> Cluster:
    return Cluster.of(pl.DataFrame({"node": ["a"], **columns}, strict=False), source="by hand")


def toml(folder, text: str | bytes) -> Cluster:
    path = folder / "cluster.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Cluster.from_toml(path)


def test_the_columns_are_those_of_the_design_in_its_order():
    assert of().frame.columns == COLUMNS


def test_a_node_that_says_nothing_has_nothing():
    assert of().frame.row(0) == ("a", "default", None, 0, 0, 0, 0, 0, 0, [], [], 1)


def test_uniform_nodes_are_alike_but_for_their_names():
    frame = Cluster.uniform(3, 8).frame
    assert (frame["node"].n_unique(), frame.drop("node").unique().height) == (3, 1)


def test_nodes_without_gpus_have_no_type_of_them():
    assert Cluster.uniform(1, 0).frame.select("gpu_type", "gpus", "gpu_memory_mib").row(0) == (None, 0, 0)


def test_gpus_are_added_up_beyond_32_bits():
    assert Cluster.uniform(3, 2**31 - 1).gpus == 3 * (2**31 - 1)


@pytest.mark.parametrize(
    "columns",
    [
        {"node": [None]},
        {"node": ["a", "a"]},
        {"gpus": [-1], "gpu_type": ["T4"]},
        {"gpus": [1]},
        {"gpus": [0.5]},
        {"gpus": [float("nan")]},
        {"gpus": [None]},
        {"gpus": [2**31]},
        {"pool": [None]},
        {"cpu_milli": ["many"]},
        {"cpu_milli": [10**30]},
        {"cpu_milli": [{"a": 1}]},
        {"memory_mib": [-5]},
        {"colour": ["red"]},
    ],
    ids=str,
)
def test_a_node_that_cannot_be_is_refused(columns):
    with pytest.raises(WorkloadError):
        of(**columns)


def test_a_table_without_nodes_is_refused():
    with pytest.raises(WorkloadError, match="needs the column: `node`"):
        Cluster.of(pl.DataFrame({"gpus": [1]}), source="s")


@pytest.mark.parametrize("nodes", [0, -1])
def test_a_cluster_of_no_nodes_is_refused(nodes):
    with pytest.raises(WorkloadError, match="at least one node"):
        Cluster.uniform(nodes, 8)


@pytest.mark.parametrize("cpu_milli", [2**63, 10**40, -1])
def test_a_uniform_node_beyond_all_measure_is_refused(cpu_milli):
    with pytest.raises(WorkloadError):
        Cluster.uniform(1, 8, cpu_milli=cpu_milli)


# -- TOML --------------------------------------------------------------------------------------------------------

GPU_NODES = '[[node]]\ncount = 2\ngpu_type = "V100"\ngpus = 8\ncpu_milli = 96000\nmemory_mib = 393216\n'


def test_the_example_of_the_design_is_forty_nodes(tmp_path):
    cluster = toml(tmp_path, GPU_NODES.replace("count = 2", "count = 40"))
    assert repr(cluster) == "<Cluster 40 nodes, 320 GPUs, cluster.toml>"


def test_one_entry_may_leave_out_what_another_gives(tmp_path):
    cluster = toml(tmp_path, GPU_NODES + '[[node]]\nnode = "login"\ncpu_milli = 8000\n')
    assert cluster.frame.select("node", "gpu_type", "gpus").rows() == [
        ("V100-0", "V100", 8),
        ("V100-1", "V100", 8),
        ("login", None, 0),
    ]


def test_a_node_keeps_its_name_when_a_count_changes_or_another_pool_goes(tmp_path):
    old, new, more = (f'[[node]]\npool = "{pool}"\ncpu_milli = 8\ncount = ' for pool in ("old", "new", "new"))
    both = toml(tmp_path, f"{old}3\n{new}2\n{more}2\n").frame["node"].to_list()
    assert both == ["old-0", "old-1", "old-2", "new-0", "new-1", "new.2-0", "new.2-1"]
    for fewer in (f"{new}2\n{more}2\n", f"{old}1\n{new}2\n", f"{new}1\n{more}1\n"):
        assert set(toml(tmp_path, fewer).frame["node"]) < set(both)


def test_a_name_of_ones_own_is_numbered_where_there_is_a_count(tmp_path):
    entries = '[[node]]\nnode = "login"\n[[node]]\nnode = "a"\ncount = 1\n[[node]]\nnode = "b"\ncount = 2\n'
    assert toml(tmp_path, entries).frame["node"].to_list() == ["login", "a-0", "b-0", "b-1"]


def test_a_path_may_be_text(tmp_path):
    toml(tmp_path, GPU_NODES)
    assert len(Cluster.from_toml(str(tmp_path / "cluster.toml"))) == 2


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no [[node]] entry"),
        ("node = 5", "no [[node]] entry"),
        ("node = []", "no [[node]] entry"),
        ("node = [1, 2]", "no [[node]] entry"),
        ("[node]\ngpus = 1", "no [[node]] entry"),
        ("[[node]\n", "not TOML"),
        (b"\xff\xfe", "not TOML"),
        ("x = " + "[" * 100_000, "not TOML"),
        ("[[node]]\ngpus = " + "9" * 5000, "not TOML"),
        ("[[node]]\ncount = 0", "`count` of [[node]] entry 1"),
        ("[[node]]\ncount = -3", "`count` of [[node]] entry 1"),
        ("[[node]]\ncount = 2.5", "`count` of [[node]] entry 1"),
        ("[[node]]\ncount = true", "`count` of [[node]] entry 1"),
        ('[[node]]\ncount = "many"', "`count` of [[node]] entry 1"),
        ("[[node]]\ncount = 1000000000000", "`count` of [[node]] entry 1"),
        ("[[node]]\ncolour = 1", "no such key in [[node]] entry 1: ['colour']"),
        ("[[node]]\ncpu_milli = 1.5", "not a whole number in [[node]] entry 1: ['cpu_milli']"),
        ("[[node]]\ncpu_milli = nan", "not a whole number"),
        ("[[node]]\ncpu_milli = true", "not a whole number"),
        ('[[node]]\ncpu_milli = "8"', "not a whole number"),
        ("[[node]]\ncpu_milli = -1", "`cpu_milli` is negative"),
        ("[[node]]\ncpu_milli = 1" + "0" * 25, "cannot be what a cluster asks for"),
        ("[[node]]\ncpu_milli = 1" + "0" * 45, "a node cannot have that"),
        ('[[node]]\ngpus = 3000000000\ngpu_type = "A"', "cannot be what a cluster asks for"),
        ("[[node]]\ngpus = 1", "does not say of which type"),
        ("[[node]]\ngpu_type = 5", "not a name in [[node]] entry 1: ['gpu_type']"),
        ('[[node]]\ngpu_type = ["A"]', "not a name"),
        ("[[node]]\npool = {a = 1}", "not a name"),
        ("[[node]]\nnode = 1979-05-27", "not a name"),
        ('[[node]]\nnode = "a"\n[[node]]\nnode = "a"', "named twice"),
    ],
    ids=lambda x: str(x)[:30],
)
def test_a_file_that_is_no_cluster_is_refused_by_name(text, what, tmp_path):
    with pytest.raises(WorkloadError) as refused:
        toml(tmp_path, text)
    assert what in str(refused.value)


@pytest.mark.parametrize("name", ["nowhere.toml", "."])
def test_a_file_that_cannot_be_read_is_refused_with_a_hint(name, tmp_path):
    with pytest.raises(WorkloadError, match="cannot read the cluster file") as refused:
        Cluster.from_toml(tmp_path / name)
    assert refused.value.hint
