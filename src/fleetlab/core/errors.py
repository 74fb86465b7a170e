"""The errors of fleetlab.

FleetlabError
├── TraceError       an input file is not what its reader expects
├── WorkloadError    jobs that cannot be: negative times, no GPUs, too big for the cluster
├── PolicyError      a policy that does not compile, or is not a pure ranking
└── DeviceError      the GPU bench cannot have the hardware it asks for

Each carries a `hint`: what to do next. The command line prints both and leaves with status 2; in Python the hint is a
note of the exception, below the message of a traceback.
"""


class FleetlabError(Exception):
    """Something the user can mend; the message says where, what and which.

    Parameters
    ----------
    message
        What is wrong, with the value last.
    hint
        What to do next.

    Examples
    --------
    >>> import fleetlab
    >>> try:
    ...     fleetlab.simulate("builtin:200", order="sjff")
    ... except fleetlab.FleetlabError as error:
    ...     print(error)
    no order by that name: `sjff`; did you mean sjf?
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")  # tracebacks and notebooks show notes; `str` is the message alone


class TraceError(FleetlabError):
    """A file that is read is not what its reader expects.

    Examples
    --------
    >>> import fleetlab
    >>> fleetlab.Trace.load("nowhere")
    Traceback (most recent call last):
    fleetlab.core.errors.TraceError: no saved trace in: nowhere
    hint: `fleetlab read FORMAT PATH --out DIR` makes one; `sample` comes with fleetlab
    """


class WorkloadError(FleetlabError):
    """Jobs, nodes or settings that cannot be.

    Examples
    --------
    >>> import fleetlab
    >>> fleetlab.Cluster.uniform(0, 8)
    Traceback (most recent call last):
    fleetlab.core.errors.WorkloadError: a cluster needs at least one node, not: 0
    """


class PolicyError(FleetlabError):
    """A policy that is not known, does not compile, or is not a pure ranking.

    Examples
    --------
    >>> import fleetlab
    >>> fleetlab.Policy(order="srpt", backfill="easy")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fleetlab.core.errors.PolicyError: order srpt, which preempts, cannot be combined with backfill easy: ...
    """


class DeviceError(FleetlabError):
    """A GPU, or what shares it, is not as the bench needs it.

    Examples
    --------
    >>> import fleetlab
    >>> issubclass(fleetlab.DeviceError, fleetlab.FleetlabError)
    True
    """
