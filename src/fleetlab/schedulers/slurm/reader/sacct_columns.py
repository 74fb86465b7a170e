"""How columns of sacct look, so that a job named `a|b`, or in two lines, is told from the columns around it.

What a user writes is free text: the name of a job, the line that submitted it, comments, a constraint such as `a|b`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleetlab.traces.input.delimited import FreeText

_TIME = r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*|Unknown|None|N/A|\d{0,12})"
_NUMBER = r"-?\d*(?:\.\d+)?[KMGTPcn]?"
_LENGTH = r"(?:[\d:.-]*|UNLIMITED|Partition_Limit|INVALID|NONE)"
_TRES = r"(?:[\w/:.-]+=[\w.:-]*,?)*"
_NAME = r"[^\s|]*"
_FORMS = {
    r"\d+(?:_\d+|_\[[^\]|]*\]?|\+\d+)?(?:\.\S+)?": ("JobID", "JobIDRaw"),
    _TIME: ("Submit", "Eligible", "Start", "End"),
    r"[A-Z_]+\+?(?: by \S+)?": ("State",),
    _TRES: ("AllocTRES", "ReqTRES", "TRESUsageInAve", "TRESUsageInMax", "TRESUsageInTot"),
    _LENGTH: ("Timelimit", "TimelimitRaw", "Suspended", "Elapsed", "Planned", "Reserved"),
    _NUMBER: (
        *("ElapsedRaw", "Priority", "AllocNodes", "AllocCPUS", "ReqCPUS", "NCPUS", "NNodes", "ReqNodes", "ReqMem"),
        *("Restarts", "PlannedCPURAW", "CPUTimeRAW", "QOSRAW", "UID", "GID", "AssocID"),
    ),
    r"(?:\d+:\d+)?": ("ExitCode", "DerivedExitCode"),
    r"[\w,. ()-]*": ("Reason", "Flags"),
    _NAME: ("User", "Account", "Partition", "QOS", "Cluster", "Reservation", "Group", "WCKey"),
    r"(?:None assigned|[^\s|]*)": ("NodeList",),
    r"\S*": ("Constraints",),
    r"(?s:(?:\S*/)?(?:sbatch|salloc|srun)(?:\s.*)?|)": ("SubmitLine",),
}
FREE = ("JobName", "SubmitLine", "Comment", "AdminComment", "SystemComment", "WorkDir", "Constraints", "Licenses")
BEGINS = re.compile(r"\d+(?:_\d+|_\[[^\]|]*\]?|\+\d+)?(?:\.[^\s|]+)?\|")


def likeliest(ways: Sequence[dict[str, str]]) -> int:
    """Which of several ways to tell a line of submission from the name after it: where the line has that name."""
    scores = [_score(way.get("SubmitLine", ""), way.get("JobName", "")) for way in ways]
    return max(range(len(ways)), key=lambda k: scores[k])


def _score(line: str, name: str) -> tuple[int, int]:
    words = {f"--job-name={name}", f"--job-name {name}", f"-J {name}", f"-J{name}"}
    if name and any(word in line for word in words):
        return 2, len(name)
    script = name and re.search(rf"(?:^|[\s/]){re.escape(name)}(?:\s|$)", line)
    return (1 if name == "wrap" or script else 0), -len(name)


FREE_TEXT = FreeText(
    columns=frozenset(FREE),
    begins=BEGINS,
    forms={column: re.compile(form) for form, columns in _FORMS.items() for column in columns},
    choose=likeliest,
)
