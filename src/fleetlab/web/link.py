"""The address of the page: a scenario, the baseline it is compared with, the pinned runs, and what is measured.

A scenario is spelled as `Scenario.to_query()` spells it. The page adds `v`, `base`, `keep`, `submitted`, `view` and
`job`. `submitted=2d..5d` measures the jobs submitted in that time of the log; what is simulated stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlencode

from fleetlab.core import WorkloadError
from fleetlab.core.addresses import query_pairs, query_words
from fleetlab.core.names import clip, lookup
from fleetlab.core.scenario import Scenario
from fleetlab.core.schedulers import names_alone, scheduler_named
from fleetlab.core.site_change import SiteChange
from fleetlab.core.words import EVENT, WORDS, Word, text
from fleetlab.web.messages import Choice, OptionMessage
from fleetlab.web.traces import DEFAULT_TRACE, check_name

VERSION = "1"
MOST_PINNED = 8  # runs beside the baseline
VIEWS = ("what-if", "advice", "job", "trace")
OWN = ("v", "trace", "base", "keep", "submitted", "view", "job")
LONGEST_JOB = 200  # characters of the words that mean a job


@dataclass(frozen=True, slots=True)
class Link:
    """A whole address: the scenario shown, its baseline, the pinned runs, the view, and the job that it is of.

    `submitted` is as the word `window` is spelled: seconds of the log, which at another load pass at another rate.
    """

    now: Scenario
    base: Scenario
    pinned: tuple[Scenario, ...] = ()
    view: str = VIEWS[0]
    job: str = ""
    submitted: str = ""

    @property
    def between(self) -> tuple[float, float] | None:
        """When the jobs that are measured were submitted, in seconds of the log; None: at any time."""
        if not self.submitted:
            return None
        begin, _, end = self.submitted.partition("..")
        return float(begin), float(end or "inf")

    @classmethod
    def of(cls, query: str) -> Link:
        """Read an address, or say what is wrong with it.

        >>> Link.of("v=1&trace=builtin:2000:0&order=sjf&keep=load%3D1.2").pinned[0].load
        1.2
        """
        pairs = query_pairs(query)
        own = {name: [value for n, value in pairs if n == name] for name in OWN}
        if any(len(values) > (MOST_PINNED if name == "keep" else 1) for name, values in own.items()):
            msg = f"an address has each of {', '.join(OWN)} once, and `keep` at most {MOST_PINNED} times"
            raise WorkloadError(msg, hint="remove some of the pinned runs")
        if own["v"] not in ([], [VERSION]):
            msg = f"an address of another version: `{clip(own['v'][0])}`"
            raise WorkloadError(msg, hint=f"this page reads v={VERSION}")
        trace = check_name((own["trace"] or [DEFAULT_TRACE])[0])
        now = read_scenario(urlencode([pair for pair in pairs if pair[0] not in own]), trace)
        base, *pinned = (read_scenario(words, trace) for words in (*(own["base"] or [""]), *own["keep"]))
        view = lookup("view", (own["view"] or [VIEWS[0]])[0], VIEWS, error=WorkloadError)
        job, submitted = ((own[name] or [""])[0] for name in ("job", "submitted"))
        return cls(now, base, tuple(dict.fromkeys(pinned)), view, check_job(job), check_time(submitted))

    def query(self) -> str:
        """Return the address that `of` reads."""
        base = [("base", words)] if (words := words_query(self.base)) else []
        pinned = [("keep", words_query(scenario)) for scenario in self.pinned]
        view = [("view", self.view)] if self.view != VIEWS[0] else []
        part = [("submitted", self.submitted)] if self.submitted else []
        job = [("job", self.job)] if self.job else []
        own = [("v", VERSION), ("trace", str(self.now.data.name))]
        return urlencode([*own, *query_pairs(words_query(self.now)), *base, *pinned, *part, *view, *job])


def check_time(words: str) -> str:
    """Return when jobs were submitted as BEGIN..END in seconds, or say what is wrong with it.

    >>> check_time("1d..36h")
    '86400..129600'
    """
    try:
        return str(WORDS["window"].read(words))
    except WorkloadError:
        msg = f"`submitted` is BEGIN..END, times from the first submission on, not: `{clip(words)}`"
        raise WorkloadError(msg, hint="submitted=2d..5d, or submitted=2d.. for all from then on") from None


def check_job(words: str) -> str:
    """Return the words that mean a job, or say that they are too long."""
    if len(words) > LONGEST_JOB:
        msg = f"a job is named by at most {LONGEST_JOB} characters, not {len(words):,}"
        raise WorkloadError(msg, hint="its id in the log, #NUMBER, user=NAME or group=NAME")
    return words.strip()


def read_scenario(query: str, trace: str) -> Scenario:
    """Read a scenario of the trace of that name, which is not opened yet; files and code may not be named."""
    words = query_words(query, local=False)
    if "trace" in words:
        msg = "the baseline and the pinned runs are of the trace of the address: `trace` is given once"
        raise WorkloadError(msg, hint="remove `trace` from `base` and `keep`")
    estimate = words.pop("estimate", None)
    scenario = Scenario.of(trace, **words)
    if estimate is None:
        return scenario
    # It may be a series of the trace: whether there is one is checked where the trace is open.
    return replace(scenario, policy=scenario.policy.replace(estimate=estimate))


def words_query(scenario: Scenario) -> str:
    """Return a scenario as text that `read_scenario` reads: without its trace."""
    return urlencode([pair for pair in query_pairs(scenario.to_query()) if pair[0] != "trace"])


def change_of(link: Link) -> str:
    """Return what the scenario changes of the baseline, as text.

    >>> change_of(Link.of("load=1.3&nodes=T4+%2B20"))
    'Nodes T4 +20, load 1.3'
    >>> change_of(Link.of('scheduler={"kind":"site","conf":"bf_interval=1"}'))
    'With bf_interval=1'
    """
    changes = changed_words(link.base, link.now)
    parts = [f"{name} {value or 'by default'}" for name, value in changes.items() if name != "scheduler"]
    if "scheduler" in changes:
        option = link.now.policy.scheduler
        of_site = f"with {option.words}" if isinstance(option, SiteChange) else ""
        parts = [of_site or f"scheduler {changes['scheduler'] or 'by default'}", *parts]
    text = ", ".join(parts)
    return text[:1].upper() + text[1:]


def changed_words(base: Scenario, now: Scenario) -> dict[str, str]:
    """Return the words of a scenario that another has otherwise, as an address has them; empty: the default."""
    before, after = (dict(query_pairs(words_query(s))) for s in (base, now))
    return {name: after.get(name, "") for name in after | before if after.get(name) != before.get(name)}


# -- words of a scenario as options of the page ------------------------------------------------------------------------

NOT_SHOWN = ("trace", "cluster", "weights")  # the page has its own list of traces; weights are for policies in files
EXAMPLES = {
    "nodes": "T4 +20, V100 -25%",
    "quota": "16 or ada=16,queue:vision=8",
    "recovery": "every=600,save=10,restart=30",
    "events": '[{"event":"faults","mtbf":86400,"mttr":600}]',
    "prices": '{"per_gpu_hour":2.5}',
    "until": "7d",
    "speed_classes": "app:bert=light,other=heavy",
    "latency": "30 or 1 GPU=5/6/9,gang=60",
}
# An address cannot name a file.
INLINE = {
    "scheduler": "What schedules the jobs (default: as configured on your cluster, else a simple policy).",
    "events": "Node events (faults, outage, drain, spot, elastic) as JSON (default: none).",
    "prices": "Prices and powers as JSON (default: 1 per GPU-hour).",
    "speed": "Speed profile for the sharing modes in which jobs slow each other (default: h200).",
}


def page_options() -> list[OptionMessage]:
    """Return the options of a scenario on the page."""
    return [_option(word) for word in WORDS.values() if word.name not in NOT_SHOWN]


def schedulers_menu() -> dict[str, str]:
    """Return what may schedule the jobs beside the scheduler of the site, by the word of an address."""
    return {EVENT: "Simple policy"} | {
        name: f"{scheduler_named(name).title}, default settings" for name in names_alone()
    }


def _option(word: Word) -> OptionMessage:
    meanings = word.menu.meanings() if word.menu else schedulers_menu() if word.name == "scheduler" else {}
    if meanings and word.default is None:
        meanings = {"": "default"} | meanings
    choices: list[Choice] = [{"name": name, "meaning": meaning} for name, meaning in meanings.items()]
    return {
        "name": word.name,
        "kind": "flag" if isinstance(word.default, bool) else "choice" if choices else "text",
        "help": INLINE.get(word.name, word.help),
        "default": "" if word.default in (None, ()) else text(word.default),
        "example": EXAMPLES.get(word.name, ""),
        "choices": choices,
    }
