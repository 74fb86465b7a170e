"""The words of a scenario as controls of the page: names, help, defaults and values come from core."""

from __future__ import annotations

from fleetlab.core.words import WORDS, Word, text
from fleetlab.web.messages import Choice, OptionMessage

NOT_SHOWN = ("trace", "cluster", "weights")  # the page has its own list of traces; weights are for policies in files
EXAMPLES = {
    "nodes": "T4 +20, V100 -25%",
    "quota": "16 or ada=16,bob=8",
    "queues": '{"queue":[{"name":"a","guaranteed":{"gpu":8}}]}',
    "recovery": "every=600,save=10,restart=30",
    "events": '[{"event":"faults","mtbf":86400,"mttr":600}]',
    "prices": '{"per_gpu_hour":2.5}',
    "until": "7d",
    "speed_classes": "app:bert=light,other=heavy",
    "latency": "30 or 1 GPU=5/6/9,gang=60",
}
# An address cannot name a file.
INLINE = {
    "events": "Node events (faults, outage, drain, spot, elastic) as JSON (default: none).",
    "prices": "Prices and powers as JSON (default: 1 per GPU-hour).",
    "queues": "Quotas, borrowing and limits of queues as JSON; or kueue, philly or slurm: by whose rules those of the "
    "trace are taken (default: those of the trace, if it tells them).",
    "speed": "Speed profile for the sharing modes in which jobs slow each other (default: h200).",
}


def page_options() -> list[OptionMessage]:
    """Return the options of a scenario on the page."""
    return [_option(word) for word in WORDS.values() if word.name not in NOT_SHOWN]


def _option(word: Word) -> OptionMessage:
    meanings = word.menu.meanings() if word.menu else {}
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
