"""Every job of the recorded Slurm logs against a second reading of them, which shares no code with the first."""

import re
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

import fleetlab

STATES = {
    "COMPLETED": "completed", "FAILED": "failed", "TIMEOUT": "failed", "NODE_FAIL": "failed", "DEADLINE": "failed",
    "CANCELLED": "cancelled", "PREEMPTED": "cancelled", "REQUEUED": "cancelled", "RUNNING": "running",
    "PENDING": "waiting", "SUSPENDED": "running",
}  # fmt: skip
LOGS = [
    *(f"{folder}/{log}" for folder in ("plain1", "defaults", "deps", "parts", "everything")
      for log in ("sacct.txt", "sacct-more.txt")),
    "everything/mid-sacct.txt",
    *(f"minimal/{name}/sacct.txt" for name in ("aftercorr", "het", "names", "resized", "same-node")),
    *(f"minimal/{name}/sacct.txt" for name in ("split", "split-live")),
]  # fmt: skip


def records(path):
    """Rows as dicts: lines are put together until one begins with an id; a name takes what is left over."""
    header, *lines = Path(path).read_text().split("\n")
    names = header.split("|")
    texts = []
    for line in lines:
        if re.match(r"\d+(_\d+|_\[[^|]*|\+\d+)?(\.\w+)?\|", line):
            texts.append(line)
        elif texts and line:
            texts[-1] += "\n" + line
    free = names.index("JobName") if "JobName" in names else len(names) - 1
    after = len(names) - free - 1
    for text in texts:
        cells = text.split("|")
        if names[-2:] == ["SubmitLine", "JobName"]:  # the line has the name: `-J a|b`
            rest = "|".join(cells[len(names) - 2 :])
            cuts = [m.start() for m in re.finditer(r"\|", rest)]
            cut = next((k for k in cuts if f" -J {rest[k + 1 :]} " in rest[:k]), cuts[-1])
            yield dict(zip(names, [*cells[: len(names) - 2], rest[:cut], rest[cut + 1 :]], strict=True))
            continue
        middle = "|".join(cells[free : len(cells) - after])
        yield dict(zip(names, [*cells[:free], middle, *cells[len(cells) - after :]], strict=True))


def second(text):
    if text in ("Unknown", "None", "", None):
        return None
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def amounts(text):
    parts = dict(part.split("=") for part in text.split(",") if part)
    memory = parts.get("mem", "0M")
    size = float(memory.rstrip("KMGT")) * {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}.get(memory[-1], 1)
    gpus = int(parts.get("gres/gpu", sum(int(v) for k, v in parts.items() if k.startswith("gres/gpu:"))))
    return {"gpus": gpus, "cpus": int(parts.get("cpu", 0)), "memory": size, "nodes": int(parts.get("node", 1))}


def hosts(text):
    found = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", "" if text == "None assigned" else text):
        base, _, spans = part.partition("[")
        for span in spans.rstrip("]").split(",") if spans else [None]:
            low, _, high = (span or "").partition("-")
            numbers = range(int(low), int(high or low) + 1) if span else [None]
            found += [base if n is None else f"{base}{n:0{len(low)}d}" for n in numbers]
    return found


def limit(text):
    if not text or text in ("UNLIMITED", "Partition_Limit"):
        return None
    days, _, clock = text.rpartition("-")
    h, m, s = clock.split(":")
    return int(days or 0) * 86_400 + int(h) * 3600 + int(m) * 60 + int(s)


def wishes(row):
    """What the line of a submission asks for, as far as it can be told without a shell: by its options alone."""
    line = row.get("SubmitLine") or ""
    throttle = re.search(r"--array[= ]\S*%(\d+)", line)
    constraint = re.search(r"(?:--constraint[= ]|-C ?)(\S+)", line)
    return {
        "array_limit": int(throttle[1]) if throttle and "_" in row["JobID"] else 0,
        "constraint": constraint[1] if constraint else None,
        "exclusive": "--exclusive" in line,
        "het": "+" in row["JobID"],
    }


def expected(path):
    """What each job should be, by name and submission; and what its first node gave."""
    rows = list(records(path))
    batch = defaultdict(list)
    for row in rows:
        if row["JobID"].endswith(".batch"):
            batch[row["JobID"][:-6]].append((second(row["Start"]), amounts(row["AllocTRES"])["gpus"]))
    resizing, jobs = set(), {}
    for row in rows:
        if "." in row["JobID"]:
            continue
        state = row["State"].split(" ")[0]
        submit, start, end = (second(row[c]) for c in ("Submit", "Start", "End"))
        nodes = hosts(row["NodeList"])
        piece = row["JobID"] in resizing and start < submit
        start = None if not nodes else submit if piece else start
        done = state not in ("RUNNING", "PENDING", "SUSPENDED")
        ran = row.get("ElapsedRaw") and not piece
        held = amounts(row["AllocTRES"] or row["ReqTRES"])
        names = [row["JobID"]]
        if match := re.fullmatch(r"(\d+)_\[(.*?)(?:%\d+)?\]", row["JobID"]):
            spans = [part.split(":")[0].split("-") for part in match[2].split(",")]
            steps = [int([*part.split(":"), "1"][1]) for part in match[2].split(",")]
            names = [f"{match[1]}_{k}" for (a, *b), step in zip(spans, steps, strict=True)
                     for k in range(int(a), int(b[0] if b else a) + 1, step)]  # fmt: skip
        for name in names:
            jobs[name, submit] = {
                "user": row["User"], "app": row.get("Account"), "group": row.get("JobName"), "qos": row.get("QOS"),
                "status": "completed" if state == "RESIZING" else STATES[state],
                "start": start, "end": end if done else None,
                "runtime": (float(row["ElapsedRaw"]) if ran else end - start) if done and start is not None else None,
                "gpus": held["gpus"], "cpus": held["cpus"], "memory": held["memory"], "limit": limit(row["Timelimit"]),
                "partition": row.get("Partition"), "nodes": nodes if start is not None else [],
                "wishes": wishes(row),
                "first": next((g for at, g in batch[name] if start and start <= at and (not end or at <= end)), None),
            }  # fmt: skip
        if state == "RESIZING":
            resizing.add(row["JobID"])
    return jobs


def read(path):
    """The same of the trace that is read from it."""
    trace = fleetlab.read(path, "slurm", since="2000-01-01")
    assert trace.rejects.is_empty()
    frame = trace.names.collect().join(trace.workload.frame, on="job")
    placed = trace.placements.collect().group_by("job").agg("node")
    nodes = {job: [str(n) for n in names] for job, names in placed.iter_rows()}
    return {
        (row["name"].split("/")[-1], row["submit"] + trace.workload.epoch): row | {"nodes": nodes.get(row["job"], [])}
        for row in frame.with_columns(pl.col("user", "app", "group", "qos").cast(pl.String)).iter_rows(named=True)
    }, trace.workload.epoch


def check(path):
    wanted, (jobs, epoch) = expected(path), read(path)
    assert set(jobs) == set(wanted)
    for key, want in wanted.items():
        job = jobs[key]
        for column in ("user", "app", "group", "qos"):
            assert job[column] == (want[column] or None), (key, column)
        for column in ("start", "end"):
            assert job[column] == (None if want[column] is None else want[column] - epoch), (key, column)
        for column in ("status", "runtime", "limit"):
            assert job[column] == want[column], (key, column)
        assert job["instances"] * job["gpu_milli"] == 1000 * want["gpus"], key
        assert 0 <= job["instances"] * job["cpu_milli"] - 1000 * want["cpus"] < job["instances"], key
        assert 0 <= job["instances"] * job["memory_mib"] - want["memory"] < job["instances"], key
        assert want["partition"] in (job["partitions"] or [None, ""]), key
        assert list(dict.fromkeys(job["nodes"])) == want["nodes"], key
        if "SubmitLine" in Path(path).read_text().split("\n", 1)[0]:
            asked = want["wishes"]
            assert job["array_limit"] == asked["array_limit"], key
            assert job["exclusive"] == asked["exclusive"], key
            assert asked["constraint"] is None or job["constraint"] == asked["constraint"].strip("'\""), key
            assert (job["gang"] is not None) == asked["het"], key
        if want["first"] and len(want["nodes"]) > 1:
            on_first = sum(node == want["nodes"][0] for node in job["nodes"])
            assert on_first * job["gpu_milli"] == 1000 * want["first"], key


@pytest.mark.data
@pytest.mark.parametrize("log", LOGS)
def test_each_job_is_read_as_a_second_reading_has_it(data, log):
    check(data / "slurm-22.05" / log)
