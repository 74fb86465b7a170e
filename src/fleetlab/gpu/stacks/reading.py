"""A file of any stack, recognized by its content: as a spec, and the traps in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path

import polars as pl

from fleetlab.core import Estimate, Provenance, Result
from fleetlab.gpu.devices.console import BenchError
from fleetlab.gpu.sharing.modes import NO_MPS
from fleetlab.gpu.stacks.formats import (
    BY_NAME,
    compose,
    device_plugin,
    dra,
    env,
    gpu_operator,
    hami,
    kai,
    kueue,
    mig_parted,
    volcano,
)
from fleetlab.gpu.stacks.formats.env import blocks
from fleetlab.gpu.stacks.formats.format import (
    SEVERITIES,
    Document,
    Finding,
    Node,
    PodTemplate,
    dig,
    exact,
    limit_mib,
    listed,
    pod_templates,
    roots,
    whole,
)
from fleetlab.gpu.stacks.spec import GpuModel, Spec, gpu_model, parse, to_toml
from fleetlab.gpu.stacks.yaml import LARGEST, documents

KNOWN = {
    compose.PIPE,
    compose.LOG,
    compose.PERCENT,
    compose.MEMORY,
    compose.PRIORITY,
    "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
    "CUDA_MPS_SM_PARTITION",
}
LIMITS = (compose.PERCENT, compose.MEMORY, compose.PRIORITY)


def check_mps(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """Check Compose files and files of variables."""
    for one in roots(documents):
        if env.BLOCK in one:
            variables = {str(k): str(v) for k, v in one.at(env.BLOCK).as_map.items()}
            yield from _variables(Node(variables, one.where), gpu)
        elif isinstance(one.at("services").value, dict):
            yield from _compose(Node(one.as_map).at("services"), gpu)


def _variables(node: Node, gpu: GpuModel | None) -> Iterator[Finding]:
    percent, priority, memory, pipe = map(node.at, (compose.PERCENT, compose.PRIORITY, compose.MEMORY, compose.PIPE))
    if percent.value is not None and not 1 <= (whole(percent.value) or 0) <= 100:
        yield percent.trap("EN01")
    if priority.value not in (None, "0", "1"):
        yield priority.trap("EN04")
    if memory.value is not None:
        parts = [limit_mib(part) for part in memory.value.split(",")]  # type: ignore[attr-defined]
        if None in parts:
            yield memory.trap("EN02")
        elif gpu is not None and any((mib or 0) > gpu.memory_mib for mib in parts):
            yield memory.trap("EN02.large", gpu=gpu.name, mib=gpu.memory_mib)
    limited = [key for key in LIMITS if key in node]
    if limited and pipe.value is None:
        yield node.at(limited[0]).trap("EN03")
    if limited and pipe.value == NO_MPS[compose.PIPE]:
        yield pipe.trap("EN06")
    if "CUDA_MPS_SM_PARTITION" in node:
        yield node.at("CUDA_MPS_SM_PARTITION").trap("EN05")
    for key in sorted(key for key in node.as_map if key.startswith("CUDA_MPS_") and key not in KNOWN):
        yield node.at(key).trap("EN07")


# --- Compose ---------------------------------------------------------------------------------------------------------


def _compose(services: Node, gpu: GpuModel | None) -> Iterator[Finding]:
    under = [one for one in services.entries if compose.client(one.value) or compose.daemon(one.value)]
    for service in services.entries:
        variables = compose.environment(service.value)
        if not compose.daemon(service.value):
            yield from _variables(Node(variables, service.at("environment").where), gpu)
        for device in service.at("deploy", "resources", "reservations", "devices").items:
            if not device.at("capabilities").as_list:
                yield device.trap("CO04")
            if device.at("count").value is not None and device.at("device_ids").value is not None:
                yield device.trap("CO05")
        if service.key in {one.key for one in under}:
            yield from _client(service, variables.get(compose.PIPE))
    if under:
        yield from _together(services, [one.value for one in under])


def _client(service: Node, pipe: str | None) -> Iterator[Finding]:
    if service.at("ipc").value != "host":
        yield service.trap("CO01")
    targets = [_target(v) for v in service.at("volumes").as_list]
    if pipe is not None and not any(t and (pipe == t or pipe.startswith(t.rstrip("/") + "/")) for t in targets):
        yield service.at("volumes").trap("CO02", pipe=pipe)
    # It may have a GPU by any means.
    if (
        not compose.devices(service.value)
        and service.at("gpus").value is None
        and service.at("runtime").value != "nvidia"
    ):
        yield service.trap("CO06")


def _target(volume: object) -> str:
    if isinstance(volume, str):
        parts = volume.split(":")
        return parts[1] if len(parts) > 1 else parts[0]
    return str(dig(volume, "target") or "")


def _together(services: Node, under: Sequence[object]) -> Iterator[Finding]:
    users = {str(dig(s, "user")).partition(":")[0] if dig(s, "user") is not None else "" for s in under}
    if len(users) > 1:
        yield services.trap("CO03", users=", ".join(sorted(user or "not set" for user in users)))
    elif users == {""}:
        yield services.trap("CO03.missing")
    if not any(compose.daemon(s) for s in under):
        yield services.trap("CO07")


# --- rules for pods (Kubernetes itself, HAMi, Volcano) and for quotas ------------------------------------------------


OURS = ("nvidia.com/", "volcano.sh/")
MODES = ("hami-core", "mig")


def check_pods(documents: Sequence[Document], gpu: GpuModel | None) -> Iterator[Finding]:
    """Check every pod and every quota."""
    for document in roots(documents):
        for quota in document.at("spec", "hard").entries if document.at("kind").value == "ResourceQuota" else ():
            if (name := quota.key.removeprefix("limits.")).startswith(OURS):
                yield quota.trap("RQ01", name=name)
    for one in pod_templates(documents):
        for kind in ("annotations", "labels"):
            for word in one.node.at("metadata", kind).entries:
                if not isinstance(word.value, str):
                    yield word.trap("K802")
        for requests, limits in zip(_containers(one, "requests"), _containers(one, "limits"), strict=True):
            for request in requests.entries:
                if request.key.startswith(OURS) and limits.at(request.key).value != request.value:
                    yield request.trap("K801")
        for limit in (limit for limits in _containers(one, "limits") for limit in limits.entries):
            if limit.key.startswith(OURS) and limit.value is not None and not _is_whole(exact(limit.value)):
                yield limit.trap("K803")
        if volcano.takes(one):
            yield from _volcano(one)
        elif hami.takes(one):
            yield from _hami(one, gpu)


def _containers(one: PodTemplate, of: str) -> Iterator[Node]:
    """The resources that each container requests, or limits."""
    for container in one.node.at("spec", "containers").items:
        yield container.at("resources", of)


def _is_whole(pieces: Fraction | None) -> bool:
    """Whether it is an amount of an extended resource."""
    return pieces is not None and pieces >= 0 and pieces.denominator == 1


def _amounts(one: PodTemplate, prefix: str, memory: str, cores: str) -> Iterator[Finding]:
    for limit in (limit for limits in _containers(one, "limits") for limit in limits.entries):
        number = whole(limit.value)
        if limit.key == memory and number is None:
            yield limit.trap(f"{prefix}05")
        if limit.key == cores and (number is None or not 0 <= number <= 100):
            yield limit.trap(f"{prefix}04")
        elif limit.key == cores and number != 100:
            yield limit.trap(f"{prefix}01")


def _hami(one: PodTemplate, gpu: GpuModel | None) -> Iterator[Finding]:
    yield from _amounts(one, "HM", hami.MEMORY, hami.CORES)
    limits, containers = one.limits, one.node.at("spec", "containers")
    if hami.MEMORY in limits and hami.MEMORY_PART in limits:
        yield containers.trap("HM02")
    alone = whole(limits.get(hami.CORES)) == 100
    if not {hami.MEMORY, hami.MEMORY_PART} & set(limits) and not alone:
        yield containers.trap("HM06")
    if alone and whole(limits.get(hami.MEMORY_PART)) != 100:
        yield containers.trap("HM03")
    if any(key.startswith("nvidia.com/") and key.endswith(".shared") for key in limits):
        yield containers.trap("HM09")
    if one.environment.get(hami.POLICY) == "disable":
        yield containers.trap("HM08")
    if one.environment.get("CUDA_DISABLE_CONTROL", "").lower() in ("true", "1"):
        yield containers.trap("HM11")
    memory = whole(limits.get(hami.MEMORY))
    if gpu is not None and memory is not None and memory > gpu.memory_mib:
        yield containers.trap("HM10", memory=memory, gpu=gpu.name, mib=gpu.memory_mib)
    annotations = one.node.at("metadata", "annotations")
    for key in ("hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy"):
        if annotations.at(key).value not in (None, "binpack", "spread"):
            yield annotations.at(key).trap("HM07.policy")
    if annotations.at(hami.MODE).value not in (None, *MODES):
        yield annotations.at(hami.MODE).trap("HM07.mode")


def _volcano(one: PodTemplate) -> Iterator[Finding]:
    yield from _amounts(one, "VO", volcano.MEMORY, volcano.CORES)
    limits, containers = one.limits, one.node.at("spec", "containers")
    scheduler = one.node.at("spec", "schedulerName")
    if scheduler.value != volcano.SCHEDULER:
        yield scheduler.trap("VO02", scheduler=scheduler.value or "not set")
    if volcano.COUNT not in limits:
        yield containers.trap("VO03")
    if volcano.MEMORY not in limits and whole(limits.get(volcano.CORES)) != 100:
        yield containers.trap("VO06")
    if mixed := sorted(key for key in limits if key.startswith("nvidia.com/")):
        yield containers.trap("VO07", names=", ".join(mixed))
    for container in one.containers:
        if listed(dig(container, "resources", "claims")):
            yield containers.trap("VO08")


# --- rules for a spec itself -----------------------------------------------------------------------------------------


def check_spec(spec: Spec, gpu: GpuModel | None) -> Iterator[Finding]:
    """Check the sums of its limits."""
    model, file = gpu or spec.model, Node(None)
    memories = [share.memory_mib for share in spec.tenants if share.memory_mib]
    if model is not None and sum(memories) > model.memory_mib:
        yield file.at("memory_mib").trap("SP01", total=sum(memories), gpu=model.name, mib=model.memory_mib)
    percents = [share.percent for share in spec.tenants if share.percent]
    if spec.mode == "mps" and sum(percents) > 100:
        yield file.at("percent").trap("SP02", total=sum(percents))
    if spec.mode == "mps" and len(percents) < len(spec.tenants) > 1:
        yield file.at("percent").trap("SP03")
    if spec.mode == "time-slicing" and (memories or percents):
        yield file.at("mode").trap("SP04")


Rule = Callable[[Sequence[Document], GpuModel | None], Iterator[Finding]]
ALL: tuple[Rule, ...] = (
    device_plugin.check,
    gpu_operator.check,
    mig_parted.check,
    dra.check,
    check_pods,
    kai.check,
    kueue.check,
    check_mps,
)

SPEC = "spec"  # our own format


@dataclass(frozen=True, slots=True, repr=False)
class ReadResult(Result):
    """What a file of a stack says, as a spec."""

    stack: str
    spec: Spec
    provenance: Provenance

    @property
    def text(self) -> str:
        """The spec as a file of its own."""
        return to_toml(self.spec)

    def summary(self) -> list[Estimate]:
        """How many share."""
        count = len(self.spec.tenants) or len(self.spec.layout) * self.spec.turns
        return [Estimate.exact("tenants of a GPU", count)]

    def tables(self) -> dict[str, pl.DataFrame]:
        """The spec, and which format it was in."""
        return {"spec": pl.DataFrame({"format": [self.stack], "mode": [self.spec.mode], "toml": [self.text]})}


def read(path: Path) -> ReadResult:
    """The spec that a file amounts to, whichever stack it is of."""
    text = read_file(path)
    provenance = Provenance("share read", path.name)
    if path.suffix == ".toml":
        return ReadResult(SPEC, parse(text, path.name), provenance)
    docs = parse_documents(text, path.name)
    stack = recognize(docs)
    if stack is None:
        msg = f"{path.name}: not a file of a stack that we know"
        raise BenchError(msg, hint=f"there are {', '.join(sorted(BY_NAME))}, and our own .toml")
    try:
        return ReadResult(stack, BY_NAME[stack].read(docs), provenance)
    except BenchError as e:
        msg = f"{path.name}: {stack}: {e}"
        raise BenchError(msg, hint=e.hint or f"`fleetlab share lint {path.name}` says more") from None


def read_file(path: Path) -> str:
    """The text of a file that is not too large to be one."""
    try:
        with path.open("rb") as f:
            raw = f.read(LARGEST + 1)  # a device says that it has no bytes, and has no end
        if len(raw) > LARGEST:
            msg = f"{path.name}: larger than any such file: {max(len(raw), path.stat().st_size):,} bytes"
            raise BenchError(msg, hint=f"at most {LARGEST:,} are read")
        return raw.decode("utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as e:
        why = getattr(e, "strerror", None) or "not text"
        raise BenchError(f"cannot read {path}: {why}", hint="a file of a stack, or a spec in TOML") from None


def parse_documents(text: str, source: str) -> list[Document]:
    """The documents of a file: of YAML, or blocks of variables."""
    return blocks(text) or documents(text, source)


def recognize(documents: list[Document]) -> str | None:
    """Which stack's they are."""
    return next((name for name, stack in BY_NAME.items() if stack.mine(documents)), None)


# --- the traps in a file of any stack --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class LintResult(Result):
    """What was found in a file, the worst first."""

    stack: str
    problems: tuple[Finding, ...]
    provenance: Provenance

    def count(self, severity: str) -> int:
        """How many there are of one kind."""
        return sum(one.severity == severity for one in self.problems)

    def summary(self) -> list[Estimate]:
        """How many there are of each kind."""
        return [Estimate.exact(f"{severity}s", self.count(severity)) for severity in SEVERITIES]

    def tables(self) -> dict[str, pl.DataFrame]:
        """The findings."""
        schema = dict.fromkeys(("code", "severity", "where", "what", "do"), pl.String)
        return {"findings": pl.DataFrame([asdict(one) for one in self.problems], schema=schema)}


def lint(path: Path, *, gpu: str | None = None) -> LintResult:
    """Look for the traps of every stack in one file, on a GPU if one is named."""
    model = gpu_model(gpu) if gpu else None
    text = read_file(path)
    provenance = Provenance("share lint", path.name, {"gpu": model.name if model else None})
    if path.suffix == ".toml":
        return LintResult(SPEC, ordered(check_spec(parse(text, path.name), model)), provenance)
    documents = parse_documents(text, path.name)
    stack = recognize(documents) or _other(documents)
    if stack is None:
        msg = f"{path.name}: not a file that we know traps of"
        raise BenchError(msg, hint="files of the stacks, pods, quotas, the DRA driver's Helm values, our own .toml")
    return LintResult(stack, ordered(f for rule in ALL for f in rule(documents, model)), provenance)


def _other(documents: list[Document]) -> str | None:
    from fleetlab.gpu.stacks.formats.dra import is_values
    from fleetlab.gpu.stacks.formats.format import TEMPLATES

    if any(one.get("kind") in (*TEMPLATES, "ResourceQuota", "ConfigMap") for one in documents):
        return "kubernetes"
    return "dra values" if any(is_values(one) for one in documents) else None


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first, and then as they stand in the file; a note is said once, however often it holds."""
    by_severity = sorted(findings, key=lambda one: SEVERITIES.index(one.severity))
    notes = Counter((one.code, one.what) for one in by_severity if one.severity == "note")
    unique: list[Finding] = []
    for one in by_severity:
        times = notes.pop((one.code, one.what), 0) if one.severity == "note" else 1
        if times:
            unique.append(one if times == 1 else replace(one, where=f"{one.where} and {times - 1} more"))
    return tuple(unique)
