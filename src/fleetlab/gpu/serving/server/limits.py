"""Options of a server: its limits and timeouts, what it serves, and where."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from fleetlab.gpu.devices.console import BenchError, check_seed


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """Validated limits; every wait has a timeout and every buffer a maximum size.

    Parameters
    ----------
    batch
        Maximum batch size; of a language model the sequences in its cache.
    wait
        Milliseconds that the oldest input waits for others to form a batch.
    queue
        Maximum number of queued inputs; further requests get 429.
    deadline
        Seconds that an input may be queued; after that its request gets 503.
    max_body
        Maximum size of a request body in MiB; larger ones get 413.
    body_timeout
        Seconds for the headers, and again for the body, to arrive; after that 408.
    drain
        Seconds to finish queued inputs after SIGTERM.
    connections
        Maximum number of connections; requests on further ones get 503.
    """

    batch: int = 8
    wait: float = 2.0
    queue: int = 256
    deadline: float = 10.0
    max_body: float = 4.0
    body_timeout: float = 5.0
    drain: float = 10.0
    connections: int = 1024

    def __post_init__(self) -> None:
        for field in fields(ServerLimits):
            value = getattr(self, field.name)
            least = 1 if field.type == "int" else 0
            above = field.name in ("deadline", "max_body", "body_timeout")
            if not math.isfinite(value) or value < least or (above and value == 0):
                msg = f"invalid limit: --{field.name.replace('_', '-')} {value}"
                raise BenchError(msg, hint=f"above {least}" if above else f"{least} or more")

    @property
    def most_bytes(self) -> int:
        """Maximum size of a body."""
        return int(self.max_body * 2**20)


@dataclass(frozen=True)
class ServedWork:
    """The first argument of a server.

    Parameters
    ----------
    work
        resnet-infer, bert-infer, llm-serve (a language model), or your own as module:Class.
    """

    work: str


@dataclass(frozen=True, kw_only=True)
class ServeOptions(ServerLimits, ServedWork):
    """Serve predictions over HTTP, with dynamic batching and a bounded queue, until SIGTERM or Ctrl-C.

    Parameters
    ----------
    host
        Address to listen on; the default is reachable from this machine only.
    port
        Port; 0 chooses a free one, which the first line of output shows.
    allow_host
        Another host name that requests may use, as through a proxy; may be given many times.
    device
        cuda, cuda:N or cpu.
    tiny
        A small model, for a CPU.
    set
        KEY=VALUE: a setting of the work; may be given many times.
    seed
        Seed of the weights.
    json
        Print one JSON object.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    allow_host: tuple[str, ...] = ()
    device: str = "cuda"
    tiny: bool = False
    set: tuple[str, ...] = ()
    seed: int = 0
    json: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seed(self.seed)
