"""Host names that a server answers to: a page of another site must not reach it by a name that leads here.

By DNS rebinding a page in a browser on this machine can make a name of its own lead to 127.0.0.1; the browser then
takes this server for the page's own site. The name is in the Host header. Ports are not checked: a forwarded one has
another number.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable

HOST = re.compile(r"(?P<name>[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?")
REMEMBERED = 64  # headers that were accepted


class KnownHosts:
    """The names of one server; by an address of loopback it is always known.

    >>> local = KnownHosts("127.0.0.1", "127.0.0.1", ["lab.example"])
    >>> [local.accepts(host) for host in (b"localhost:9000", b"[::1]", b"lab.example", b"evil.example", b"10.0.0.1")]
    [True, True, True, False, False]
    """

    def __init__(self, host: str, address: str, allowed: Iterable[str]) -> None:
        self._local = ipaddress.ip_address(address.partition("%")[0]).is_loopback
        own = () if self._local else (host, socket.gethostname(), socket.getfqdn())
        self._names = {name.lower() for name in ("localhost", *own, *allowed)}
        self._accepted: set[bytes] = set()

    def accepts(self, header: bytes) -> bool:
        """Whether a Host header names this server."""
        if header in self._accepted:  # nearly every request: the check must not cost time
            return True
        match = HOST.fullmatch(header.decode("latin-1").lower())
        known = match is not None and self._is_known(match["name"].strip("[]"))
        if known and len(self._accepted) < REMEMBERED:
            self._accepted.add(header)
        return known

    def _is_known(self, name: str) -> bool:
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._local  # rebinding needs a name, not an address
