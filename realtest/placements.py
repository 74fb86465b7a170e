"""Where a real Slurm puts jobs, decision by decision: `python -m realtest.placements equal --decisions 700`.

Each job is asked for with `salloc`, which answers at once, so that the state that a decision was made in is known: the
jobs before it, less those that were ended. No job runs a process. A decision is then made anew from that state by our
own rule, through the reader, as a user's log is read.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

import fleetlab
from fleetlab.core import Scenario
from fleetlab.core.cluster import Cluster
from fleetlab.core.files import folder_at
from fleetlab.schedulers.slurm.config import Partition, Slurm
from fleetlab.schedulers.slurm.main_loop import usable_nodes
from fleetlab.schedulers.slurm.play import partitions_of, tables
from fleetlab.schedulers.slurm.reader.node_lists import expand
from fleetlab.schedulers.slurm.reader.tres import gres_list
from fleetlab.schedulers.slurm.select import choose
from fleetlab.schedulers.slurm.state import Free
from fleetlab.schedulers.slurm.state import Slurm as Tables
from fleetlab.sim.simulate import world_of
from realtest.archives import MEASUREMENTS, pack
from realtest.keep import without_host
from realtest.lab import Lab, missing
from realtest.run import collect
from realtest.settings import HOUR, PLAIN

ARCHIVE = MEASUREMENTS / "slurm-placements"
DETAIL = re.compile(r" Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)")
GRANTED = re.compile(r"Granted job allocation (\d+)")
FILES = ("sacct.txt", "nodes.txt", "decisions.jsonl", "slurm.conf", "site.conf", "partitions.txt", "collected.txt")

# Name, type of GPU, GPUs, CPUs, partitions, features, weight.
Node = tuple[str, str, int, int, tuple[str, ...], tuple[str, ...], int]


def _nodes(letter: str, numbers: range, kind: str, parts: str, features: str, **more: int) -> list[Node]:
    return [
        (
            f"{letter}{k}", kind, more.get("gpus", 8), more.get("cpus", 64), tuple(parts.split()),
            (*features.split(), "ib" if k % 2 else "eth"), more.get("weight", 1),
        )
        for k in numbers
    ]  # fmt: skip


CLUSTERS = {
    "equal": [
        *_nodes("n", range(1, 6), "a100", "batch large", "a100 nvlink"),
        *_nodes("n", range(6, 7), "a100", "inter", "a100"),
        *_nodes("v", range(1, 3), "v100", "batch", "v100"),
    ],
    "weights": [
        *_nodes("n", range(1, 4), "a100", "batch large", "a100 nvlink", weight=5),
        *_nodes("n", range(4, 6), "a100", "batch large", "a100 nvlink", weight=2),
        *_nodes("v", range(1, 5), "v100", "batch", "v100", weight=3, gpus=4),
        *_nodes("w", range(1, 3), "v100", "batch inter", "v100 nvlink", weight=2, gpus=4, cpus=32),
    ],
    "sizes": [
        *_nodes("a", range(1, 4), "a100", "batch", "a100 nvlink", cpus=96),
        *_nodes("b", range(1, 4), "a100", "batch large", "a100", gpus=4, cpus=32),
        *_nodes("c", range(1, 3), "", "batch inter", "fat", gpus=0, cpus=128),
        *_nodes("d", range(1, 5), "v100", "batch large inter", "v100", gpus=4, cpus=64),
    ],
}


def site(name: str) -> tuple[Cluster, Slurm]:
    """Return a cluster and its Slurm."""
    columns = ("node", "gpu_type", "gpus", "cpu_milli", "partitions", "features", "weight")
    rows = [dict(zip(columns, node, strict=True), memory_mib=512_000) for node in CLUSTERS[name]]
    rows = [
        row | {"cpu_milli": 1000 * row["cpu_milli"], "gpu_type": row["gpu_type"] or None,
               "partitions": list(row["partitions"]), "features": list(row["features"])}
        for row in rows
    ]  # fmt: skip
    names = ("batch", "large", "inter")
    parts = tuple(Partition(n, default=n == "batch", max_time=HOUR, default_time=HOUR) for n in names)
    return Cluster.of(pl.DataFrame(rows), source="realtest"), replace(PLAIN, partitions=parts)


def draw_request(draws: random.Random, cluster: Cluster) -> list[str]:
    """Draw the words of a request that some node or other of the cluster can meet."""
    features = sorted(set(cluster.frame["features"].explode()))
    nodes = draws.choices([1, 2, 3, 4], [60, 25, 10, 5])[0]
    at, words = draws.random(), [f"-N{nodes}"]
    gpus = draws.choice([1, 1, 2, 2, 4, 4, 8])
    if at < 0.62:
        words.append(f"--gpus-per-node={gpus}")
    elif at < 0.70:
        words.append(f"--gpus-per-node={draws.choice(sorted(set(cluster.frame['gpu_type'].drop_nulls())))}:{gpus}")
    elif at < 0.78:
        words.append(f"--gpus={nodes * gpus}")
    elif at < 0.84:
        words.append("--exclusive")
        if draws.random() < 0.5:
            words.append(f"--gpus-per-node={gpus}")
    else:
        words.append(f"--ntasks-per-node={draws.choice([1, 4, 16, 32])}")
    if draws.random() < 0.4:
        words.append(f"--cpus-per-task={draws.choice([1, 2, 6, 12])}")
    if draws.random() < 0.3:
        words.append(f"--mem={draws.choice([8, 40, 160])}G")
    if draws.random() < 0.35:
        one, other = draws.sample(features, 2)
        words.append(f"-C{draws.choice([one, f'{one}&{other}', f'{one}|{other}'])}")
    if draws.random() < 0.2:
        words.append(f"-p{draws.choice(['large', 'inter'] if nodes == 1 else ['large'])}")
    return words


# -- a run -------------------------------------------------------------------------------------------------------------


def record(name: str, lab: Lab, out: Path, decisions: int, seed: int) -> None:
    """Ask for so many jobs, one after the other, ending some in between, and keep what was decided."""
    cluster, slurm = site(name)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    lab.up(cluster, slurm)
    draws, running, begin = random.Random(f"{name} {seed}"), [], time.time()
    try:
        with (out / "decisions.jsonl").open("w") as rows:
            for number in range(decisions):
                ended = _end_some(lab, draws, running, number)
                words = draw_request(draws, cluster)
                done = subprocess.run(
                    ["salloc", "--no-shell", "--immediate=1", "-t60", *words],
                    env=lab.environment, cwd="/tmp", capture_output=True, text=True, check=False,
                )  # fmt: skip
                granted = GRANTED.search(done.stderr)
                job = int(granted[1]) if granted else None
                running += [job] if job else []
                refused = None if job else done.stderr.strip().splitlines()[-1:]
                held = held_by(lab.run("scontrol", "-d", "-o", "show", "job", str(job))) if job else {}
                row = {"ended": ended, "words": words, "job": job, "held": held, "refused": refused}
                rows.write(json.dumps(row) + "\n")
                rows.flush()
        _cancel(lab, running)
        time.sleep(2)
        collect(lab, out, begin)
        for conf in ("slurm.conf", "site.conf"):
            shutil.copyfile(lab.folder / "etc" / conf, out / conf)
    finally:
        lab.down()


def held_by(shown: str) -> dict[str, list[int]]:
    """Return the CPUs, MiB and GPUs that a job holds on each of its nodes.

    >>> held_by("JobId=1 Nodes=n[1-2] CPU_IDs=0-5,8 Mem=7000 GRES=gpu:a100:2(IDX:0-1) MinCPUsNode=1")
    {'n1': [7, 7000, 2], 'n2': [7, 7000, 2]}
    """
    held = {}
    for nodes, cpus, memory, gres in DETAIL.findall(shown):
        spans = [span.partition("-")[::2] for span in cpus.split(",")]
        count = sum(int(last or first) - int(first) + 1 for first, last in spans)
        gpus = sum(number for kind, _, number in gres_list(gres) if kind == "gpu")
        held |= {node: [count, int(memory), gpus] for node in expand(nodes)}
    return held


def keep(folder: Path) -> Path:
    """Pack what a later look needs, without what is of this host."""
    with TemporaryDirectory() as scratch:
        kept = Path(scratch, folder.name)
        kept.mkdir()
        for name in FILES:
            (kept / name).write_text(without_host((folder / name).read_text("utf-8", errors="replace")), "utf-8")
        return pack(kept, ARCHIVE / f"{folder.name}.tar.gz")


def _end_some(lab: Lab, draws: random.Random, running: list[int], number: int) -> list[int]:
    """End some jobs now and then, so that nodes are full, half full or idle; wait until their nodes are free."""
    if number % 6 or not running:
        return []
    keep = draws.choice([0, 1, 3, 6, 10])
    draws.shuffle(running)
    ended = running[keep:]
    del running[keep:]
    _cancel(lab, ended)
    return ended


def _cancel(lab: Lab, jobs: list[int]) -> None:
    if not jobs:
        return
    lab.run("scancel", *map(str, jobs), check=False)
    ids = ",".join(map(str, jobs))
    while lab.run("squeue", "-h", "-j", ids, "-t", "R,CG", "-o", "%i", check=False).strip():
        time.sleep(0.1)


# -- the same decisions, by our rule -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decision:
    """A job, where the daemon put it, and where our rule does; nowhere: our reader finds no nodes for it."""

    words: tuple[str, ...]
    real: tuple[str, ...]
    ours: tuple[str, ...]
    free: tuple[int, ...]  # GPUs of each node before it

    @property
    def agrees(self) -> bool:
        """Whether the nodes are the same."""
        return self.real == self.ours


def decide_again(folder: Path) -> Iterator[Decision]:
    """Make each decision of a run anew, in the state that the daemon's own decisions before it had left."""
    scenario = Scenario.of(fleetlab.read(folder, "slurm"))
    world = world_of(scenario)
    parts = partitions_of(scenario.scheduler, scenario.cluster)  # type: ignore[arg-type]
    s = tables(world, scenario.scheduler, scenario.cluster, parts)  # type: ignore[arg-type]
    names = scenario.cluster.frame["node"].to_list()
    assert scenario.trace.names is not None
    name_of = dict(scenario.trace.names.select("job", "name").collect().iter_rows())
    row_of = {int(name_of[job].rpartition("/")[2]): t for t, job in enumerate(world.frame["job"].to_list())}
    held: dict[int, dict[str, list[int]]] = {}
    for line in (folder / "decisions.jsonl").read_text().splitlines():
        row = json.loads(line)
        for job in row["ended"]:
            _hold(s.free, names, held.pop(job), -1)
        if not row["job"]:
            continue
        real = tuple(sorted(row["held"], key=names.index))
        yield Decision(tuple(row["words"]), real, _ours(s, row_of.get(row["job"]), names), tuple(s.free.gpu.tolist()))
        held[row["job"]] = row["held"]
        _hold(s.free, names, row["held"], 1)


def _ours(s: Tables, t: int | None, names: list[str]) -> tuple[str, ...]:
    if t is None:
        return ()
    p = int(s.partition_of[s.jobs[t].first_partition])
    usable_nodes(s, t, p, 0.0, s.usable)
    count = choose(s, t, s.usable, s.free, 0)
    return tuple(names[n] for n in sorted(s.chosen[:count].tolist()))


def _hold(free: Free, names: list[str], held: dict[str, list[int]], sign: int) -> None:
    for node, (cpus, memory, gpus) in held.items():
        n = names.index(node)
        free.cpu[n] -= sign * 1000 * cpus
        free.memory[n] -= sign * memory
        free.gpu[n] -= sign * gpus


def main() -> None:
    """Record decisions of a real Slurm, or print where ours differ from those of a folder."""
    parser = argparse.ArgumentParser(prog="realtest.placements", description=__doc__)
    parser.add_argument("sites", nargs="+", metavar="SITE", help=", ".join(CLUSTERS))
    parser.add_argument("--decisions", type=int, default=700)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/placements"))
    parser.add_argument("--again", action="store_true", help="compare what is in --out with our rule")
    parser.add_argument("--recorded", action="store_true", help="the same of what the repository has")
    parser.add_argument("--keep", action="store_true", help="pack what is in --out for the repository")
    parser.add_argument("--lab", type=Path, default=Path("build/slurm-lab"))
    parser.add_argument("--port", type=int, default=16_817)
    given = parser.parse_args()
    for name in given.sites:
        folder = folder_at(ARCHIVE / f"{name}.tar.gz") if given.recorded else given.out / name
        if given.keep:
            print(keep(folder))
        elif given.again or given.recorded:
            made = list(decide_again(folder))
            for one in made:
                if not one.agrees:
                    print(*one.words, "| real", *one.real, "| ours", *one.ours, "| free", one.free)
            several = [d for d in made if len(d.real) > 1]
            same, same_of_several = (sum(d.agrees for d in of) for of in (made, several))
            print(f"{name}: {same} of {len(made)}, of several nodes {same_of_several} of {len(several)}")
        else:
            if reason := missing():
                sys.exit(f"no real Slurm here: {reason}")
            lab = Lab(given.lab.resolve(), given.port)
            try:
                record(name, lab, folder, given.decisions, given.seed)
            finally:
                lab.down(everything=True)


if __name__ == "__main__":
    main()
