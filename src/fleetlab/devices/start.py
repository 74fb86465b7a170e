"""A process with torch starts sooner if nobody looks for garbage among the objects that importing it makes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def large_import() -> Iterator[None]:
    """Collect no garbage within, and never look at what is there at the end: importing torch takes a third less."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
