"""Write an analysis to a folder: tables, text, figures and page."""

from __future__ import annotations

from pathlib import Path

from fleetlab.bench.analysis.figures import draw_figures, png, svg
from fleetlab.bench.analysis.page import page
from fleetlab.bench.analysis.result import Analysis
from fleetlab.bench.analysis.text import full_text
from fleetlab.core import DeviceError, as_json
from fleetlab.devices.files import atomic_write
from fleetlab.devices.progress import Progress, silent

MISSING = "no figures: matplotlib is not installed; install it with `pip install fleetlab[plots]`"


def write_analysis(found: Analysis, out: Path, *, progress: Progress = silent) -> list[Path]:
    """Write all files; everything is rendered before the first file is written."""
    files: dict[str, bytes] = {f"tables/{name}.csv": t.write_csv().encode() for name, t in found.tables().items()}
    files["analysis.txt"] = full_text(found).encode()
    draw_figures = _figures(found, files, progress)
    files["analysis.html"] = page(found, draw_figures).encode()
    files["analysis.json"] = as_json(found).encode()
    try:
        for name, content in files.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            atomic_write(out / name, content)
    except OSError as e:
        msg = f"cannot write the analysis: {e.filename or out}: {(e.strerror or str(e)).lower()}"
        raise DeviceError(msg, hint="name another folder with --out") from None
    return [out / name for name in files]


def _figures(found: Analysis, files: dict[str, bytes], progress: Progress) -> list[tuple[str, str, str]]:
    """Render all figures as files, and as SVG for the page."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        progress(MISSING)
        return []

    made = []
    for name, caption, figure in draw_figures(found):
        progress(f"drawing {name}")
        picture = svg(figure, name)
        files[f"figures/{name}.png"], files[f"figures/{name}.svg"] = png(figure), picture.encode()
        made.append((name, caption, picture))
    return made
