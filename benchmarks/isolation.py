"""The table of guarantees, from the probes measured on a card: `python -m benchmarks.isolation FOLDER`.

It writes the record that ships with the package (`src/fleetlab/gpu/stacks/isolation.json`) and the table of
`docs/isolation.md`, both from the same cells: no number is typed by hand.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from fleetlab.core.files import atomic_write
from fleetlab.gpu.bench.results.programs import JUDGES, MeasuredGuarantee, measured_guarantees, read_probes

HOME = Path(__file__).parents[1]
SHIPPED = HOME / "src" / "fleetlab" / "gpu" / "stacks" / "isolation.json"
PAGE = HOME / "docs" / "isolation.md"
BEGIN, END = "<!-- table: python -m benchmarks.isolation -->", "<!-- end of table -->"


def main() -> None:
    """Write the record and the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.isolation", description=__doc__)
    parser.add_argument("folder", type=Path, help="measurements/gpu-sharing.tar.gz/h200-isolation")
    options = parser.parse_args()
    about, cells = read_probes(options.folder)
    if about.get("rehearsal"):
        parser.error(f"{options.folder}: a rehearsal on the CPU: its results are meaningless")
    records = measured_guarantees(cells)
    folder = str(options.folder.resolve().relative_to(HOME))
    made = {"folder": folder, "card": about["card"]["name"], "date": about["written"][:10]}
    made |= {"records": [asdict(record) for record in records]}
    atomic_write(SHIPPED, (json.dumps(made, indent=1, ensure_ascii=False) + "\n").encode())
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    atomic_write(PAGE, f"{before}{BEGIN}\n{table(records)}\n{END}{after}".encode())
    print(table(records))


def table(records: list[MeasuredGuarantee]) -> str:
    """A section per guarantee, a row per mode."""
    parts = []
    for guarantee in JUDGES:
        rows = [r for r in records if r.guarantee == guarantee]
        lines = [f"| {r.mode} | {r.verdict} | {r.says} | {', '.join(f'`{cell}`' for cell in r.cells)} |" for r in rows]
        head = f"### {guarantee.capitalize()}\n\n| mode | | measured | cells |\n|---|---|---|---|\n"
        parts.append(head + "\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    main()
