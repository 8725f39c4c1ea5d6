"""The page of the experiments, made from the files that ``jat-graph experiment`` wrote.

``python -m jat_graph.lab.studies.report docs/experiments`` reads every results file in that folder,
and writes ``docs/experiments.md`` and ``docs/pictures/experiments-NAME.png``, and what questions
say of stones as ``docs/pictures/experiments-answers.png``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jat_graph.files import write_text
from jat_graph.lab.page import page, picture, result_files, run_command, section
from jat_graph.lab.studies.answers import TITLE, Answer, draw_answers, stones_answers
from jat_graph.lab.studies.drawings import drawings_of
from jat_graph.lab.studies.results import Results, read_results
from jat_graph.lab.studies.rows import Row, experiment_rows
from jat_graph.lab.studies.tables import experiment_markdown
from jat_graph.viz import save_figure

# What a person wrote about all experiments together; the rest of the page is made from numbers.
FINDINGS_FILE = "findings.md"

# The order of the paper; experiments of other names come after.
ORDER = (
    *("glue", "superglue", "squad", "layers", "heads", "order", "depth", "runtime"),
    *("connections", "stepping-stones", "partners", "far-recall", "neighbours", "width"),
    *("pretrained", "long", "scratch"),
)
HEADING = """\
# Experiments

What the JAT paper reports, repeated on the model and the data that are named below each table. Each
table and picture comes from a command that anyone can repeat with a model of their own:

<!-- not run: hours; tests/lab/studies runs small grids -->
```bash
jat-graph experiment layers --model sentence-transformers/all-MiniLM-L6-v2 --data-dir data \\
  --output layers
```

{doc}`howto_experiments` says how to copy and change a grid, how to use many processes or machines,
and how to see beforehand what a grid takes. This page is made from the results files, which are in
`docs/experiments`, by `python -m jat_graph.lab.studies.report docs/experiments`.
"""
ANSWERS_TEXT = """\
A line is a task that a grid asks its question of; 1 is as large a gain as a yes takes. Verdicts are
those of the tables below, which say what they go by and have the other arms, stones without values
among them. Of bits, fewer are a gain. Question 5, which scripts ask, has no line, and an interval
of three seeds may leave what scores can be."""


def write_page(folder: str | Path) -> Path:
    """Write the page of all results in a folder, and the pictures that go with it."""
    folder = Path(folder)
    found = read_folder(folder)
    rows = {results.grid.name: experiment_rows(results) for results in found}
    pictures = folder.parent / "pictures"
    pictures.mkdir(exist_ok=True)
    for results in found:
        for one in drawings_of(results, rows[results.grid.name]):
            save_figure(one.draw(), pictures / f"{folder.name}-{one.name}.png")
    if answers := _answers(found, rows):
        save_figure(draw_answers(answers), pictures / f"{folder.name}-answers.png")
    path = folder.with_suffix(".md")
    write_text(path, render_page(found, read_findings(folder), f"pictures/{folder.name}", rows))
    return path


def render_page(
    found: Sequence[Results],
    findings: str,
    pictures: str,
    rows: Mapping[str, Sequence[Row]],
) -> str:
    """The page of some results."""
    heading = f"{HEADING}\n{findings.strip()}\n" if findings.strip() else HEADING
    sections = [_section(one, rows[one.grid.name], pictures) for one in found]
    if _answers(found, rows):
        drawn = picture("Gains with 95 % intervals", f"{pictures}-answers.png")
        sections.insert(0, section(TITLE, drawn, ANSWERS_TEXT))
    return page(heading, sections)


def _answers(found: Sequence[Results], rows: Mapping[str, Sequence[Row]]) -> list[Answer]:
    return stones_answers((results, rows[results.grid.name]) for results in found)


def _section(results: Results, rows: Sequence[Row], pictures: str) -> str:
    drawn = [picture(one.title, f"{pictures}-{one.name}.png") for one in drawings_of(results, rows)]
    name, title = results.grid.name, results.grid.title
    return section(f"{name}: {title}", *drawn, experiment_markdown(results, rows))


def read_folder(folder: Path) -> list[Results]:
    """All results files of a folder, in the paper's order."""
    found = []
    for path in result_files(folder, ".jsonl"):
        results = read_results(path)
        if results.grid.name != path.stem:
            raise ValueError(f"results {path} must be named {results.grid.name}.jsonl, as its grid")
        found.append(results)
    place = {name: number for number, name in enumerate(ORDER)}
    return sorted(found, key=lambda one: (place.get(one.grid.name, len(ORDER)), one.grid.name))


def read_findings(folder: Path) -> str:
    """What a person wrote about the experiments of a folder."""
    path = folder / FINDINGS_FILE
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    run_command(write_page, "docs/experiments")
