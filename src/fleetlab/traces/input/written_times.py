"""Times as people and schedulers write them, other than by ISO 8601: `Nov 12 10:22:01 2026`, `11/12/2026 10:22 AM`."""

from __future__ import annotations

import re

import polars as pl

NAMES = "janfebmaraprmayjunjulaugsepoctnovdec"
MONTHS = {NAMES[3 * k : 3 * k + 3]: k + 1 for k in range(12)}
CLOCK = r"(\d{1,2}):(\d\d)(?::(\d\d))?(?:\.\d+)?\s*([ap]\.?m\.?)?"
MONTH_FIRST = r"(?:[a-z]{3,9},?\s+)?([a-z]{3})[a-z]*\.?\s+(\d{1,2}),?\s+"
NAMED = re.compile(rf"{MONTH_FIRST}{CLOCK}\s*([a-z]{{3}})?\s+(\d{{4}})")
YEAR_BEFORE_CLOCK = re.compile(rf"{MONTH_FIRST}(\d{{4}}),?\s+{CLOCK}")
DAY_NAMED = re.compile(rf"(\d{{1,2}})[\s-]([a-z]{{3}})[a-z]*[\s-](\d{{4}}),?\s+{CLOCK}")
SLASHES = re.compile(rf"(\d{{1,2}})([/.])(\d{{1,2}})\2(\d{{4}}),?(?:\s+{CLOCK})?")
YEAR_FIRST = re.compile(rf"(\d{{4}})/(\d{{1,2}})/(\d{{1,2}})[\sT]+{CLOCK}")
TWELVE = re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)[\sT]+{CLOCK}")
OFFSET_AND_NAME = re.compile(r"\s+([+-]\d{4})\s+[A-Z]{3,4}$")  # as Go prints it: +0000 UTC
NAMED_UTC = re.compile(r"\s*(?:GMT|UTC)$", re.IGNORECASE)


def in_iso(text: pl.Series) -> pl.Series:
    """Return texts as ISO 8601 where they are times of another form, and as they are where not.

    >>> in_iso(pl.Series(["Thu Nov 12 10:22:01 2026", "13/11/2026 10:22", "2026-11-12T10:22:01Z"])).to_list()
    ['2026-11-12T10:22:01', '2026-11-13T10:22:00', '2026-11-12T10:22:01Z']
    """
    unique = text.drop_nulls().unique().to_list()
    day_first = any((m := SLASHES.match(one)) and (int(m[1]) > 12 or m[2] == ".") for one in unique)
    forms = {one: _iso(one, day_first=day_first) for one in unique}
    return text.replace_strict(list(forms), list(forms.values()), default=None, return_dtype=pl.String)


def _iso(text: str, *, day_first: bool) -> str:
    plain = OFFSET_AND_NAME.sub(r"\1", text.strip())
    zone = "Z" if NAMED_UTC.search(plain) else ""
    words = NAMED_UTC.sub("", plain).lower()
    if m := NAMED.fullmatch(words):
        zone = zone or ("Z" if m[7] in ("utc", "gmt") else "")
        return _stamp(m[8], MONTHS.get(m[1]), m[2], m.group(3, 4, 5, 6), zone) or plain
    if m := YEAR_BEFORE_CLOCK.fullmatch(words):
        return _stamp(m[3], MONTHS.get(m[1]), m[2], m.group(4, 5, 6, 7), zone) or plain
    if m := DAY_NAMED.fullmatch(words):
        return _stamp(m[3], MONTHS.get(m[2]), m[1], m.group(4, 5, 6, 7), zone) or plain
    if m := SLASHES.fullmatch(words):
        day, month = (m[1], m[3]) if day_first else (m[3], m[1])
        return _stamp(m[4], int(month), day, m.group(5, 6, 7, 8), zone) or plain
    if m := YEAR_FIRST.fullmatch(words) or TWELVE.fullmatch(words):
        return _stamp(m[1], int(m[2]), m[3], m.group(4, 5, 6, 7), zone) or plain
    return plain


def _stamp(year: str, month: int | None, day: str, clock: tuple[str | None, ...], zone: str) -> str | None:
    if month is None or not 1 <= month <= 12:
        return None
    hour, half = int(clock[0] or 0), (clock[3] or "").replace(".", "")
    if half:
        hour = hour % 12 + 12 * (half == "pm")
    return f"{year}-{month:02d}-{int(day):02d}T{hour:02d}:{clock[1] or '00'}:{clock[2] or '00'}{zone}"
