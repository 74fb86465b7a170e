"""Every reader against files that somebody has been at: out comes a lawful trace, or an error of the house.

Damage is drawn from a seed, so that a failure comes back: its message names the seed.
"""

import random
import re
import shutil
from pathlib import Path

import pytest

import fleetlab
from fleetlab.core import Trace, TraceError
from fleetlab.traces import readers

SEEDS = [range(20), pytest.param(range(20, 60), marks=pytest.mark.validate)]
NUMBERS = [b"1e308", b"-1e308", b"-1", b"nan", b"inf", b"9" * 22, b"1e30", b"", b"0", b"-0.0", b"1e-320", b"2147483648"]
NUMBERS += [
    b"9223372036854775807",
    b"-9223372036854775808",
    b"99999999999",
    b"NULL",
    b"0x1F",
    b"1,5",
    b'"',
    b"\xc2\xa05",
]
BYTES = [b"\0", b"\xff", b'"', b"\n", b"\r", b",", b"|", b"\t", b"{", b"]", b"\\", b"\xed\xa0\x80", b"\xf0\x9f\x92\xa9"]
FIELD = re.compile(rb"[^,|\t\n ]+")
MAP = {"submit": "`created at`", "start": "began", "end": "finished", "gpu_milli": "gpus*1000", "gpu_types": "card"}
OPTIONS = {"csv": {"map": MAP | {"instances": "pods", "memory_mib": "mem_gb*1024", "status": "state", "parent": "id"}}}


def number(data: bytes, chance: random.Random) -> bytes:
    found = list(re.finditer(rb"\d+(\.\d+)?", data))
    if not found:
        return data
    at = chance.choice(found)
    return data[: at.start()] + chance.choice(NUMBERS) + data[at.end() :]


def fields(data: bytes, chance: random.Random) -> bytes:
    found = list(FIELD.finditer(data))
    if len(found) < 2:
        return data
    a, b = sorted(chance.sample(found, 2), key=re.Match.start)
    return data[: a.start()] + b.group() + data[a.end() : b.start()] + a.group() + data[b.end() :]


def lines(data: bytes, chance: random.Random) -> bytes:
    whole = data.split(b"\n")
    at = chance.randrange(len(whole))
    change = chance.choice(["twice", "drop", "shuffle", "blank"])
    if change == "shuffle":
        chance.shuffle(whole)
    else:
        whole[at : at + 1] = {"twice": [whole[at]] * 2, "drop": [], "blank": [whole[at], b""]}[change]
    return b"\n".join(whole)


def insert(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(BYTES) + data[at:]


def flip(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(max(1, len(data)))
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def delete(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(max(1, len(data)))
    return data[:at] + data[at + chance.randrange(1, 9) :]


def truncate(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


DAMAGE = [number, number, number, number, fields, lines, insert, flip, delete, truncate]


def damaged(good: Path, folder: Path, seed: int) -> Path:
    """A copy of a good log with one to three things wrong in one or two of its files."""
    chance = random.Random(seed)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(good, folder)
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    for path in chance.choices(files, k=chance.randint(1, 2)):
        data = path.read_bytes()
        for harm in chance.choices(DAMAGE, k=chance.randint(1, 3)):
            data = harm(data, chance)
        path.write_bytes(data)
    return folder


def lawful(trace: Trace) -> None:
    counts = {name: rejected for name, _, _, rejected in trace.counts.iter_rows() if rejected}
    assert dict(trace.rejects.group_by("table").len().iter_rows()) == counts
    assert trace.rejects.null_count().sum_horizontal().item() == 0
    assert (trace.rejects["line"] >= 1).all()
    for frame in (trace.usage, trace.placements, trace.names, *trace.series.values()):
        assert frame is None or frame.collect().width > 0
    assert trace.summary()
    assert trace.tables()


@pytest.mark.parametrize("seeds", SEEDS, ids=["few", "many"])
@pytest.mark.parametrize("format", sorted(readers()))
def test_damage_never_surprises_a_reader(format, seeds, fixtures, tmp_path):
    for seed in seeds:
        folder = damaged(fixtures / format / "good", tmp_path / "log", seed)
        try:
            lawful(fleetlab.read(folder, format, **OPTIONS.get(format, {})))
        except TraceError:
            continue
        except Exception as e:
            pytest.fail(f"{format}, seed {seed}: {type(e).__name__}: {e}")
