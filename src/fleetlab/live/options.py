"""Options of `fleetlab watch`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fleetlab.core.errors import FleetlabError

LISTEN = "127.0.0.1:9836"
OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """What to look at, how often, and where it goes.

    Parameters
    ----------
    every
        Seconds between polls.
    out
        Folder that keeps every job over restarts, and a trace of them; without it nothing is kept.
    once
        Look once, print what is there, and end.
    listen
        Address and port for Prometheus, or off. The default is reachable from this machine only.
    history
        Days of accounting that are read first, where the folder is new (Slurm).
    keep
        Days after which jobs that have ended are forgotten (default: never).
    predict
        Seconds between predictions of waits; 0: none. Needs --out.
    request
        Predict also when a job like this would start: "8 A100, 4 h"; may be given several times.
    kubeconfig
        Kubernetes: the file that says how to reach the cluster (default: what kubectl takes; inside a pod, its own
        service account).
    context
        Kubernetes: which of its contexts.
    seconds
        End after so many seconds (default: when stopped by Ctrl-C or SIGTERM).
    """

    every: float = 60.0
    out: Path | None = None
    once: bool = False
    listen: str = LISTEN
    history: float = 7.0
    keep: float | None = None
    predict: float = 600.0
    request: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    context: str | None = None
    seconds: float | None = None

    def check(self) -> None:
        """Refuse what cannot be, before the first poll."""
        limits = {"every": (self.every, 0.05, 86_400), "history": (self.history, 0, 3660)}
        limits |= {"predict": (self.predict, 0, 86_400), "seconds": (self.seconds, 0.01, 1e9)}  # type: ignore[dict-item]
        limits["keep"] = (self.keep, 0.001, 36_600)  # type: ignore[assignment]
        for name, (value, least, most) in limits.items():
            if value is not None and not least <= value <= most:
                msg = f"--{name} is from {least:g} to {most:g}, not: {value:g}"
                raise FleetlabError(msg, hint="`fleetlab watch --help` shows what it means")
        self.address()

    def address(self) -> tuple[str, int] | None:
        """Return where metrics are served; None: nowhere.

        >>> WatchOptions().address(), WatchOptions(listen="[::1]:80").address(), WatchOptions(listen="off").address()
        (('127.0.0.1', 9836), ('::1', 80), None)
        """
        if self.listen == OFF:
            return None
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65_535:
            msg = f"not an address and a port: `{self.listen}`"
            raise FleetlabError(msg, hint=f"--listen {LISTEN}, or --listen off")
        return host.strip("[]"), int(port)
