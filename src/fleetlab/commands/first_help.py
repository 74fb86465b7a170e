"""What `fleetlab --help` shows, and which command is meant by a word that is none."""

from __future__ import annotations

from difflib import get_close_matches

EVERYDAY = {
    "demo": "why jobs wait and what would fix it, on one screen",
    "web": "a page of that: a timeline, one job's story, what-ifs",
    "read": "read a log and save it as a trace (`fleetlab collect` gathers one)",
    "diagnose": "why jobs wait, and what would reduce it, one change at a time",
    "explain": "why one job waited, who held what it needed",
    "compare": "other policies, or another slurm.conf, on the same jobs",
    "capacity": "the smallest cluster that meets a goal such as `p90 wait < 600`",
    "eta": "when a job will start",
    "report": "results as one page that opens offline",
    "doctor": "what can run on this machine",
}
GROUPS = {
    "data": ("collect", "fetch", "synthesize", "show", "describe", "traces", "watch"),
    "simulate": ("simulate", "forecast", "plan", "defragment", "autoscale", "pack"),
    "trust": ("calibrate", "audit", "validate", "reproduce", "check"),
    "research": ("sweep", "runs", "tune", "solve", "model"),
    "GPU sharing": ("bench", "share"),
    "tools": ("anonymize", "mcp", "completion", "help", "version"),
}
MEANT = {  # what people type for a command
    "bench monitor": ("monitor", "nvidia-smi", "gpu-monitor", "top"),
    "bench stress": ("stress", "burn", "gpu-burn", "load-test"),
    "share": ("mps", "mig", "time-slicing", "timeslicing", "partition"),
    "bench": ("benchmark", "measure", "suite"),
    "diagnose": ("queue", "wait", "waits", "waiting", "slow", "bottleneck", "analyze", "analyse"),
    "explain": ("why", "job", "pending", "story", "reason"),
    "eta": ("when", "start", "predict", "squeue", "estimate"),
    "capacity": ("nodes", "size", "buy", "sizing", "slo", "scale"),
    "compare": ("what-if", "whatif", "policy", "policies", "conf", "diff", "vs"),
    "web": ("page", "ui", "gui", "serve", "dashboard", "server", "browser", "open"),
    "read": ("import", "load", "parse", "convert", "ingest", "sacct", "kubectl", "csv"),
    "describe": ("stats", "summary", "statistics", "profile", "users"),
    "show": ("info", "list", "jobs", "cat", "head"),
    "fetch": ("download", "get", "pull"),
    "synthesize": ("generate", "make", "fake", "synthetic"),
    "simulate": ("run", "replay", "sim", "schedule"),
    "doctor": ("check", "status", "install", "test", "gpus"),
    "calibrate": ("fit", "trust"),
    "mcp": ("assistant", "claude", "chat"),
    "watch": ("live", "prometheus", "grafana", "exporter", "metrics"),
    "forecast": ("demand", "future"),
    "sweep": ("study", "grid", "experiment"),
    "help": ("usage", "man", "commands"),
}
MEANT_OPTIONS = {  # what people type for an option, the first that the command has
    "--policy": ("--policies", "--order", "--placements"),
    "--scheduler-policy": ("--order", "--scheduler"),
    "--gpus": ("--nodes", "--cluster", "--request"),
    "--output": ("--out",),
    "--output-dir": ("--out",),
    "-o": ("--out",),
    "--config": ("--conf", "--scheduler"),
    "--slurm-conf": ("--conf", "--scheduler"),
    "--timezone": ("--zone",),
    "--tz": ("--zone",),
    "--columns": ("--map",),
    "--goal": ("--slo",),
    "--rate": ("--load",),
    "--target": ("--slo",),
    "--verbose": ("--full",),
    "--all": ("--full",),
    "--threads": ("--workers",),
    "--jobs": ("--workers",),
}
OVERVIEW = "Why are jobs waiting on your GPU cluster, and what would fix it?"
TRACE = (
    "TRACE is a log (sacct text, kubectl JSON, CSV, SWF, a folder of `fleetlab\n"
    "collect`), a saved trace, `sample` (a real Slurm) or `pai` (synthetic)."
)


def overview() -> str:
    """Return the help of the program: everyday commands first, then the others in groups."""
    lines = [OVERVIEW, "", "Usage: fleetlab COMMAND …     such as: fleetlab demo", ""]
    lines += [f"  {name:10} {what}" for name, what in EVERYDAY.items()]
    lines += ["", "More, by what they are for:"]
    lines += [f"  {group:12} {', '.join(names)}" for group, names in GROUPS.items()]
    lines += ["", TRACE, ""]
    lines += [
        "`fleetlab COMMAND --help` has options and examples. Answers fit a screen;",
        "--full prints all of them, --json one JSON object.",
    ]
    return "\n".join(lines)


def command_meant(word: str) -> str | None:
    """Return the command that is meant by a word, by its meaning or its spelling.

    >>> command_meant("monitor"), command_meant("diagnos"), command_meant("frobnicate")
    ('bench monitor', 'diagnose', None)
    """
    words = {typed: name for name, several in MEANT.items() for typed in several}
    words |= {name: name for name in (*EVERYDAY, *(one for names in GROUPS.values() for one in names))}
    folded = word.casefold().lstrip("-")
    near = [folded] if folded in words else get_close_matches(folded, words, 1, cutoff=0.7)
    return words[near[0]] if near else None


def option_meant(option: str, options: list[str]) -> str | None:
    """Return the option of a command that is meant by another.

    >>> option_meant("--policy", ["--order", "--load"]), option_meant("--nope", ["--order"])
    ('--order', None)
    """
    meant = next((name for name in MEANT_OPTIONS.get(option.partition("=")[0], ()) if name in options), None)
    near = get_close_matches(option.partition("=")[0], options, 1, cutoff=0.75)
    return meant or (near[0] if near else None)
