"""The page of measured results, made from the files that ``jat-graph bench`` wrote.

``python -m jat_graph.lab.speed.report docs/benchmarks`` reads every JSON file in that folder, and
writes ``docs/benchmarks.md`` and ``docs/pictures/benchmarks.png``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jat_graph.files import write_text
from jat_graph.lab.page import page, picture, result_files, run_command, section
from jat_graph.lab.speed import NAMES, find_benchmark
from jat_graph.lab.speed.picture import can_draw, draw_results
from jat_graph.lab.speed.results import Results, read_results
from jat_graph.lab.speed.tables import results_markdown
from jat_graph.viz import save_figure

HEADING = """\
# Benchmarks

Every figure here comes from a command that anyone can repeat:

<!-- not run: hours; tests/lab/speed runs each command on short inputs -->
```bash
jat-graph bench kernels
jat-graph bench heads --plot heads.png
jat-graph bench model
jat-graph bench memory
jat-graph bench graphs
jat-graph bench growth
jat-graph bench long
jat-graph bench decoding
jat-graph bench stones
```

`--device cuda` runs the same on a GPU in bfloat16, and `--lengths 512,4096` chooses other inputs. A
command first says about how long it takes and how much memory: by what such points took on two CPU
cores, how that grew with the length, and a step that is timed on your machine. On a GPU, where
nobody has measured, it says that it does not know. It prints a table and writes `bench-NAME.json`
after each point, so that it can be interrupted and started again. This page is made from such
files, which are in `docs/benchmarks`, by `python -m jat_graph.lab.speed.report docs/benchmarks`.

How it is measured:

- Both sides run in one process and in turns, ours, the other, ours, the other. Numbers are medians,
  with the quartiles in brackets. A ratio is our time over the other's, taken pair by pair: below 1
  ours is faster. Memory is measured in a fresh process for each side.
- Before anything is timed, results are checked: both sides must agree, or, where they compute
  different things, ours must equal the definition. If a check fails, nothing is printed.
- Inputs are random, and scaled so that the graphs have real work to do. At U = ⌈5 ln L⌉ keys, at
  least 60 % of the pairs are *joined*, and at least half of the tokens are *taking part* in the
  median key, in every head. With small scores the graph is empty, and everything is fast.
- Whole encoders of other designs have nothing to agree with. Ours must equal stock BERT under the
  dense mask of its pattern, and jump heads must change the loss when, and only when, they jump.
- A *bar* is what this library set out to reach, on two CPU cores or on a GPU of the H200 class.
"""
PICTURE_TEXT = "Time and memory over the length; dashed lines are the other sides"


def write_page(folder: str | Path) -> Path:
    """Write the page of all results in a folder, and the picture that goes with it."""
    folder = Path(folder)
    found = [read_results(path) for path in result_files(folder, ".json")]
    drawing = folder.parent / "pictures" / f"{folder.name}.png"
    drawable = [results for results in _ordered(found) if can_draw(results)]
    if drawable:
        save_figure(draw_results(drawable), drawing)
    path = folder.with_suffix(".md")
    write_text(path, render_page(found, f"pictures/{drawing.name}" if drawable else None))
    return path


def render_page(found: Sequence[Results], drawing: str | None) -> str:
    """The page of some results, with the picture of a path."""
    heading = HEADING if drawing is None else f"{HEADING}\n{picture(PICTURE_TEXT, drawing)}\n"
    titles = Counter(_title(results) for results in found)
    return page(heading, [_section(results, titles) for results in _ordered(found)])


def _section(results: Results, titles: Counter[str]) -> str:
    title, claim = _title(results), find_benchmark(results.benchmark).claim
    if titles[title] > 1:  # measured on several machines
        title += f", {results.machine.get('gpu', results.machine.get('processor'))}"
    return section(title, claim, results_markdown(results))


def _title(results: Results) -> str:
    title = f"{results.benchmark}, {'GPU' if results.settings['device'] == 'cuda' else 'CPU'}"
    return title + (", memory kept by malloc" if "malloc" in results.machine else "")


def _ordered(found: Sequence[Results]) -> list[Results]:
    """Results in the order of the benchmarks, those of the CPU first."""
    for results in found:
        find_benchmark(results.benchmark)  # names one that this version does not know
    return sorted(found, key=lambda one: (NAMES.index(one.benchmark), str(one.settings["device"])))


if __name__ == "__main__":
    run_command(write_page, "docs/benchmarks")
