"""How pods without constraints of their own are spread, as the arguments of PodTopologySpread say."""

from __future__ import annotations

from fleetlab.schedulers.kubernetes.config import FIRST, Selector, SpreadConstraint
from fleetlab.schedulers.kubernetes.reader.objects import MalformedObject, Object, elements, fields, whole, words
from fleetlab.schedulers.kubernetes.reader.scheduling import domains_of

ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
SYSTEM, LIST = "System", "List"
# kube-scheduler reads both strictly: a misspelt field keeps kube-scheduler from starting.
ARGUMENTS = ("apiVersion", "kind", "defaultConstraints", "defaultingType")
CONSTRAINT = (  # of which matchLabelKeys changes nothing: the controller's selector takes its place
    "maxSkew", "topologyKey", "whenUnsatisfiable", "labelSelector", "minDomains", "nodeAffinityPolicy",
    "nodeTaintsPolicy", "matchLabelKeys",
)  # fmt: skip


def default_spread(arguments: Object, release: str) -> tuple[SpreadConstraint, ...] | None:
    """Read the constraints of a list; None: the system's own. What kube-scheduler would refuse is refused."""
    where = "defaultConstraints"
    fields(arguments, "args", ARGUMENTS)
    listed = [fields(one, where, CONSTRAINT) for one in elements(arguments.get(where), where)]
    # A list says by itself that it is one in v1beta1 alone.
    kind = words(arguments.get("defaultingType"), "defaultingType") or (LIST if listed and release == FIRST else SYSTEM)
    if kind not in (SYSTEM, LIST):
        msg = f"`defaultingType` is neither {SYSTEM} nor {LIST}: {kind[:80]}"
        raise MalformedObject(msg)
    if kind == SYSTEM:
        if listed:
            msg = (
                f"`{where}` must be empty where `defaultingType` is {SYSTEM}, as it is by default: a list needs {LIST}"
            )
            raise MalformedObject(msg)
        return None
    found = tuple(_constraint(one, where) for one in listed)
    if len({(one.key, one.firm) for one in found}) < len(found):
        msg = f"`{where}` has one `topologyKey` twice with the same `whenUnsatisfiable`"
        raise MalformedObject(msg)
    return found


def _constraint(one: Object, where: str) -> SpreadConstraint:
    skew, key = whole(one.get("maxSkew"), f"{where}.maxSkew"), words(one.get("topologyKey"), f"{where}.topologyKey")
    action = words(one.get("whenUnsatisfiable"), f"{where}.whenUnsatisfiable")
    wrong = {
        "`maxSkew` is below 1": skew < 1,
        "no `topologyKey`": not key,
        f"`whenUnsatisfiable` is none of {', '.join(ACTIONS)}": action not in ACTIONS,
        "a `labelSelector` is not allowed: it follows from the controller of each pod": one.get("labelSelector"),
    }
    if said := next((what for what, holds in wrong.items() if holds), ""):
        msg = f"`{where}`: {said}"
        raise MalformedObject(msg)
    return SpreadConstraint(skew, key, action == ACTIONS[0], Selector(), *domains_of(one, where))
