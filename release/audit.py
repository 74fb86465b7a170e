"""Which installed packages have known vulnerabilities: `python -m release.audit [--database DIR|ZIP] [--only-offline]`.

The online database is asked first. Where it is not reachable, records of an offline one are read: a folder or a ZIP of
records in the format of OSV, as JSON or YAML, such as a checkout of the Python Packaging Advisory Database. Status 0:
none is known, 1: some are, 2: neither database could be read. What was asked is printed.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from datetime import date
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

ONLINE = "https://api.osv.dev/v1/querybatch"
SECONDS = 20.0  # to wait for an answer
AT_ONCE = 500  # packages of one question
HINT = "hint: make audit DATABASE=DIR, a folder or a ZIP of OSV records, such as a clone of the advisory database"
Found = dict[str, list[str]]  # ids of vulnerabilities by package


def installed() -> dict[str, str]:
    """Return the version of each installed package but this one."""
    named = {normal(d.metadata["Name"]): d.version for d in distributions() if d.metadata["Name"]}
    return {name: version for name, version in sorted(named.items()) if name != "fleetlab"}


def normal(name: str) -> str:
    """Return the name of a package as indexes compare it.

    >>> normal("PyYAML_env.tag")
    'pyyaml-env-tag'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def ask(packages: Mapping[str, str], url: str = ONLINE) -> Found:
    """Ask the online database."""
    found: Found = {}
    rows = list(packages.items())
    for first in range(0, len(rows), AT_ONCE):
        part = rows[first : first + AT_ONCE]
        queries = [{"version": v, "package": {"name": name, "ecosystem": "PyPI"}} for name, v in part]
        request = urllib.request.Request(url, json.dumps({"queries": queries}).encode())
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            results = json.load(answer)["results"]
        for (name, _), result in zip(part, results, strict=True):
            if ids := [one["id"] for one in result.get("vulns", ())]:
                found[name] = ids
    return found


def records(database: Path) -> Iterator[dict[str, Any]]:
    """Return the records of an offline database."""
    if database.is_file():
        with zipfile.ZipFile(database) as archive:
            texts = [(name, archive.read(name)) for name in sorted(archive.namelist())]
    else:
        texts = [(path.name, path.read_bytes()) for path in sorted(database.rglob("*")) if path.is_file()]
    for name, text in texts:
        if name.endswith(".json"):
            yield json.loads(text)
        elif name.endswith((".yaml", ".yml")):
            yield yaml.safe_load(io.BytesIO(text))


def look_up(packages: Mapping[str, str], database: Path) -> tuple[Found, int, str]:
    """Return the vulnerabilities of an offline database, how many records it has, and when the newest was changed."""
    found: Found = {}
    count, newest = 0, ""
    for record in records(database):
        if not isinstance(record, dict) or "affected" not in record:
            continue
        count, newest = count + 1, max(newest, str(record.get("modified", "")))
        for affected in record["affected"] if not record.get("withdrawn") else ():
            name = normal(affected.get("package", {}).get("name", ""))
            if name in packages and affects(affected, packages[name]) and record["id"] not in found.get(name, ()):
                found.setdefault(name, []).append(record["id"])
    return found, count, newest[:10]


def affects(affected: Mapping[str, Any], version: str) -> bool:
    """Return whether an entry of a record names a version, or has it in a range.

    >>> affects({"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.10"}]}]}, "1.9")
    True
    """
    if version in affected.get("versions", ()):
        return True
    return any(_inside(one["events"], version) for one in affected.get("ranges", ()) if one["type"] == "ECOSYSTEM")


def _inside(events: list[dict[str, str]], version: str) -> bool:
    try:
        own = Version(version)
        moments = sorted((Version(at), kind) for event in events for kind, at in event.items() if kind != "limit")
    except InvalidVersion:
        return True  # better one too many
    inside = False
    for at, kind in moments:
        if kind == "introduced" and own >= at:
            inside = True
        elif (kind == "fixed" and own >= at) or (kind == "last_affected" and own > at):
            inside = False
    return inside


def main() -> int:
    """Print what is known of the installed packages, and by which database."""
    parser = argparse.ArgumentParser(prog="release.audit", description=__doc__)
    parser.add_argument("--database", type=Path, help="a folder or a ZIP of OSV records, where nothing online answers")
    parser.add_argument("--only-offline", action="store_true", help="do not ask the online database")
    parser.add_argument("--online", default=ONLINE, help=argparse.SUPPRESS)
    given = parser.parse_args()
    packages, why = installed(), "it was not asked"
    if not given.only_offline:
        try:
            found = ask(packages, given.online)
            return _print(packages, found, f"the online database, on {date.today()}")
        except (OSError, ValueError, KeyError) as e:
            why = f"it does not answer: {e}"
    if given.database is None or not given.database.exists():
        named = "none was given" if given.database is None else f"no such file or folder: {given.database}"
        print(f"error: no database of vulnerabilities; online: {why}; offline: {named}\n{HINT}", file=sys.stderr)
        return 2
    found, count, newest = look_up(packages, given.database)
    if not count:
        print(f"error: no record of a vulnerability in: {given.database}\n{HINT}", file=sys.stderr)
        return 2
    whose = f"{given.database}, {count:,} records, the newest of {newest or 'an unknown day'}; online: {why}"
    return _print(packages, found, whose)


def _print(packages: Mapping[str, str], found: Found, database: str) -> int:
    print(f"asked: {database}")
    for name, ids in found.items():
        print(f"{name} {packages[name]}: {', '.join(ids)}")
    print(f"{len(packages)} packages, {len(found)} with known vulnerabilities")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
