"""How far runs are apart, and what of them is kept."""

import gzip
import json

import pytest
from realtest.keep import keep, thin
from realtest.spread import compare, load, tables

HEADER = "JobID|Submit|Eligible|Start|State|JobName"
STAMP = "2026-11-16T12:{:02d}:{:02d}"


def stamp(second):
    return STAMP.format(*divmod(second, 60))


@pytest.fixture
def run(tmp_path):
    """Write a run by its jobs: id, seconds of eligible and start, or None for one that never started."""

    def write(name, jobs):
        folder = tmp_path / name
        folder.mkdir()
        rows = [f"{k}|{stamp(e)}|{stamp(e)}|{'Unknown' if s is None else stamp(s)}|X|a|b" for k, e, s in jobs]
        steps = [f"{jobs[0][0]}.batch||{stamp(0)}|{stamp(0)}|X|batch"]
        (folder / "sacct.txt").write_text("\n".join([HEADER, *rows, *steps]) + "\n")
        (folder / "run.json").write_text(json.dumps({"begin": 1794830400}))
        submitted = [{"late": 0.01, "key": "k0"}, {"late": 0.2, "at": 3, "kind": "drain"}]
        (folder / "submitted.jsonl").write_text("\n".join(map(json.dumps, submitted)) + "\n")
        (folder / "snapshots.txt").write_text("".join(f"== {k}\n-- squeue {k} {k}\n" for k in range(20)))
        (folder / "sshare-begin.txt").write_text("Account|User\n")
        (folder / "nodes.txt").write_text("NodeName=n1\n")
        (folder / "site.conf").write_text("PriorityType=priority/basic\n")
        (folder / "config.txt").write_text("ClusterName = lab\n")
        return folder

    return write


def test_a_requeued_job_counts_from_its_first_start_and_a_job_without_a_start_not_at_all(run):
    loaded = load(run("plain-1", [("1", 0, 30), ("1", 0, 10), ("2", 5, 6), ("3", 0, None)]))
    assert loaded.start == {"1": 10, "2": 6}
    assert sorted(loaded.waits) == [1, 10]


def test_jobs_are_matched_by_the_order_of_submission(run, tmp_path):
    folder = run("deps-1", [("1_1", 0, 10), ("1_2", 0, 20), ("4", 0, 30)])
    ids = [{"late": 0, "key": f"k{number}", "id": number} for number in (1, 3, 4)]
    (folder / "submitted.jsonl").write_text("\n".join(map(json.dumps, ids)))
    assert load(folder).start == {"1_1": 10, "1_2": 20, "3": 30}
    assert load(keep(folder, tmp_path / "kept" / "deps-1", first=True)).start == load(folder).start


def test_two_runs_are_compared_job_by_job(run):
    one = load(run("plain-1", [("1", 0, 10), ("2", 0, 20), ("3", 0, 30), ("4", 0, 3)]))
    other = load(run("plain-2", [("1", 0, 11), ("2", 0, 25), ("3", 0, 50)]))
    compared = compare(one, other)
    assert compared["jobs"] == 3
    assert compared["within_2s"] == pytest.approx(1 / 3)
    assert compared["within_10s"] == pytest.approx(2 / 3)
    assert compared["mean_apart"] == pytest.approx(26 / 3)


def test_the_tables_name_each_run_and_each_setting(run):
    folder = run("plain-1", [("1", 0, 10), ("2", 0, 21)]).parent
    run("plain-2", [("1", 0, 10), ("2", 0, 23)])
    said = tables(folder)
    assert "| plain-1 | 2 | 15.5 |" in said
    assert "| plain | 2 | 16.0 | 6.2% |" in said


def test_a_kept_run_says_the_same(run, tmp_path):
    folder = run("plain-1", [("1", 0, 10), ("2", 0, 21)])
    kept = keep(folder, tmp_path / "kept" / "plain-1", first=True)
    assert load(kept) == load(folder)
    assert gzip.decompress((kept / "sacct.txt.gz").read_bytes()) == (folder / "sacct.txt").read_bytes()
    assert json.loads((kept / "run.json").read_text())["acts"] == [{"at": 3, "kind": "drain"}]


def test_a_repetition_leaves_out_what_the_first_has(run, tmp_path):
    kept = keep(run("plain-2", [("1", 0, 10)]), tmp_path / "kept" / "plain-2", first=False)
    assert not (kept / "config.txt").exists()
    assert (kept / "site.conf").exists()


def test_snapshots_are_thinned_evenly():
    text = "".join(f"== {k}\nrow\n" for k in range(21))
    assert thin(text, 3) == "== 0\nrow\n== 10\nrow\n== 20\nrow\n"
