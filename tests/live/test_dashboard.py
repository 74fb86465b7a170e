"""The dashboard of a cluster asks for metrics that are exported, with labels that they have."""

from pathlib import Path

from tests.deploy.boards import check_panels, expressions, used

from fleetlab.live.present import COUNTERS, GAUGES, HISTOGRAM, PREFIX, QUEUE

BOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "cluster.json"
LABELS = {PREFIX + name: set(labels) for name, (labels, _) in GAUGES.items()}
LABELS |= {f"{PREFIX}{name}_total": set(labels) for name, (labels, _) in COUNTERS.items()}
LABELS[f"{PREFIX}{HISTOGRAM}_bucket"] = {*QUEUE, "le"}


def test_the_dashboard_shows_what_is_exported_and_all_of_it():
    seen = set()
    for expression, legend in expressions(BOARD):
        metrics, wanted = used(expression)
        assert metrics, expression
        assert metrics <= LABELS.keys(), expression
        assert wanted | legend <= set().union(*(LABELS[name] for name in metrics)), expression
        seen |= metrics
    assert seen == LABELS.keys()


def test_panels_do_not_lie_on_each_other():
    check_panels(BOARD)


def test_names_of_metrics_end_in_their_unit_or_count_things():
    things = {
        "jobs",
        "gpus",
        "nodes",
        "events",
        "fragmented",
        "up",
        "ended",
        "polls",
        "failures",
        "rows",
        "seconds",
        "bytes",
    }
    assert {name.rsplit("_", 1)[-1] for name in (*GAUGES, *COUNTERS, HISTOGRAM)} <= things
