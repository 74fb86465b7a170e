"""What a reader of Slurm's logs says of what it met: sdiag, wrong numbers, several clusters; and throttled arrays."""

import fleetlab

HEADER = "JobID|Cluster|User|Submit|Eligible|Start|End|State|AllocTRES|ReqTRES|NodeList|Timelimit|SubmitLine"
ROW = "{}|{}|ann|2026-01-01T10:00:00|2026-01-01T10:00:{:02}|2026-01-01T10:00:{:02}|2026-01-01T10:01:00|COMPLETED|cpu=1,mem=1G,node=1,gres/gpu=1|cpu=1,mem=1G,node=1,gres/gpu=1|n1|00:05:00|{}"  # noqa: E501
NODE = "NodeName=n1 CPUTot=64 RealMemory=512000 Gres=gpu:a100:8 State=IDLE CfgTRES=cpu=64,mem=512000M,gres/gpu=8\n"
CONF = "ClusterName=lab\nPartitionName=gpu Nodes=n1\nSchedulerParameters=bf_interval=soon\nPriorityWeightAge=many\n"
SDIAG = """sdiag output at Mon Nov 16 19:22:49 2026 (1794856969)
Main schedule statistics (microseconds):
\tMax cycle:    254889
\tMean cycle:   2071
\tMean depth cycle:  86

Backfilling stats
\tMax cycle:  227513
\tMean cycle: 70608
\tDepth Mean: 144
"""


def folder(path, *rows):
    (path / "sacct.txt").write_text("\n".join([HEADER, *rows]) + "\n")
    (path / "nodes.txt").write_text(NODE)
    return path


def test_what_sdiag_says_of_the_loops_is_noted(tmp_path):
    site = folder(tmp_path, ROW.format(1, "lab", 0, 0, ""))
    (site / "slurm.conf").write_text(CONF)
    (site / "sdiag.txt").write_text(SDIAG)
    cycles = "of the backfill loop took 70.6 ms (longest 228 ms, 144 jobs deep); simulated: 2 ms and 0.8 ms a job"
    assert any(cycles in note for note in fleetlab.read(site, "slurm").notes)


def test_settings_that_are_no_numbers_are_noted(tmp_path):
    site = folder(tmp_path, ROW.format(1, "lab", 0, 0, ""))
    (site / "slurm.conf").write_text(CONF)
    wrong = "settings that are not numbers, their defaults hold: bf_interval=soon, PriorityWeightAge=many"
    assert wrong in fleetlab.read(site, "slurm").notes


def test_a_log_of_two_clusters_is_noted(tmp_path):
    site = folder(tmp_path, ROW.format(1, "lab", 0, 0, ""), ROW.format(2, "other", 0, 0, ""))
    assert any("jobs of 2 clusters" in note for note in fleetlab.read(site, "slurm").notes)


def test_tasks_behind_a_throttle_are_eligible_with_the_first(tmp_path):
    line = "sbatch --array=1-2%1 --wrap x"
    site = folder(tmp_path, ROW.format("5_1", "lab", 0, 0, line), ROW.format("5_2", "lab", 30, 30, line))
    jobs = fleetlab.read(site, "slurm").workload.frame
    assert jobs["array_limit"].to_list() == [1, 1]
    assert jobs["eligible"].to_list() == [0.0, 0.0]
    assert jobs["start"].to_list() == [0.0, 30.0]
