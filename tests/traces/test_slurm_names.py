"""Names with separators and line ends, in a log that quotes nothing; and the same log as JSON."""

import json

import pytest

import fleetlab

TIMES = "2024-05-01T10:00:00|2024-05-01T10:00:10|2024-05-01T10:01:00|COMPLETED"
END = "cpu=1,node=1|n1"


@pytest.fixture
def read(tmp_path):
    def of(header, *rows):
        (tmp_path / "sacct.txt").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        return fleetlab.read(tmp_path, "slurm")

    return of


NAMES = ["a|b", "two\nlines", "|", "\n|x|\n", "1|2|3", "plain", "Grüße", "x\n\ny", "5|"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("last", [True, False])
def test_a_name_may_hold_separators_and_line_ends(read, name, last):
    if last:
        header, row = "JobID|Submit|Start|End|State|AllocTRES|NodeList|JobName", "{}|" + f"{TIMES}|{END}|" + "{}"
    else:
        header, row = "JobID|JobName|Submit|Start|End|State|AllocTRES|NodeList", "{}|{}|" + f"{TIMES}|{END}"
    trace = read(header, row.format("1", name), row.format("1.batch", "batch"), row.format("2", "next"))
    assert trace.rejects.is_empty()
    assert trace.workload.frame["group"].to_list() == [name.strip(), "next"]
    assert trace.counts.row(0, named=True)["rows"] == 3


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("sbatch -J a|b x.sh", "a|b"),
        ("sbatch --wrap=cat x | sort", "wrap"),
        ("sbatch -C a100|h100 /home/ann/train.sh --n 5", "train.sh"),
        ("", "c|d"),
    ],
)
def test_a_line_of_submission_is_told_from_the_name_after_it(read, line, name):
    header = "JobID|Submit|Start|End|State|AllocTRES|NodeList|Constraints|SubmitLine|JobName"
    trace = read(header, f"1|{TIMES}|{END}|a100|h100|{line}|{name}", f"2|{TIMES}|{END}|||z")
    assert trace.workload.frame["group"].to_list() == [name, "z"]
    assert trace.workload.frame["constraint"].to_list() == ["a100|h100", None]


def test_a_row_that_no_reading_makes_sense_of_is_turned_away_alone(read):
    header = "JobID|JobName|Submit|Start|End|State|AllocTRES|NodeList"
    trace = read(header, f"1|a|soon|{TIMES}|{END}|more", "junk", f"2|ok|{TIMES}|{END}")
    assert trace.rejects.select("line", "reason").rows() == [
        (2, "8 columns expected, got: 10"),
        (3, "8 columns expected, got: 1"),
    ]
    assert trace.workload.frame["group"].to_list() == ["ok"]


# -- JSON ------------------------------------------------------------------------------------------------------------


def tres(**amounts):
    kinds = {"gpu": ("gres", "gpu"), "cpu": ("cpu", None), "mem": ("mem", None), "node": ("node", None)}
    return [{"type": kinds[k][0], "name": kinds[k][1], "id": 1, "count": n} for k, n in amounts.items()]


def job(number, **other):
    time = {"submission": 1714557600, "eligible": 1714557600, "start": 1714557610, "end": 1714557670, "elapsed": 60}
    return {
        "job_id": number, "name": "a|b", "user": "ann", "account": "vision", "qos": "high", "partition": "gpu",
        "association": {"user": "ann"}, "time": time | {"limit": 5}, "state": {"current": "COMPLETED"},
        "nodes": "n[1-2]",
        "array": {"job_id": 0, "task_id": None, "task": None}, "het": {"job_id": 0, "job_offset": None},
        "tres": {"allocated": tres(cpu=2, mem=2000, node=2, gpu=8), "requested": tres(cpu=1, node=1, gpu=8)},
        "steps": [{"step": {"id": "batch", "name": "batch"}, "time": {"start": 1714557610, "end": 1714557670},
                   "tres": {"allocated": tres(cpu=1, gpu=1)}, "state": "COMPLETED"}],
        "flags": ["STARTED_ON_BACKFILL"], "priority": 7,
    } | other  # fmt: skip


def newer(number):
    """The same with numbers as objects, as versions since 23.02 write."""

    def some(n):
        return {"set": True, "infinite": False, "number": n}

    old = job(number)
    array = {"job_id": number, "task_id": some(4), "task": "", "limits": {"max": {"running": {"tasks": 2}}}}
    step = old["steps"][0] | {"step": {"id": f"{number}.batch", "name": "batch"}, "state": ["COMPLETED"]}
    return old | {"priority": some(7), "state": {"current": ["COMPLETED"]}, "array": array, "steps": [step],
                  "time": old["time"] | {"limit": some(5)}, "submit_line": "sbatch --gpus=8 --nice=3"}  # fmt: skip


@pytest.mark.parametrize("indent", [None, 1])
def test_a_log_may_be_json(tmp_path, indent):
    pending = {"state": {"current": "PENDING"}, "nodes": "None assigned", "steps": [],
               "array": {"job_id": 9, "task_id": None, "task": "0x16", "limits": {"max": {"running": {"tasks": 2}}}},
               "tres": {"allocated": [], "requested": tres(cpu=1, node=1)}}  # fmt: skip
    jobs = [job(7), newer(8), job(9, **pending), job(10, het={"job_id": 10, "job_offset": 1})]
    (tmp_path / "sacct.json").write_text(json.dumps({"meta": {}, "jobs": jobs, "errors": []}, indent=indent))
    trace = fleetlab.read(tmp_path, "slurm", zone="Asia/Tokyo")
    assert trace.names.collect()["name"].to_list() == ["7", "8_4", "9_1", "9_2", "9_4", "10+1"]
    assert trace.counts.rows() == [("jobs", 7, 7, 0)]
    frame = trace.workload.frame
    assert frame["group"].to_list() == ["a|b"] * 6
    assert frame.select("instances", "gpu_milli", "limit", "start", "runtime").row(0) == (8, 1000, 300, 10, 60)
    assert frame.select("instances", "nice", "array_limit", "priority").row(1) == (8, 3, 2, 7)
    assert frame["array_limit"].to_list() == [0, 2, 2, 2, 2, 0]
    assert trace.workload.epoch == 1714557600


def test_a_log_in_text_counts_before_the_same_in_json_but_takes_throttles_from_it(tmp_path):
    (tmp_path / "sacct.json").write_text(json.dumps({"jobs": [newer(8)]}))
    (tmp_path / "sacct.txt").write_text(f"JobID|Submit|Start|End|State|AllocTRES|NodeList\n8_4|{TIMES}|{END}\n")
    trace = fleetlab.read(tmp_path, "slurm")
    assert trace.workload.frame.select("gpu_milli", "array_limit").rows() == [(0, 2)]
