"""The mix that advice is asked for: tenants by name, by their command, or by the class of a job of a log.

A speed profile has classes: light, medium and heavy, or works by name, such as your own program. Rules of
`--speed-classes` say which jobs of a log are of which class: `app:bert=light,other=heavy`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from fleetlab.core import DeviceError, Speed
from fleetlab.core.catalog import SPEEDS
from fleetlab.core.names import lookup
from fleetlab.core.words import WORDS
from fleetlab.gpu.bench.analysis.findings import Findings
from fleetlab.gpu.bench.analysis.measure import SuiteData
from fleetlab.gpu.bench.analysis.values import is_apart
from fleetlab.gpu.bench.analysis.wording import count_noun, mode_name, mode_order
from fleetlab.gpu.bench.profile.build import CLASSES, class_by_utilization
from fleetlab.gpu.bench.results.cells import BASELINE, grouped, mix_name, utilization_alone


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
    busy, own = settings.get("busy"), settings.get("keep") or ()
    if not isinstance(busy, Mapping):
        return {}
    named = {work for work in busy if settings.get("classes") and work not in own}
    each = ((class_by_utilization(float(x)) if work in named else str(work), str(work)) for work, x in busy.items())
    return {name: tuple(works) for name, works in grouped(each).items()}


# --- the mix that advice is asked for --------------------------------------------------------------------------------


MEASURED = "measured"
NAMED = 6  # mixes that are named in a sentence
OTHER_MODES = "measure it in two modes: `fleetlab bench suite mine.toml --out FOLDER/mine`"


@dataclass(frozen=True, slots=True)
class MixRequest:
    """A requested mix, and the measured mixes that answer for it."""

    text: str
    mixes: tuple[str, ...]  # names of measured mixes
    tenants: int
    basis: str  # `measured` as such, or mixes of the same kind or class
    names: tuple[str, ...]  # tenants: of the measured mix, or as requested where several mixes answer
    about: str = ""  # which measured mixes answer, where they are not the mix itself
    limits: dict[str, float] | None = None  # goals of TTFT and TPOT in seconds, instead of those of the servers
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # measured works that stand for each class


def resolve_mix(f: Findings, text: str, jobs: JobClasses | None = None) -> MixRequest:
    """Find the mixes: the mix itself, else those of its classes, else those of its kind."""
    jobs = jobs or JobClasses()
    text = ", ".join(filter(None, (word.strip() for word in text.split(","))))
    parts = _parts(text, f.gathered.kinds)
    if len(parts) < 2:
        msg = f"one tenant shares nothing: {text}"
        raise DeviceError(msg, hint='--mix "2 train" or "train, serve" asks for tenants that share a GPU')
    each = [_tenants(f.gathered, part, jobs) for part in parts]
    exact = dict.fromkeys(mix_name(sorted(names)) for names in product(*each))
    if measured := [mix for mix in exact if len(_modes(f, mix)) > 1]:
        used = {name for mix in measured for name in _names(f, mix)}
        classes = {
            part: tuple(name for name in of if name in used)
            for part, of in zip(parts, each, strict=True)
            if jobs.class_named(part) and [part] != of
        }
        single = len(exact) == 1
        basis = MEASURED if single else f"{count_noun(len(measured), 'measured mix')} of these classes"
        names = _names(f, measured[0]) if single else tuple(parts)
        return MixRequest(text, tuple(measured), len(parts), basis, names, classes=classes)
    names = tuple(sorted(next(product(*each))))
    if same := _same_work(f, names):
        about = f"Measured as {same}: the same work with the same settings, under other names."
        return MixRequest(text, (same,), len(parts), MEASURED, _names(f, same), about)
    _refuse(f, names)
    return _of_its_kind(f, text, names)


def _same_work(f: Findings, names: tuple[str, ...]) -> str | None:
    """A mix of tenants with the same settings under other names, in two modes; of several, that in the most modes."""
    settings = f.gathered.settings
    wanted = Counter(settings.get(name, name) for name in names)
    mixes = {m.mix: m.names for m in f.gathered.cells if len(m.names) == len(names)}
    alike = [mix for mix, of in mixes.items() if Counter(settings.get(name, name) for name in of) == wanted]
    best = max(alike, key=lambda mix: len(_modes(f, mix)), default=None)
    return best if best is not None and len(_modes(f, best)) > 1 else None


def _refuse(f: Findings, names: tuple[str, ...]) -> None:
    """Refuse mixes that no other mix answers for: in other numbers, or with an arrival rate."""
    msg = f"not measured in two modes: {mix_name(list(names))}"
    if single := _modes(f, mix_name(list(names))):
        msg += f"; only under {mode_name(single[0])}"
    if counts := _other_counts(f, names):
        others = "; ".join(f"{mode_name(mode)}: {', '.join(mixes)}" for mode, mixes in counts.items())
        raise DeviceError(msg, hint=f"the same tenants were measured in other numbers, {others}; {OTHER_MODES}")
    if single:
        raise DeviceError(msg, hint=OTHER_MODES)
    open_loop = {t.name for m in f.gathered.cells for t in m.tenants if t.is_open_loop}
    if rates := [name for name in dict.fromkeys(names) if name in open_loop]:
        msg += f"; requests with an arrival rate ({', '.join(rates)}) are not answered by other mixes"
        known = {m.mix: m.names for m in f.gathered.cells if set(m.names) & open_loop and len(set(m.names)) > 1}
        near = [mix for mix, of in known.items() if set(of) & set(names)] or list(known)
        others = f"measured with an arrival rate: {', '.join(near[:NAMED])}; " if near else ""
        raise DeviceError(msg, hint=others + OTHER_MODES)


def _of_its_kind(f: Findings, text: str, names: tuple[str, ...]) -> MixRequest:
    """Mixes of other tenants of the same kind, said plainly."""
    kind = f.gathered.kind(names)
    alike = [mix for mix in f.mixes.shared(tenants=len(names)) if f.mixes.stp.kinds[mix] == kind]
    if not alike:
        msg = f"not measured in two modes: {mix_name(list(names))}, nor any other mix of its kind ({kind})"
        raise DeviceError(msg, hint=OTHER_MODES)
    listed = ", ".join(alike[:NAMED]) + (", …" if len(alike) > NAMED else "")
    others = f"{count_noun(len(alike), 'other mix')} of its kind, {kind}: {listed}"
    about = f"This mix was not measured in two modes. The answer is that of {others}."
    return MixRequest(text, tuple(alike), len(names), f"{len(alike)} mixes of its kind: {kind}", names, about)


def _other_counts(f: Findings, names: tuple[str, ...]) -> dict[str, list[str]]:
    """Mixes of the same tenants in other numbers, by mode, fewest tenants first.

    They do not answer for this one: two trainings have half of a GPU each and eight an eighth, and servers that keep up
    in fours fall behind in sixes.
    """
    counts: dict[str, set[tuple[int, str]]] = {}
    for m in f.gathered.cells:
        if set(m.names) == set(names) and m.names != names and len(m.names) > 1 and is_apart(m.mode):
            counts.setdefault(m.mode, set()).add((len(m.names), m.mix))
    return {mode: [mix for _, mix in sorted(counts[mode])] for mode in sorted(counts, key=mode_order)}


def _modes(f: Findings, mix: str) -> list[str]:
    """Modes in which a mix was measured."""
    return sorted({m.mode for m in f.gathered.cells if m.mix == mix and is_apart(m.mode)})


def mix_modes(f: Findings, request: MixRequest) -> list[str]:
    """Modes of processes in which one of these mixes was measured."""
    modes = {m.mode for m in f.gathered.cells if m.mix in request.mixes and is_apart(m.mode)}
    return sorted(modes, key=mode_order)


def _names(f: Findings, mix: str) -> tuple[str, ...]:
    return f.mixes.names.get(mix) or tuple(sorted(_parts(mix.replace(" + ", ","), f.gathered.kinds)))


COUNT = re.compile(r"(\d+)(?: *[x*×] +| *[*×] *| +)(.+)|(.+?)(?: +[x*×] *| *[*×] *)(\d+)")


def _parts(text: str, known: Container[str]) -> list[str]:
    """Read `train, 2 serve` as train, serve, serve; so `2x serve` and `serve*2`. A known name is no number."""
    parts: list[str] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        count = None if word in known else COUNT.fullmatch(word)
        times = int(count[1] or count[4]) if count else 1
        if not 1 <= times <= 100:
            raise DeviceError(f"not a number of tenants: {word}")
        parts += [count[2] or count[3] if count else word] * times
    if not parts:
        msg = "which mix? no tenant is named"
        raise DeviceError(msg, hint='--mix "train, serve", with the names of the plan that measured them')
    return parts


def _tenants(g: SuiteData, word: str, jobs: JobClasses) -> list[str]:
    """Tenants that a word means: one by name, by workload or command, or all of a class."""
    if word in g.kinds:
        return [word]
    if (of := jobs.class_named(word)) and (names := _of_class(g, of, jobs)):
        return names
    about = {name: json.loads(text) for name, text in g.settings.items() if name in g.kinds}
    if names := [name for name, a in about.items() if word in (a.get("work"), a.get("command"), a.get("callable"))]:
        return names[:1]
    if " " in word or "/" in word:
        msg = f"not measured: `{word}`"
        raise DeviceError(msg, hint=f'[tenant.mine] with command = "{word}" in a plan; {OTHER_MODES}')
    classes = [name for name in CLASSES if any(class_of(g, t) == name for t in g.alone.rates)]
    known = dict.fromkeys([*sorted(g.kinds), *classes, *jobs.works, *jobs.rules])
    return [lookup("tenant", word, list(known), error=DeviceError)]


def _of_class(g: SuiteData, of: str, jobs: JobClasses) -> list[str]:
    """Measured tenants of a class: those of the profile, else by utilization; stressors are no jobs."""
    if of in jobs.works:
        if names := [name for name in jobs.works[of] if name in g.kinds]:
            return names
        msg = f"no work of this class was measured here: {of}"
        raise DeviceError(msg, hint=f"in the profile {jobs.profile} it stands for {', '.join(jobs.works[of])}")
    return [
        name for name in g.kinds if name in g.alone.rates and g.kinds[name] != "stressor" and class_of(g, name) == of
    ]


def class_of(g: SuiteData, name: str) -> str:
    """The class of a tenant by its utilization alone, as a speed profile has it."""
    return class_by_utilization(busy_alone(g, name))


def busy_alone(g: SuiteData, name: str) -> float:
    """Utilization of a tenant alone without MPS."""
    return utilization_alone(m for m in g.cells if m.names == (name,) and m.mode == BASELINE)


# --- mixes that differ in how often tenants step, or in their number --------------------------------------------------


def changed(g: SuiteData, names: tuple[str, ...], other: tuple[str, ...]) -> str | None:
    """What is different in another mix of the same work; None if it has other work or is the same."""
    mine, theirs = ([g.work_of(name) for name in some] for some in (names, other))
    if set(mine) != set(theirs) or Counter(names) == Counter(other):
        return None
    changes = [f"{count_noun(len(other), 'tenant')} instead of {len(names)}"] if len(other) != len(names) else []
    changes += [pace(g, name) for name in dict.fromkeys(other) if name not in names]
    return ", ".join(changes) or "other numbers of each"


def pace(g: SuiteData, name: str) -> str:
    """How often a tenant steps."""
    about = json.loads(g.settings.get(name, "{}"))
    if rate := about.get("poisson"):
        return f"{name}: {rate:g} requests per second"
    return f"{name}: busy {100 * busy_alone(g, name):.0f} % of the time"
