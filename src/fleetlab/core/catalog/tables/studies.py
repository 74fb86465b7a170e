"""Tables of calibration, audits, validation, tuning and reproduction."""

from __future__ import annotations

from fleetlab.core.catalog.tables.table import described

GAPS = (
    "recorded mean wait | simulated mean wait | simulated mean wait error ± | calibrated mean wait | "
    "calibrated mean wait error ±"
)
NUMBER = "item | what | published | ours | on"
CALIBRATE = described(
    "calibrate",
    {
        "waits": (
            "a part of the jobs and a statistic",
            "part | statistic | jobs | recorded wait | simulated wait | simulated wait error ± | calibrated wait | "
            "calibrated wait error ±",
        ),
        "policies": (
            "a policy, the most likely first",
            "policy | log-likelihood | of starts | of choices | per job below the best | low | high | mean wait | "
            "verdict",
        ),
        "start-up latency": (
            "a class of jobs",
            "class | jobs | mean wait ± | P10 wait | median wait | P90 wait",
        ),
        "nodes": (
            "a GPU type",
            "GPU type | nodes | GPUs | most in use at once | nodes in use | nodes to spare | hidden nodes",
        ),
        "limits of users": (
            "a user",
            "user | jobs that waited | most GPUs at once | total wait | share of it at this limit",
        ),
        "by {class}": ("a class of the jobs held out", f"{{class}} | jobs | GPU-hours | {GAPS}"),
        "what this log can tell": ("a question", "question | can this log tell | because"),
    },
    {
        "part": "held out, or fitted",
        "statistic": "mean or a percentile",
        "recorded wait": ("what the log has", "s"),
        "simulated wait": ("before calibration", "s"),
        "simulated wait error": ("simulated less recorded", "s"),
        "calibrated wait": ("with all that was fitted", "s"),
        "calibrated wait error": ("calibrated less recorded", "s"),
        "log-likelihood": "of the recorded starts and choices, given this policy",
        "of starts": "its part from the errors of the starts",
        "of choices": "its part from which job was started among those that would have fitted",
        "per job below the best": "log-likelihood a job that is missing to the best policy",
        "policies: verdict": "best, same starts, not distinguishable, or worse",
        "start-up latency: mean wait": ("mean wait of jobs that found a free cluster: their start-up latency", "s"),
        "most in use at once": "most GPUs that the log has in use at one time",
        "nodes in use": "nodes that the log names; null: it names none",
        "nodes to spare": "nodes that are never in use; without their names, those that the most in use at once leaves",
        "hidden nodes": "nodes that the fit takes away, as if nobody might use them",
        "jobs that waited": "jobs that did not start at once",
        "most GPUs at once": "most GPUs that jobs of this user had at one time",
        "share of it at this limit": "part of the wait during which the user had that many: near 1 for a quota",
        "{class}": "GPU type, GPUs per instance, user, group, partition, or the hour of the day with its time zone",
        "GPU-hours": ("GPU time of the jobs in this row", "h"),
        "recorded mean wait": ("what the log has", "s"),
        "simulated mean wait": ("before calibration", "s"),
        "simulated mean wait error": ("simulated less recorded", "s"),
        "calibrated mean wait": ("with all that was fitted", "s"),
        "calibrated mean wait error": ("calibrated less recorded", "s"),
        "question": "what one would want to know of the cluster",
        "can this log tell": "yes, partly, or no",
        "because": "why",
    },
)
AUDIT = described(
    "audit",
    {
        "checks": ("a check", "check | examined | violations | remark"),
        "waits": (
            "a class of jobs",
            "class | jobs | recorded wait ± | simulated wait ± | wait change ± | P90 recorded wait | P90 simulated "
            "wait",
        ),
        "violations": ("a violation", "check | where | from | until | allocated | capacity | jobs"),
    },
    {
        "check": "what must hold: capacity, GPU types, no start before the submission, instances of an app per node",
        "examined": "how many nodes, jobs or instances were checked",
        "violations": "how many do not hold",
        "remark": "why a check could not be made, or what it assumes",
        "recorded wait": ("mean wait in the log", "s"),
        "simulated wait": ("mean wait in the simulation", "s"),
        "wait change": ("simulated less recorded", "s"),
        "P90 recorded wait": ("90 % of the recorded waits are at most so long", "s"),
        "P90 simulated wait": ("90 % of the simulated waits are at most so long", "s"),
        "where": "node, GPU type or job",
        "violations: allocated": "what the log has allocated there",
        "capacity": "what there is",
        "violations: jobs": "jobs that hold it",
    },
)
VALIDATE = described(
    "validate",
    {
        "verdicts": (
            "a part of the validation",
            "part | lines | counted | allowed misses | agrees | within chance | inconclusive | known difference | "
            "differs | verdict",
        ),
        "{part}": (
            "a number of that part",
            "case | metric | expected | simulated | low | high | difference % | verdict | explanation",
        ),
    },
    {
        "part": "name of the part",
        "lines": "numbers compared",
        "counted": "those that the verdict depends on",
        "allowed misses": "how many may miss by chance alone",
        "agrees": "lines whose interval holds the expected value",
        "within chance": "lines that miss it, as often as chance allows",
        "inconclusive": "lines whose interval is too wide to tell",
        "known difference": "lines that differ for a reason that is given",
        "differs": "lines that differ",
        "verdict": "of a part: passes or fails; of a line: one of the words above",
        "case": "what is simulated",
        "metric": "what is measured",
        "expected": "by theory, by the publication, or in the log",
        "simulated": "by the simulator",
        "difference %": ("simulated less expected, of the expected", "%"),
        "explanation": "why a line differs, where that is known",
    },
)
TUNE = described(
    "tune",
    {
        "policies": (
            "a policy, the best on held-out weeks first",
            "policy | preempts | training | held out | difference | low | high | tuned is",
        ),
        "weeks": ("a held-out week", "week | tuned | {best baseline} | difference"),
        "weights": ("a term of the tuned policy", "term | weight | meaning"),
        "trials": ("a trial", "trial | value | best so far | placement | {term}"),
        "settings": (
            "a combination of settings, with `--conf-range`, the best in training first",
            "rank | {setting} | jobs not run | training mean {goal} | mean {goal} | mean {goal} change ± | verdict",
        ),
        "by {team, partition, size or QOS}": (
            "a class of jobs, with `--conf-range`",
            "configuration | {class} | jobs | configured mean wait | mean wait | mean wait change ± | verdict",
        ),
    },
    {
        "preempts": "whether it preempts jobs",
        "training": "mean of the goal on the training weeks; null: not measured there",
        "held out": "mean of the goal on the held-out weeks",
        "difference": "tuned less this policy on held-out weeks; null: it is the tuned one",
        "tuned is": "better, worse, or not significantly different",
        "week": "number of the week",
        "tuned": "mean of the goal under the tuned policy",
        "{best baseline}": "mean of the goal under the best baseline",
        "weeks: difference": "the one less the other",
        "term": "what the policy weighs",
        "weight": "its weight; null: the placement is built in",
        "trial": "number of the trial",
        "value": "mean of the goal in training",
        "best so far": "the least value until then",
        "placement": "[placement](names.md#placements) of this trial",
        "{term}": "weight of this term in this trial; null: the placement does not use it",
        "rank": "place by the mean in training",
        "{setting}": "value of this setting",
        "jobs not run": "jobs that run as the site is configured, but not under these settings",
        "training mean {goal}": "mean of the goal for the jobs that the choice is made by",
        "mean {goal}": "mean of the goal for the jobs held out",
        "mean {goal} change": "difference to the site as it is configured",
        "configuration": "the site as it is configured, or with the best settings",
        "{class}": "team, partition, size or QOS of the jobs",
        "configured mean wait": ("mean wait as configured", "s"),
    },
)
REPRODUCE = described(
    "reproduce",
    {
        "studies": ("a study that can be reproduced", "name | study | needs | takes, on two cores"),
        "published numbers": ("a published number", f"{NUMBER} | verdict | why | rule | source"),
        "{verdict}": ("a published number with this verdict, in parts", f"{NUMBER} | why | rule | source"),
        "rules": ("a rule", "rule | a number is reproduced if it is"),
        "{table of the study}": ("as the study's own guide says", "{column}"),
    },
    {
        "name": "what `fleetlab reproduce` takes",
        "study": "title, authors and year",
        "needs": "files that it needs",
        "takes, on two cores": "how long it takes",
        "item": "figure, table or sentence of the paper, and the number in it",
        "published": "the published number",
        "ours": "ours, with its 95 % interval where it has one; null: it cannot be found here",
        "on": "data or machine that ours was found on",
        "verdict": "reproduced, different, or not possible",
        "why": "why it differs, or is not possible",
        "rule": "name of the rule that decides",
        "source": "where the paper has it",
        "a number is reproduced if it is": "the rule in words",
        "{column}": "a column of that study",
    },
)
RESULTS = (CALIBRATE, AUDIT, VALIDATE, TUNE, REPRODUCE)
