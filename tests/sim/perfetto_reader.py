"""Read a trace of Perfetto without our writer: the wire format of protocol buffers, and what slices and flows mean."""

import struct
from dataclasses import dataclass, field
from itertools import pairwise


def fields(content):
    """The fields of a message: number, value (bytes of a text or a message, a number, or 8 bytes)."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(content):
        tag = varint()
        if tag & 7 == 0:
            value = varint()
        else:
            size = 8 if tag & 7 == 1 else varint()
            value, at = content[at : at + size], at + size
            assert tag & 7 in (1, 2)
            assert len(value) == size
        yield tag >> 3, value


def one(content):
    """A message whose fields occur once."""
    return dict(fields(content))


@dataclass
class Slice:
    name: str
    track: str
    begin: int
    args: dict
    leaves: list
    arrives: list
    end: int = -1


@dataclass
class Read:
    """What a trace says."""

    slices: list = field(default_factory=list)
    counters: dict = field(default_factory=dict)  # name: [(time, value)]
    tracks: dict = field(default_factory=dict)  # number: name, with its parents
    processes: dict = field(default_factory=dict)

    def flows(self):
        """Pairs of slices by name: from which to which."""
        by_id = {}
        for s in sorted(self.slices, key=lambda s: s.begin):
            for number in (*s.leaves, *s.arrives):
                by_id.setdefault(number, []).append(s.name)
        return sorted(pair for names in by_id.values() for pair in pairwise(names))


def read(content):
    """Read a trace; packets of one time stay in the order of the file."""
    out, texts, events = Read(), {2: {}, 3: {}, 29: {}}, []
    for number, packet in fields(content):
        assert number == 1
        p = one(packet)
        if 60 in p:
            _describe(out, one(p[60]))
        for kind, entry in fields(p.get(12, b"")):
            interned = one(entry)
            texts[kind][interned[1]] = interned[2].decode()
        if 11 in p:
            events.append((p[8], p[11]))
    stacks = {}
    for time, event in sorted(events, key=lambda e: e[0]):
        _play(out, texts, stacks, time, event)
    assert not any(stacks.values()), "a slice does not end"
    return out


def _describe(out, t):
    name = t.get(2, b"").decode()
    if 3 in t:
        name = one(t[3])[6].decode()
        out.processes[one(t[3])[1]] = name
    if 4 in t:
        thread = one(t[4])
        name = f"{out.processes[thread[1]]}/{thread[5].decode()}"
    if 5 in t:
        name = f"{out.tracks[t[5]]}/{name}"
    assert t[1] not in out.tracks
    out.tracks[t[1]] = name
    if 8 in t:
        out.counters[name] = []


def _play(out, texts, stacks, time, event):
    e = one(event)
    track = out.tracks[e[11]]
    stack = stacks.setdefault(e[11], [])
    if e[9] == 4:
        out.counters[track].append((time, struct.unpack("<d", e[44])[0]))
    elif e[9] == 2:
        stack.pop().end = time
    else:
        args, flows = {}, {47: [], 48: []}
        for number, value in fields(event):
            if number == 4:
                a = one(value)
                known = {3: a.get(3), 5: struct.unpack("<d", a[5])[0] if 5 in a else None, 17: texts[29].get(a.get(17))}
                args[texts[3][a[1]]] = next(v for v in known.values() if v is not None)
            if number in flows:
                flows[number].append(int.from_bytes(value, "little"))
        stack.append(Slice(texts[2][e[10]], track, time, args, flows[47], flows[48]))
        out.slices.append(stack[-1])
