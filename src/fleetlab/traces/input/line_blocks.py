"""Read a file as blocks of whole lines; the next block is decompressed while this one is parsed."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from queue import Queue
from threading import Thread
from typing import Literal

from fleetlab.traces.input.files import SourceFile

BLOCK = 32 << 20  # bytes parsed at once: large enough to be quick, small enough to hold several
LONGEST = 1 << 20  # bytes of one line, or of one record; anything longer is no row of a trace


@dataclass
class Block:
    """Lines, and where in their file they stand."""

    data: bytes  # whole lines
    line: int  # of the first of them, from 1
    share: float  # of the packed file used up
    too_long: list[int] = field(default_factory=list)  # lines taken out: each left an empty one in its place

    def after(self, rest: Block | None) -> Block:
        """The same with what was left over of the block before it."""
        return Block(rest.data + self.data, rest.line, self.share, self.too_long) if rest else self


def blocks(source: SourceFile) -> Iterator[Block]:
    """All lines of a file, in order."""
    line = 1
    with source.open() as stream:
        size = max(1, source.size)
        pending = b""
        while True:
            more = stream.read(BLOCK)
            share = min(1.0, stream.position() / size)
            cut = more.rfind(b"\n") + 1
            if more and not cut:
                pending += more
                if len(pending) > LONGEST:
                    pending = pending[: LONGEST + 1]  # it will be turned away: no need to hold the rest of it
                continue
            data, pending = pending + more[:cut], more[cut:]
            if data:
                block = Block(data, line, share)
                line += data.count(b"\n") + (not data.endswith(b"\n"))
                yield _drop_long_lines(block)
            if not more:
                return


def _drop_long_lines(block: Block) -> Block:
    """Take out lines that are too long, leaving an empty line in place of each, so that numbers still fit."""
    data, at, kept = block.data, 0, 0
    pieces = []
    while at + LONGEST < len(data):
        # From one line's beginning, leap to the last that begins within reach; if none does, this line is too long.
        if leap := data.rfind(b"\n", at, at + LONGEST + 1) + 1:
            at = leap
            continue
        pieces.append(data[kept:at])
        block.too_long.append(block.line + data.count(b"\n", 0, at))
        end = data.find(b"\n", at)
        at = kept = end if end >= 0 else len(data)
    if pieces:
        block.data = b"".join([*pieces, data[kept:]])
    return block


def prefetch(blocks: Iterator[Block]) -> Generator[Block]:
    """Unpack the next block while this one is being parsed."""
    queue: Queue[Block | BaseException | None] = Queue(maxsize=1)
    stopped: list[Literal[True]] = []

    def work() -> None:
        try:
            for block in blocks:
                queue.put(block)
                if stopped:
                    return
            queue.put(None)
        except BaseException as e:  # handed over to whoever is reading
            queue.put(e)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.append(True)
        while thread.is_alive():
            if not queue.empty():
                queue.get()
            thread.join(0.01)
