"""What dashboards ask of Prometheus."""

import json
import re

WORDS = re.compile(r'"[^"]*"|\$\w+')
# What PromQL itself has, of what is used.
LANGUAGE = {"sum", "max", "by", "rate", "increase", "histogram_quantile", "label_values", "e6"}


def used(expression):
    """Metrics and labels that an expression names."""
    plain = WORDS.sub("", re.sub(r"\[.*?\]", "", expression))
    braces = re.findall(r"(\w+)\s*=~?", " ".join(re.findall(r"\{(.*?)\}", plain)))
    grouped = re.findall(r"\w+", " ".join(re.findall(r"by \((.*?)\)", plain)))
    bare = re.sub(r"\{.*?\}|by \(.*?\)", "", plain)
    if asked := re.fullmatch(r"label_values\((\w+), (\w+)\)", expression):
        return {asked[1]}, {asked[2]}
    return set(re.findall(r"[A-Za-z_]\w*", bare)) - LANGUAGE, set(braces) | set(grouped)


def expressions(path):
    """What a board asks for, and the labels that its legends name."""
    board = json.loads(path.read_text("utf-8"))
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"], set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"], set()


def check_panels(path):
    """Every panel has a place and a number of its own."""
    board = json.loads(path.read_text("utf-8"))
    taken = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
