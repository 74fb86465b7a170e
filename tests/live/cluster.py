"""A stand-in for a Slurm cluster: what its commands print follows from a list of jobs and the clock.

As a program it stands for squeue, sacct and scontrol, by the name it is called by; JOBS names the list. It fails now
and then, as real ones do, and forgets jobs soon after they ended.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

FORGET_S = 1.0  # of squeue; accounting keeps them
GPU_NODES, GPUS = 4, 8
NODE = """NodeName={name} Arch=x86_64 CoresPerSocket=32
   CPUAlloc={cpus} CPUEfctv=64 CPUTot=64 CPULoad=0.1
   Gres=gpu:a100:8
   RealMemory=512000 AllocMem=0 Sockets=2 Boards=1
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A
   Partitions=gpu
   CfgTRES=cpu=64,mem=500G,billing=64,gres/gpu=8
   AllocTRES={used}

"""


def drawn(count, begin, spacing, longest, seed=1):
    """Jobs that come one after the other, wait and run for a while; some are cancelled while they wait."""
    draws = random.Random(seed)
    jobs, at = [], begin
    for number in range(1, count + 1):
        at += draws.expovariate(1 / spacing)
        wait, run = draws.uniform(0, longest / 2), draws.uniform(0.2, longest)
        job = {
            "id": number,
            "submit": int(at),
            "start": at + wait,
            "end": at + wait + run,
            "gpus": draws.choice([1, 2, 8]),
        }
        if draws.random() < 0.1:
            job |= {"start": None, "end": at + wait}
        jobs.append(job | {"node": f"n{number % GPU_NODES + 1}"})
    return jobs


def state(job, now):
    if job["end"] <= now:
        return "CANCELLED" if job["start"] is None else "COMPLETED"
    return "RUNNING" if job["start"] is not None and job["start"] <= now else "PENDING"


def tres(job):
    return f"cpu=4,mem={8000 + job['id']}M,node=1,billing=4,gres/gpu={job['gpus']}"


def name(job):
    return job.get("name") or f"a|run-{job['id']}"  # most have a name, a size of memory and a line of their own


def squeue(jobs, now, forget=FORGET_S):
    listed = [job for job in jobs if job["submit"] <= now and job["end"] + forget > now]
    return json.dumps({"meta": {}, "errors": [], "jobs": [_queued(job, now) for job in listed]})


def _queued(job, now):
    is_now = state(job, now)
    ran = is_now in ("RUNNING", "COMPLETED")
    return {
        "job_id": job["id"], "array_job_id": 0, "array_task_id": None, "het_job_id": 0, "name": name(job),
        "user_name": f"u{job['id'] % 5}", "account": "lab", "partition": "gpu", "qos": "normal", "job_state": is_now,
        "state_reason": ("Resources" if job["id"] % 2 else "Priority") if is_now == "PENDING" else "None",
        "priority": 1000 + int(now) % 977, "submit_time": job["submit"], "eligible_time": job["submit"],
        "start_time": int(job["start"]) if ran else 0, "end_time": int(job["end"]), "time_limit": 60,
        "tres_req_str": tres(job), "tres_alloc_str": tres(job) if ran else "", "nodes": job["node"] if ran else "",
    }  # fmt: skip


def sacct(jobs, now, words):
    if "--helpformat" in words:
        known = "JobID JobIDRaw User Account Partition QOS Submit Start End State AllocTRES ReqTRES NodeList JobName"
        return f"{known} SubmitLine"
    fields = words[words.index("-o") + 1].split(",")
    if "-j" in words:
        ids = {int(number) for number in words[words.index("-j") + 1].split(",")}
        ended = [job for job in jobs if job["id"] in ids and job["end"] <= now]
    else:
        since, until = (int(words[words.index(word) + 1].removeprefix("uts")) for word in ("-S", "-E"))
        ended = [job for job in jobs if job["end"] <= now and since <= int(job["end"]) <= until]
    return "".join("\x1f".join(_accounted(job, now).get(field, "") for field in fields) + "\n" for job in ended)


def _accounted(job, now):
    ran = job["start"] is not None
    return {
        "JobID": str(job["id"]), "JobIDRaw": str(job["id"]), "User": f"u{job['id'] % 5}", "Account": "lab",
        "Partition": "gpu", "QOS": "normal", "Submit": str(job["submit"]), "Eligible": str(job["submit"]),
        "Start": str(int(job["start"])) if ran else "Unknown", "End": str(int(job["end"])),
        "State": state(job, now) + ("" if ran else " by 1000"), "AllocTRES": tres(job) if ran else "",
        "ReqTRES": tres(job), "NodeList": job["node"] if ran else "None assigned", "JobName": name(job),
        "SubmitLine": f"sbatch --output=/home/u{job['id'] % 5}/runs/{job['id']}/out.txt train.sh --seed {job['id']}",
    }  # fmt: skip


def scontrol(jobs, now, words):
    if words[1] == "config":
        return "Configuration data as of now\nClusterName             = standin\n"
    if words[1] != "node":
        return ""
    used = {f"n{number + 1}": 0 for number in range(GPU_NODES)}
    for job in jobs:
        if job["submit"] <= now and state(job, now) == "RUNNING":
            used[job["node"]] += job["gpus"]
    return "".join(
        NODE.format(name=name, state="MIXED" if gpus else "IDLE", cpus=gpus * 4,
                    used=f"cpu={gpus * 4},gres/gpu={gpus}" if gpus else "")
        for name, gpus in used.items()
    )  # fmt: skip


def answer(program, words, jobs, now):
    """What a command prints."""
    if program == "squeue":
        return squeue(jobs, now)
    return sacct(jobs, now, words) if program == "sacct" else scontrol(jobs, now, words)


def install(folder, jobs):
    """Put the programs into a folder; return the environment in which they are found."""
    folder.mkdir(parents=True)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    for name in ("squeue", "sacct", "scontrol"):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {__file__} {name} "$@"\n')
        program.chmod(0o755)
    return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "JOBS": str(folder / "jobs.json")}


def main():
    program, *words = sys.argv[1:]
    jobs = json.loads(Path(os.environ["JOBS"]).read_text())
    failing = float(os.environ.get("FAILING", "0"))
    draw = random.random()
    if draw < failing / 2:
        sys.exit(f"{program}: error: Unable to contact slurm controller (connect failure)")
    text = answer(program, words, jobs, time.time())
    print(text[: len(text) // 2] if draw < failing else text, end="")


if __name__ == "__main__":
    main()
