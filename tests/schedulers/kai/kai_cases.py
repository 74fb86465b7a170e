"""Clusters as KAI's unit tests write them: GPUs on nodes, queues with GPUs they deserve, groups with pods."""

from fleetlab.schedulers.gangs.board import Board
from fleetlab.schedulers.gangs.pod_groups import PodGroup
from fleetlab.schedulers.gangs.tasks import Job, Status
from fleetlab.schedulers.kai.actions import cycle
from fleetlab.schedulers.kai.config import GPU, Kai, KaiQueue, Quota
from fleetlab.schedulers.kai.session import Session
from fleetlab.schedulers.kai.shares import QueueState, Share
from fleetlab.schedulers.kubernetes.config import SchedulingNode, SchedulingPod

TRAIN, INTERACTIVE, BUILD = 50, 75, 100


def share(**words):
    return Share(**words)


def state(name="q", parent="", priority=0, created=0.0, **shares):
    """A queue of which shares are given: gpu=Share(...), cpu=…, memory=…; the others are empty."""
    found = QueueState(KaiQueue(name, parent, priority, created=created))
    for short, one in shares.items():
        found.shares[GPU if short == "gpu" else short] = one
    return found


def queue(name, deserved=0.0, weight=0.0, parent="", **words):
    """A queue of GPUs; KAI's tests leave CPU and memory without bound."""
    return KaiQueue(name, parent, quotas={GPU: Quota(deserved, weight=weight)}, **words)


class Case:
    """Groups are `name: (queue, GPUs per pod, nodes of running pods or None for those that wait, options)`."""

    def __init__(self, nodes, queues, groups):
        self.nodes = [SchedulingNode(name, {"pods": 110, GPU: gpus}) for name, gpus in nodes.items()]
        self.queues = queues
        self.jobs = [self._job(k, name, *given) for k, (name, given) in enumerate(groups.items())]

    def _job(self, k, name, where, gpus, places, options=None):
        words = {"priority": TRAIN} | (options or {})
        least = words.pop("least", len(places))
        leaving = words.pop("leaving", False)
        pods = tuple(SchedulingPod(f"{name}-{n}", requests={GPU: gpus}) for n in range(len(places)))
        preemptible = words["priority"] < BUILD
        job = Job(PodGroup(name, where, pods, least, created=float(k), preemptible=preemptible, **words))
        numbers = {node.name: n for n, node in enumerate(self.nodes)}
        for task, place in zip(job.tasks, places, strict=True):
            if place:
                task.status, task.node = Status.RELEASING if leaving else Status.RUNNING, numbers[place]
        return job

    def run(self, *actions, **words):
        """What became of each group: the statuses of its pods, and the nodes they are on or are promised."""
        site = Kai(tuple(self.queues), actions, consolidation_preemptees=-1, **words)  # as KAI's tests have it
        session = Session(site, Board(self.nodes, self.jobs))
        cycle(session)
        return {job.name: self._outcome(job) for job in self.jobs}

    def _outcome(self, job):
        last = {task.pod.name: task for task in job.tasks}  # what stands for a pod comes after it
        return sorted((t.status.value, self.nodes[t.node].name if t.node >= 0 else "") for t in last.values())
