"""The page of the experiments, made from the files that ``jat-graph experiment`` wrote.

``python -m jat_graph.lab.studies.report docs/experiments`` reads every results file in that folder,
and writes ``docs/experiments.md`` and ``docs/pictures/experiments-NAME.png``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jat_graph.files import write_text
from jat_graph.lab.studies.picture import can_draw, draw_experiment
from jat_graph.lab.studies.results import Results, read_results
from jat_graph.lab.studies.rows import Row, experiment_rows
from jat_graph.lab.studies.tables import experiment_markdown
from jat_graph.viz import save_figure

# What a person wrote about all experiments together; the rest of the page is made from numbers.
FINDINGS_FILE = "findings.md"

# The order of the paper; experiments of other names come after.
ORDER = (
    *("glue", "superglue", "squad", "layers", "heads", "order", "depth", "runtime"),
    *("connections", "stepping-stones"),
)
HEADING = """\
# Experiments

What the JAT paper reports, repeated on the model and the data that are named below each table. Each
table and picture comes from a command that anyone can repeat with a model of their own:

<!-- not run: hours; tests/experiments runs small grids -->
```bash
jat-graph experiment layers --model sentence-transformers/all-MiniLM-L6-v2 --data-dir data \\
  --output layers
```

{doc}`howto_experiments` says how to copy and change a grid, how to use many processes or machines,
and how to see beforehand what a grid takes. This page is made from the results files, which are in
`docs/experiments`, by `python -m jat_graph.lab.studies.report docs/experiments`.
"""
NO_RESULTS = "\nNo results are here yet.\n"


def write_page(folder: str | Path) -> Path:
    """Write the page of all results in a folder, and the pictures that go with it."""
    folder = Path(folder)
    found = read_folder(folder)
    rows = {results.grid.name: experiment_rows(results) for results in found}
    pictures = folder.parent / "pictures"
    pictures.mkdir(exist_ok=True)
    for results in found:
        own = rows[results.grid.name]
        if can_draw(results, own):
            picture = pictures / f"{folder.name}-{results.grid.name}.png"
            save_figure(draw_experiment(results, own), picture)
    page = folder.with_suffix(".md")
    write_text(page, render_page(found, read_findings(folder), f"pictures/{folder.name}", rows))
    return page


def render_page(
    found: Sequence[Results],
    findings: str,
    pictures: str,
    rows: Mapping[str, Sequence[Row]],
) -> str:
    """Return the page of some results."""
    parts = [HEADING, f"\n{findings.strip()}\n" if findings.strip() else ""]
    for results in found:
        name = results.grid.name
        own = rows[name]
        parts.append(f"\n## {name}: {results.grid.title}\n")
        if can_draw(results, own):
            parts.append(f"\n![{results.grid.title}]({pictures}-{name}.png)\n")
        parts.append(f"\n{experiment_markdown(results, own)}\n")
    return "".join(parts if found else [*parts, NO_RESULTS])


def read_folder(folder: Path) -> list[Results]:
    """Read all results files of a folder, in the paper's order."""
    if not folder.is_dir():
        raise ValueError(f"the page needs a folder of results, got {folder}")
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        results = read_results(path)
        if results.grid.name != path.stem:
            raise ValueError(f"results {path} must be named {results.grid.name}.jsonl, as its grid")
        found.append(results)
    place = {name: number for number, name in enumerate(ORDER)}
    return sorted(found, key=lambda one: (place.get(one.grid.name, len(ORDER)), one.grid.name))


def read_findings(folder: Path) -> str:
    """Return what a person wrote about the experiments of a folder."""
    path = folder / FINDINGS_FILE
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    try:
        write_page(sys.argv[1] if len(sys.argv) == 2 else "docs/experiments")
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")
