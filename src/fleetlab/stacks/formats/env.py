"""The environment of a tenant: what CUDA reads before it opens a card."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleetlab.sharing.modes import APART, Share
from fleetlab.stacks.formats.compose import LOG, PIPE, share_of
from fleetlab.stacks.formats.format import Document, Stack, cannot, unread
from fleetlab.stacks.spec import Spec

LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")
EACH = re.compile(r"#\s*each of (\d{1,3}) tenants\s*")
ONE = re.compile(r"#\s*tenant (\d{1,3}) of (\d{1,3})\s*")
HOME = "/tmp/fleetlab-mps"
BLOCK = "BLOCK"  # how a block of such a file is passed on among documents


def hold(spec: Spec) -> Spec:
    """All that MPS has; of other modes the number of tenants."""
    if spec.mode == "mig":
        what = "an instance is given by its UUID, and that is there only once the card is cut"
        cannot("env", what, "`fleetlab share mig apply` prints it: CUDA_VISIBLE_DEVICES=UUID")
    tenants = spec.tenants if spec.mode == "mps" else (Share(),) * len(spec.tenants)
    return Spec(spec.mode, tenants)


def write(spec: Spec) -> str:
    """Blocks of KEY=VALUE: one for each tenant, or one for all where they are alike."""
    blocks = [spec.tenants[0]] if spec.equal else list(spec.tenants)
    lines: list[str] = []
    for number, share in enumerate(blocks, start=1):
        count = len(spec.tenants)
        head = [f"# each of {count} tenants" if spec.equal else f"# tenant {number} of {count}"] * (count > 1)
        lines += [*head, *(f"{key}={value}" for key, value in variables(spec, share).items()), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def variables(spec: Spec, share: Share) -> dict[str, str]:
    """Of one tenant."""
    if spec.mode != "mps":
        return dict(APART)  # so that nobody comes under an MPS that happens to run
    return {PIPE: f"{HOME}/pipe", LOG: f"{HOME}/log"} | share.environment()


def blocks(text: str) -> list[Document] | None:
    """The blocks of such a file, with the number of tenants each stands for; None where it is no such file."""
    found: list[Document] = []
    current: Document = {BLOCK: {}, "count": 1}
    for line in text.splitlines():
        if each := (EACH.fullmatch(line.strip()) or ONE.fullmatch(line.strip())):
            current = {BLOCK: {}, "count": int(each[1]) if EACH.fullmatch(line.strip()) else 1}
            found.append(current)
        elif line.strip() and not line.strip().startswith("#"):
            said = LINE.fullmatch(line.strip())
            if said is None:
                return None
            if not found:
                found.append(current)
            current[BLOCK][said[1]] = said[2].strip("'\"")
    return found or None


def read(documents: Sequence[Document]) -> Spec:
    """The limits of each block."""
    said = [(dict(one[BLOCK]), int(one["count"])) for one in documents if BLOCK in one]
    if not any(key.startswith("CUDA_") for one, _ in said for key in one):
        unread("an environment without CUDA's variables", "CUDA_MPS_PIPE_DIRECTORY and the like")
    if all(one.get(PIPE) == APART[PIPE] for one, _ in said):
        count = sum(n for _, n in said)
        return Spec("time-slicing" if count > 1 else "exclusive", (Share(),) * count)
    return Spec("mps", tuple(share_of(one) for one, n in said for _ in range(n)))


STACK = Stack(
    "env",
    hold=hold,
    write=write,
    mine=lambda documents: any(BLOCK in one for one in documents),
    read=read,
    why={
        "memory": "only MPS has a limit that an environment can set",
        "percent": "only MPS has a limit that an environment can set",
        "interval": "the length of a turn is a setting of the card, not of a program",
        "card": "an environment is of any card",
        "name": "an environment has no name",
        "namespace": "an environment has no name",
        "image": "it is of a program, whatever its image",
        "queue": "it has no queues",
        "node": "it is of one machine",
    },
)
