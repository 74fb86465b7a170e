"""What a Slurm job was submitted with: options, dependencies, arrays, parts."""

import pytest

import fleetlab
from fleetlab.schedulers.slurm.reader.dependencies import Wish, wishes
from fleetlab.schedulers.slurm.reader.submissions import options_of, parts_of

HEADER = (
    "JobID|User|Account|QOS|Partition|Submit|Eligible|Start|End|State|ReqTRES|AllocTRES|NodeList|SubmitLine|JobName\n"
)
AT = "2024-05-01T10:00:00"


def row(name, line="", **other):
    given = {"user": "ann", "submit": AT, "eligible": AT, "start": "2024-05-01T10:01:00", "end": "2024-05-01T10:02:00",
             "state": "COMPLETED", "req": "cpu=1,gres/gpu=1,node=1", "alloc": "", "nodes": "n1", "title": "wrap",
             "partition": "gpu"} | other  # fmt: skip
    alloc = given["alloc"] or given["req"]
    times = "|".join(given[c] for c in ("submit", "eligible", "start", "end", "state"))
    return (
        f"{name}|{given['user']}|vision|high|{given['partition']}|{times}|{given['req']}|{alloc}|{given['nodes']}"
        f"|{line}|{given['title']}\n"
    )


@pytest.fixture
def jobs(tmp_path):
    """Read rows of a log; give the workload by the names of its jobs."""

    def read(*rows):
        (tmp_path / "sacct.txt").write_text(HEADER + "".join(rows))
        trace = fleetlab.read(tmp_path, "slurm")
        assert trace.rejects.is_empty()
        return trace.names.collect().join(trace.workload.frame, on="job")

    return read


def waits(frame):
    """What each job depends on, by names."""
    names = dict(frame.select("job", "name").iter_rows())
    return {
        name: [(rule, names[k]) for rule, k in zip(rules, on, strict=True)]
        for name, on, rules in frame.select("name", "depends_on", "dependency").iter_rows()
        if on
    }


# -- the line --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("sbatch -N2 -n 4 job.sh -N9", {"nodes": "2", "ntasks": "4"}),
        ("/usr/bin/sbatch --part=a,b --time 5 -HJ me", {"partition": "a,b", "time": "5", "hold": "", "job-name": "me"}),
        ("salloc --exclusive --nice --gpus a100:4", {"exclusive": "", "nice": "", "gpus": "a100:4"}),
        ("srun -d=afterok:1 -- prog", {"dependency": "afterok:1"}),
        ("sbatch --wrap=sleep 3 -N2", {}),
        ("python train.py -N2", {}),
        ("", {}),
        ("sbatch -", {}),
    ],
)
def test_options_end_where_the_script_begins(line, options):
    assert options_of(line) == options


def test_parts_of_a_heterogeneous_job_have_options_of_their_own():
    assert [p.get("nodes") for p in parts_of("sbatch -N1 : -N2 --gpus=4 : -N3 run.sh")] == ["1", "2", "3"]


def test_columns_come_from_accounting_and_from_the_line(jobs):
    line = "sbatch -p gpu,short --nice=50 -C a100*2&nvlink --reservation=night --exclusive -t 5 --wrap true"
    (found,) = jobs(row("1", line)).iter_rows(named=True)
    assert (found["queue"], found["qos"], found["nice"]) == ("vision", "high", 50)
    assert (found["partitions"], found["constraint"]) == (["gpu", "short"], "a100&nvlink")
    assert (found["reservation"], found["exclusive"]) == ("night", True)


def test_a_name_of_several_words_does_not_end_the_options(jobs):
    frame = jobs(row("1", "sbatch -J my own job --nice=7 --wrap true", title="my own job"))
    assert frame.select("group", "nice").rows() == [("my own job", 7)]


def test_a_job_that_was_moved_is_in_the_partition_where_it_ran(jobs):
    assert jobs(row("1", "sbatch -p a,b", partition="gpu"))["partitions"].to_list() == [["gpu"]]


# -- shapes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "req", "alloc", "shape"),
    [
        ("sbatch -N2 --gpus-per-node=4", "gres/gpu=8,node=2", "gres/gpu=8,node=2", (2, 4000, True)),
        ("sbatch --gpus=8", "gres/gpu=8,node=1", "gres/gpu=8,node=2", (8, 1000, False)),
        ("sbatch --gpus=8", "gres/gpu=8,node=1", "gres/gpu=8,node=1", (8, 1000, False)),
        ("sbatch --gpus=8 -N1", "gres/gpu=8,node=1", "gres/gpu=8,node=1", (1, 8000, False)),
        ("sbatch --gres=gpu:8", "gres/gpu=8,node=1", "gres/gpu=8,node=1", (1, 8000, False)),
        ("sbatch -n6 --gpus-per-task=2", "gres/gpu=12,node=1", "gres/gpu=12,node=2", (6, 2000, False)),
        ("sbatch -N1-3 --gpus-per-node=8", "gres/gpu=8,node=1", "gres/gpu=24,node=3", (3, 8000, True)),
        ("", "gres/gpu=8,node=1", "gres/gpu=8,node=2", (8, 1000, False)),
        ("", "gres/gpu=8,node=2", "gres/gpu=8,node=2", (2, 4000, True)),
        ("", "gres/gpu=8,node=1", "gres/gpu=8,node=1", (1, 8000, False)),
        ("", "gres/gpu=8,node=1", "gres/gpu=24,node=3", (3, 8000, True)),
    ],
)
def test_gpus_are_divided_as_they_were_asked_for(jobs, line, req, alloc, shape):
    nodes = {"1": "n1", "2": "n[1-2]", "3": "n[1-3]"}[alloc[-1]]
    frame = jobs(row("1", line, req=req, alloc=alloc, nodes=nodes))
    assert frame.select("instances", "gpu_milli", "distinct_nodes").row(0) == shape


# -- arrays, parts and dependencies ----------------------------------------------------------------------------------


def test_an_array_has_its_throttle_and_parts_start_together(jobs):
    frame = jobs(
        row("7_1", "sbatch --array=1-3%2"), row("7_2", "sbatch --array=1-3%2"), row("8+0"), row("8+1"), row("9")
    )
    assert frame["array_limit"].to_list() == [2, 2, 0, 0, 0]
    assert frame["array"].is_not_null().to_list() == [True, True, False, False, False]
    gangs = frame["gang"].to_list()
    assert (gangs[:2], gangs[2] == gangs[3] is not None, gangs[4]) == ([None, None], True, None)


def test_dependencies_are_on_jobs_tasks_and_the_same_tasks(jobs):
    frame = jobs(
        row("1"), row("2_1"), row("2_2"),
        row("3", "sbatch --dependency=afterok:1,afterany:2_2 x.sh"),
        row("4_1", "sbatch -a 1-2 -d aftercorr:2"), row("4_2", "sbatch -a 1-2 -d aftercorr:2"),
        row("5", "sbatch -dafter:2"),
    )  # fmt: skip
    assert waits(frame) == {
        "3": [("afterok", "1"), ("afterany", "2_2")],
        "4_1": [("afterok", "2_1")],
        "4_2": [("afterok", "2_2")],
        "5": [("after", "2_1"), ("after", "2_2")],
    }


def test_a_singleton_waits_for_all_earlier_jobs_of_its_user_and_name(jobs):
    frame = jobs(
        row("1", title="a"), row("2", title="a", user="bob"), row("3", "sbatch -d singleton", title="a"),
        row("4", title="a"), row("5", "sbatch -d singleton", title="a"),
    )  # fmt: skip
    assert waits(frame) == {"3": [("afterany", "1")], "5": [("afterany", "4"), ("afterany", "3")]}


def test_alternatives_and_minutes_after_a_start_are_kept_as_rules(jobs):
    frame = jobs(
        row("1"), row("2"), row("3", "sbatch -d afterok:1?afterany:2"), row("4", "sbatch -d after:1+5"),
        row("5", "sbatch -d afterok:1?afterok:99"),
    )  # fmt: skip
    assert waits(frame) == {"3": [("afterok?", "1"), ("afterany?", "2")], "4": [("after+5", "1")]}


def test_the_logged_time_stands_where_a_job_depends_on_one_that_never_started(jobs):
    later = "2024-05-01T10:00:40"
    frame = jobs(
        row("1", state="CANCELLED", start="None", nodes="None assigned", end=later),
        row("2", "sbatch -d afterany:1", eligible=later),
    )
    assert frame["eligible"].to_list() == [0, 40]


def test_a_job_says_whether_it_may_run_again_or_leaves_it_to_the_site(jobs):
    frame = jobs(
        row("1", "sbatch a.sh"), row("2", "sbatch --no-requeue a.sh"), row("3", "sbatch --requeue a.sh"),
        row("4", "srun hostname"),
    )  # fmt: skip
    assert frame["requeue"].to_list() == [None, False, True, False]


def test_time_until_a_dependency_is_not_part_of_eligible_but_a_begin_time_is(jobs):
    later = "2024-05-01T10:00:40"
    frame = jobs(
        row("1"),
        row("2", "sbatch -d afterok:1", eligible=later),
        row("3", "sbatch -d afterok:1 --begin=now+40", eligible=later),
        row("4", "sbatch -d afterok:99", eligible=later),
        row("5", "sbatch -d afterok:1?afterany:2", eligible=later),
    )
    assert frame["eligible"].to_list() == [0, 0, 40, 40, 0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("afterok:1_4", [Wish("afterok", "1", "4")]),
        ("after:1+5", [Wish("after", "1", "", minutes=5)]),
        ("17", [Wish("afterany", "17")]),
        ("afterok:1?afterok:2", [Wish("afterok", "1"), Wish("afterok", "2")]),
        ("nonsense:1,", []),
    ],
)
def test_a_dependency_is_read_as_slurm_reads_it(text, found):
    assert wishes(text) == found
