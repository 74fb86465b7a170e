"""Draw docs/images/packages.svg: the packages of fleetlab one above the other, and one job's way through them."""

WIDTH, HEIGHT = 1000, 480
TITLE = "The packages of fleetlab, and one job's way through them"
ABOUT = (
    "Commands and the page call studies and live; studies join the packages traces, sim, describe, queueing, forecast, "
    "plan and report; all packages stand on core and stats. A job goes from a log through traces, core, sim and its "
    "ledger and studies to report. The package gpu stands beside, and knows the others through core and stats only."
)
JOINING, PACKAGE, NOUNS, GPU, WAY = "#eef3f8", "#e3f1e6", "#fff4dc", "#f3eaf7", "#b3261e"
# x, y, width, height, color, name, and what it is for
BOXES = [
    (20, 20, 640, 50, JOINING, "cli.py, commands/, web/", ["options to a scenario, one verb, print or draw"]),
    (20, 85, 310, 50, JOINING, "studies/", ["diagnose, compare, capacity, eta, sweep, …"]),
    (350, 85, 310, 50, JOINING, "live/", ["a running cluster, every minute"]),
    (20, 255, 640, 70, NOUNS, "core/ and stats/", [
        "Workload, Cluster, Policy, Scenario, Trace, Speed, Result; catalogs of orders, placements,",
        "reasons, resources; intervals and paired differences",
    ]),
    (690, 20, 290, 305, GPU, "gpu/", [
        "bench: suites and advice", "serving: servers and load", "monitor: samples of a card",
        "sharing: MPS, MIG: show, switch, restore", "stacks: configuration of clusters",
        "devices: what all of them use", "", "knows the other packages", "through core and stats only",
    ]),
]  # fmt: skip
PACKAGES = {
    "traces/": "log to Trace", "sim/": "loops", "describe/": "tables", "queueing/": "models", "forecast/": "demand",
    "plan/": "placement", "report/": "any Result",
}  # fmt: skip
STEPS = [
    ("traces/", "a row of a log,", "kept or rejected"),
    ("core/", "checked once:", "Workload.of"),
    ("core/", "Scenario: policy,", "load, window"),
    ("sim/engine", "start, end,", "nodes, GPUs"),
    ("sim/ledger", "a reason for", "each second"),
    ("studies/", "what would help,", "paired"),
    ("report/", "findings, figures,", "tables"),
]


def text(x, y, words, size=12, weight=400, color="#33424f"):
    style = f'font-size="{size}" font-weight="{weight}" fill="{color}"'
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" {style}>{words}</text>'


def box(x, y, width, height, color, name, lines):
    size = 14 if width > 100 else 13
    yield f'<rect x="{x:g}" y="{y}" width="{width:g}" height="{height}" rx="6" fill="{color}" stroke="#5b7083"/>'
    yield text(x + width / 2, y + 22, name, size, 600, "#14202b")
    yield from (text(x + width / 2, y + 41 + 17 * k, line) for k, line in enumerate(lines))


def packages():
    width = (640 - 8 * (len(PACKAGES) - 1)) / len(PACKAGES)
    for k, (name, use) in enumerate(PACKAGES.items()):
        yield from box(20 + k * (width + 8), 170, width, 60, PACKAGE, name, [use])


def way():
    step = 960 / len(STEPS)
    for k, (package, *lines) in enumerate(STEPS):
        x = 20 + (k + 0.5) * step
        if k:
            line = f'stroke="{WAY}" stroke-width="2" marker-end="url(#tip)"'
            yield f'<path d="M{x - step + 18:g},385 H{x - 20:g}" {line}/>'
        yield f'<circle cx="{x:g}" cy="385" r="16" fill="{WAY}"/>'
        yield text(x, 390, k + 1, 14, 700, "#ffffff")
        yield text(x, 425, package, 14, 600, "#14202b")
        yield from (text(x, 444 + 16 * i, line) for i, line in enumerate(lines))


def draw():
    named = f"<title>{TITLE}</title><desc>{ABOUT}</desc>"
    size = 'markerWidth="9" markerHeight="9" refX="7" refY="4" orient="auto"'
    tip = f'<marker id="tip" {size}><path d="M0,0 L8,4 L0,8 z" fill="{WAY}"/></marker>'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif">',
        named,
        f"<defs>{tip}</defs>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *(part for one in BOXES for part in box(*one)),
        *packages(),
        *way(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
