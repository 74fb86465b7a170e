"""A result with a figure of every kind, names as the caller wants them, and a reader of pages."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

import polars as pl

from fleetlab import Estimate, Figure, Provenance, Result


@dataclass
class Found(Result):
    """A result whose every text is `name`, or begins with it."""

    name: str = "plain"
    estimates: list = field(default_factory=lambda: [Estimate("mean wait", 12.0, 9.0, 15.0, "s")])
    frames: dict = field(default_factory=dict)
    charts: dict = field(default_factory=dict)
    findings: tuple = ()
    notes: tuple = ()
    settings: dict = field(default_factory=dict)
    seed: int = 1

    @property
    def provenance(self):
        return Provenance("try", self.name, self.settings, self.seed)


def curve(kind="line", *, series=("a",), x=(1.0, 2.0, 4.0, 8.0), y=(0.1, 0.4, 0.8, 1.0), title="waits", **more):
    """A figure with the same points for each series, and an interval of a tenth."""
    rows = [(p, q, q - 0.05, q + 0.05, s) for s in series for p, q in zip(x, y, strict=True)]
    frame = pl.DataFrame(rows, schema=["x", "y", "low", "high", "series"], orient="row")
    return Figure(title, kind, frame, "wait, s", "share of jobs", "half wait less than 3 s", **more)


def every_kind(name="n"):
    """One figure of each kind; every text begins with `name`."""
    n = [f"{name}{k}" for k in range(3)]
    about = {"x": f"{name}x", "y": f"{name}y", "alt": f"{name}alt"}
    points = {"x": [1.0, 2.0, 3.0] * 2, "y": [1.0, 3.0, 2.0, 2.0, 1.0, 3.0], "series": [n[0]] * 3 + [n[1]] * 3}
    named = {**points, "x": n * 2, "low": [0.5] * 6, "high": [3.5] * 6}
    cells = {"x": n * 2, "y": [n[0]] * 3 + [n[1]] * 3, "value": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}
    return {
        f"{name}{kind}{k}": Figure(f"{name}title", kind, pl.DataFrame(told), **about)
        for k, (kind, told) in enumerate(
            [("line", points), ("step", points), ("dots", points), ("dots", named), ("bar", named), ("heat", cells)]
        )
    }


class Seen(HTMLParser):
    """What a page holds, as a parser sees it: elements with their attributes, and the texts of some."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.texts = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag, **about):
        wanted = {key.rstrip("_"): value for key, value in about.items()}
        return [a for t, a in self.tags if t == tag and all(a.get(k) == v for k, v in wanted.items())]

    def text(self, *tags):
        return " ".join(d for t, d in self.texts if (not tags or t in tags) and t not in {"script", "style"})
