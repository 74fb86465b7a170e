"""What a result says of itself in words: what was found, what it is called beside others, how it came to be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetlab.core import Estimate, Provenance, Result, say
from fleetlab.report.markup import clean

LABEL = 44  # characters of what tells a result from others
SETTING = 400  # characters of one setting


def number(e: Estimate) -> str:
    """The number and its interval, as `say` puts them; a dash where there is none.

    >>> number(Estimate("mean wait", 0.8321, 0.6912, 0.9730, "s"))
    '0.83 s (0.69 to 0.97)'
    """
    return say(e._replace(metric="")).removeprefix(" ") if not math.isnan(e.value) else "–"


def difference(first: Estimate, other: Estimate) -> str:
    """How far `other` is from `first`, and whether their intervals leave that in doubt.

    >>> difference(Estimate("wait", 10, 9, 11, "s"), Estimate("wait", 5, 4, 6, "s"))
    '−5 s (−50 %)'
    >>> difference(Estimate("wait", 10, 4, 16, "s"), Estimate("wait", 5, 1, 9, "s"))
    '−5 s (−50 %), intervals overlap'
    """
    by = other.value - first.value
    if not math.isfinite(by):
        return "–"
    if by == 0:
        return "same"
    share = f" ({_signed(100 * by / abs(first.value))} %)" if first.value and abs(by / first.value) < 100 else ""
    doubt = ", intervals overlap" if first.low <= other.high and other.low <= first.high else ""
    if not all(map(math.isfinite, (first.low, first.high, other.low, other.high))):
        doubt = ", of unknown certainty"
    return f"{_signed(by)}{' ' + other.unit if other.unit else ''}{share}{doubt}"


def _signed(value: float) -> str:
    said = f"{abs(value):,.3g}" if abs(value) < 1000 else f"{abs(value):,.0f}"
    return ("−" if value < 0 else "+") + said


# --- how it came to be ---------------------------------------------------------------------------------------------


def made(by: Mapping[str, Provenance], *, widest: int = 600) -> str:
    """One line: the verb, what it was about, its settings, seed and version; of several, what differs by name.

    >>> made({"a": Provenance("simulate", "mine", {"order": "fifo", "placement": "random"}, 1, "0.1")})
    'simulate · mine · order fifo, placement random · seed 1 · fleetlab 0.1'
    """
    rows = {label: _row(p) for label, p in by.items()}
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    apart = [key for key in keys if len({row.get(key) for row in rows.values()}) > 1]
    same = _said({key: told for key, told in next(iter(rows.values())).items() if key not in apart})
    own = [f"{label}: {_said({key: row[key] for key in apart if key in row})}" for label, row in rows.items()]
    return clean("; ".join([same, *own] if apart else [same]), widest)


def _row(p: Provenance) -> dict[str, str]:
    """A provenance as text by what it is; what needs no name comes with a bare key."""
    told = {f"set {name}": f"{name} {_setting(value)}" for name, value in dict(p.settings).items()}
    seed = {} if p.seed is None else {"seed": f"seed {p.seed}"}
    return {"verb": str(p.verb), "source": str(p.source), **told, **seed, "version": f"fleetlab {p.version}"}


def _said(row: Mapping[str, str]) -> str:
    settings = ", ".join(said for key, said in row.items() if key.startswith("set "))
    first = [row[key] for key in ("verb", "source") if key in row]
    last = [row[key] for key in ("seed", "version") if key in row]
    return " · ".join([*first, *([settings] if settings else []), *last])


def _setting(value: Any) -> str:  # noqa: ANN401
    said = ", ".join(map(str, value)) if isinstance(value, list | tuple) else "–" if value is None else str(value)
    return clean(said, SETTING)


def labelled(results: Result | Iterable[Result] | Mapping[str, Result]) -> dict[str, Result]:
    """Results by a short name each: the one given, else what tells it from the others."""
    if isinstance(results, Mapping):
        given = [str(name) for name in results]
        found = list(results.values())
    else:
        found = [results] if hasattr(results, "provenance") or isinstance(results, str | Path) else list(results)
        given = _apart([r.provenance for r in found if hasattr(r, "provenance")])
        given += ["result"] * (len(found) - len(given))
    names = [clean(name, LABEL) or "result" for name in given]
    # Two may be alike, or alike as far as is shown.
    seen = [names[: k + 1].count(name) for k, name in enumerate(names)]
    twice = {name for name in names if names.count(name) > 1}
    told = [f"{name} ({n})" if name in twice else name for name, n in zip(names, seen, strict=True)]
    return dict(zip(told, found, strict=True))


def _apart(made_by: Sequence[Provenance]) -> list[str]:
    """Of verb, source, settings and seed, those in which they differ."""
    rows = [_row(p) for p in made_by]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    differ = [key for key in keys if len({row.get(key) for row in rows}) > 1] or ["verb"]
    return [", ".join(row[key] for key in differ if key in row) for row in rows]


def titled(results: Mapping[str, Result]) -> str:
    """What the page is called, where nobody says."""
    verbs = list(dict.fromkeys(str(r.provenance.verb) for r in results.values()))
    sources = list(dict.fromkeys(str(r.provenance.source) for r in results.values()))
    count = f", {len(results)} results" if len(results) > 1 else ""
    return clean(f"{', '.join(verbs)}: {', '.join(sources)}{count}", 160)
