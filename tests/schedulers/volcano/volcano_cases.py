"""Clusters as Volcano's unit tests write them: amounts of CPU and memory, pods on nodes, groups, queues."""

from fleetlab.schedulers.gangs.board import Board
from fleetlab.schedulers.gangs.pod_groups import PodGroup
from fleetlab.schedulers.gangs.tasks import Job, Status
from fleetlab.schedulers.kubernetes.config import Requirement, SchedulingNode, SchedulingPod, Selector
from fleetlab.schedulers.volcano.actions import cycle
from fleetlab.schedulers.volcano.config import POINTS, Plugin, Volcano, VolcanoQueue
from fleetlab.schedulers.volcano.session import Session

GI, G = 2**30, 10**9


def amounts(cpu=0, memory=0, **more):
    """CPU in cores, memory in bytes; other names as they are, with _ for what a name cannot hold."""
    given = {"cpu": int(cpu * 1000), "memory": int(memory)} | {name.replace("__", "/"): n for name, n in more.items()}
    return {name: n for name, n in given.items() if n or name in more}


def plugin(name, *points, hierarchy=False, **arguments):
    """A plugin that takes part at the points named alone, as unit tests enable them one by one."""
    off = frozenset(POINTS) - frozenset(points)
    return Plugin(name, {key.replace("__", "."): v for key, v in arguments.items()}, off, hierarchy)


class Case:
    """A cluster at one moment; pods are `name: (group, amounts, node or None, options)`."""

    def __init__(self, nodes, queues, groups, pods, labels=()):
        self.nodes = [
            SchedulingNode(name, {"pods": 10} | has, labels=dict(labels).get(name, {})) for name, has in nodes.items()
        ]
        self.queues = queues
        self.jobs = [self._job(name, given, pods) for name, given in groups.items()]

    def _job(self, name, given, pods):
        mine = {pod: rest for pod, (group, *rest) in pods.items() if group == name}
        options = {pod: rest[2] if len(rest) > 2 else {} for pod, rest in mine.items()}
        made = tuple(
            SchedulingPod(
                pod,
                namespace="ns1",
                requests=rest[0],
                priority=options[pod].get("priority", 0),
                preempts=options[pod].get("preempts", True),
                selector=Selector(tuple(Requirement(k, "In", (v,)) for k, v in options[pod].get("on", {}).items())),
            )
            for pod, rest in mine.items()
        )
        kept = frozenset(pod for pod in mine if options[pod].get("kept"))
        queue, least, *more = given
        words = more[0] if more else {}
        admitted = words.pop("admitted", True)
        job = Job(PodGroup(name, queue, made, least, kept=kept, **words), admitted=admitted)
        numbers = {node.name: k for k, node in enumerate(self.nodes)}
        for task, rest in zip(job.tasks, mine.values(), strict=True):
            if len(rest) > 1 and rest[1]:
                task.status, task.node = Status.RUNNING, numbers[rest[1]]
        return job

    def session(self, actions, tiers):
        """Open a cycle."""
        site = Volcano(tuple(self.queues), tuple(actions), tuple(tuple(tier) for tier in tiers))
        return Session(site, Board(self.nodes, self.jobs))

    def run(self, actions, tiers):
        """What a cycle binds, evicts and promises, as {pod: node}, {pod}, {pod: node}."""
        session = self.session(actions, tiers)
        cycle(session)
        found = {Status.BOUND: {}, Status.RELEASING: {}, Status.PIPELINED: {}}
        for task, status in session.board.committed:
            found[status][task.pod.name] = self.nodes[task.node].name
        return found[Status.BOUND], set(found[Status.RELEASING]), found[Status.PIPELINED]


def queue(name, deserved=None, capability=None, **words):
    return VolcanoQueue(name, deserved=deserved or {}, capability=capability or {}, **words)
