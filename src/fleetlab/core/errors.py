"""What can go wrong in this house.

FleetlabError
├── TraceError       a file at the door is not what its reader expects
├── WorkloadError    jobs that cannot be: negative times, no GPUs, too big for the cluster
├── PolicyError      a policy that does not compile, or is not a pure ranking
└── DeviceError      the GPU bench cannot have the hardware it asks for

Each carries a `hint`: what to do next. The command line prints both and leaves with status 2.
"""


class FleetlabError(Exception):
    """Something the user can mend; the message says where, what and which."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class TraceError(FleetlabError):
    """A file at the door is not what its reader expects."""


class WorkloadError(FleetlabError):
    """Jobs or nodes that cannot be."""


class PolicyError(FleetlabError):
    """A policy that does not compile, or is not a pure ranking."""


class DeviceError(FleetlabError):
    """The GPU bench cannot have the hardware it asks for."""
