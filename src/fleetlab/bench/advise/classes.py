"""Classes of jobs as the simulation names them, and the measured works that stand for each.

A speed profile has classes: light, medium and heavy, or works by name, such as your own program. Rules of
`--speed-classes` say which jobs of a log are of which class: `app:bert=light,other=heavy`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleetlab.bench.profile.build import CLASSES, class_by_utilization
from fleetlab.core import DeviceError, Speed
from fleetlab.core.catalog import SPEEDS
from fleetlab.core.words import WORDS


@dataclass(frozen=True, slots=True)
class JobClasses:
    """Works of each class of a profile, and the class of jobs by rule; without a profile neither."""

    works: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rules: dict[str, str] = field(default_factory=dict)
    profile: str = ""

    def class_named(self, word: str) -> str | None:
        """The class that a word of a mix means: its name, or a rule such as `app:bert`; None if it is neither."""
        name = self.rules.get(word, word)
        return name if name in self.works or name in CLASSES else None


def job_classes(speed: Path | str | None, rules: str | Mapping[str, str] | None) -> JobClasses:
    """Classes of a profile by name or file, and rules of `--speed-classes`."""
    read = WORDS["speed_classes"].read(rules) or {}
    if speed is None:
        return JobClasses(rules=read)
    named = str(speed)
    profile = Speed.named(named) if named in SPEEDS or not named.endswith(".json") else Speed.load(named)
    works = class_works(profile)
    names = set(profile.frame["workload"])
    for rule, of in read.items():
        if of not in names:
            msg = f"no class of the speed profile by that name: `{rule}={of}`"
            raise DeviceError(msg, hint=f"classes of {speed}: {', '.join(sorted(names))}")
    return JobClasses(works, read, str(speed))


def class_works(profile: Speed) -> dict[str, tuple[str, ...]]:
    """Works of each class, as the profile records them; empty if it was not made from measured works."""
    settings = profile.provenance.settings
    busy, kept = settings.get("busy"), settings.get("keep") or ()
    if not isinstance(busy, Mapping):
        return {}
    by: dict[str, list[str]] = defaultdict(list)
    for work, share in busy.items():
        named = settings.get("classes") and work not in kept
        by[class_by_utilization(float(share)) if named else str(work)].append(str(work))
    return {name: tuple(works) for name, works in by.items()}
