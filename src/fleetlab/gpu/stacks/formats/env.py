"""Environment variables of a tenant, which CUDA reads when it opens a GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleetlab.gpu.sharing.modes import NO_MPS, Share
from fleetlab.gpu.stacks.formats.compose import LOG, PIPE, share_of
from fleetlab.gpu.stacks.formats.format import Document, cannot, unread
from fleetlab.gpu.stacks.spec import Spec

LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")
EACH = re.compile(r"#\s*each of (\d{1,3}) tenants\s*")
ONE = re.compile(r"#\s*tenant (\d{1,3}) of (\d{1,3})\s*")
HOME = "/tmp/fleetlab-mps"
BLOCK = "BLOCK"  # key of a block of such a file among documents


def hold(spec: Spec) -> Spec:
    """Keeps all MPS limits; in other modes the number of tenants."""
    if spec.mode == "mig":
        what = "a MIG device is selected by its UUID, which exists only after the layout was created"
        cannot("env", what, "`fleetlab share mig apply` prints it: CUDA_VISIBLE_DEVICES=UUID")
    tenants = spec.tenants if spec.mode == "mps" else (Share(),) * len(spec.tenants)
    return Spec(spec.mode, tenants)


def write(spec: Spec) -> str:
    """Blocks of KEY=VALUE: one per tenant, or one for all if they are equal."""
    blocks = [spec.tenants[0]] if spec.equal else list(spec.tenants)
    lines: list[str] = []
    for number, share in enumerate(blocks, start=1):
        count = len(spec.tenants)
        head = [f"# each of {count} tenants" if spec.equal else f"# tenant {number} of {count}"] * (count > 1)
        lines += [*head, *(f"{key}={value}" for key, value in variables(spec, share).items()), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def variables(spec: Spec, share: Share) -> dict[str, str]:
    """Variables of one tenant."""
    if spec.mode != "mps":
        return dict(NO_MPS)  # so that the tenant does not attach to an MPS daemon that happens to run
    return {PIPE: f"{HOME}/pipe", LOG: f"{HOME}/log"} | share.environment()


def blocks(text: str) -> list[Document] | None:
    """Parse the blocks of such a file, with the number of tenants of each; None if it is no such file."""
    groups: list[Document] = []
    current: Document = {BLOCK: {}, "count": 1}
    for line in text.splitlines():
        if each := (EACH.fullmatch(line.strip()) or ONE.fullmatch(line.strip())):
            current = {BLOCK: {}, "count": int(each[1]) if EACH.fullmatch(line.strip()) else 1}
            groups.append(current)
        elif line.strip() and not line.strip().startswith("#"):
            match = LINE.fullmatch(line.strip())
            if match is None:
                return None
            if not groups:
                groups.append(current)
            current[BLOCK][match[1]] = match[2].strip("'\"")
    return groups or None


def read(documents: Sequence[Document]) -> Spec:
    """Read the limits of each block."""
    groups = [(dict(one[BLOCK]), int(one["count"])) for one in documents if BLOCK in one]
    if not any(key.startswith("CUDA_") for one, _ in groups for key in one):
        unread("an environment without CUDA's variables", "CUDA_MPS_PIPE_DIRECTORY and others")
    if all(one.get(PIPE) == NO_MPS[PIPE] for one, _ in groups):
        count = sum(n for _, n in groups)
        return Spec("time-slicing" if count > 1 else "exclusive", (Share(),) * count)
    return Spec("mps", tuple(share_of(one) for one, n in groups for _ in range(n)))


def mine(documents: Sequence[Document]) -> bool:
    """Whether there are blocks of variables."""
    return any(BLOCK in one for one in documents)
