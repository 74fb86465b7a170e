"""Put an analysis into a folder: tables, text, figures and a page, no file ever half-written."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

from fleetlab.bench.analysis.figures import drawn, png, svg
from fleetlab.bench.analysis.page import page
from fleetlab.bench.analysis.result import Analysis
from fleetlab.bench.analysis.text import full
from fleetlab.core import DeviceError, as_json

Tell = Callable[[str], None]
MISSING = "no figures: matplotlib is not installed; `pip install fleetlab[plots]` brings it"


def written(found: Analysis, out: Path, *, tell: Tell = lambda _line: None) -> list[Path]:
    """Write all of it; everything is made before the first file is written."""
    files: dict[str, bytes] = {f"tables/{name}.csv": t.write_csv().encode() for name, t in found.tables().items()}
    files["analysis.txt"] = full(found).encode()
    drawn = _figures(found, files, tell)
    files["analysis.html"] = page(found, drawn).encode()
    files["analysis.json"] = as_json(found).encode()
    try:
        for name, content in files.items():
            _put(out / name, content)
    except OSError as e:
        msg = f"cannot write the analysis: {e.filename or out}: {(e.strerror or str(e)).lower()}"
        raise DeviceError(msg, hint="name another folder with --out") from None
    return [out / name for name in files]


def _figures(found: Analysis, files: dict[str, bytes], tell: Tell) -> list[tuple[str, str, str]]:
    """As files, and as what the page shows."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        tell(MISSING)
        return []

    made = []
    for name, caption, figure in drawn(found):
        tell(f"drawing {name}")
        picture = svg(figure, name)
        files[f"figures/{name}.png"], files[f"figures/{name}.svg"] = png(figure), picture.encode()
        made.append((name, caption, picture))
    return made


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with beside.open("wb") as f:
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
