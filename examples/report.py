"""Show what a sweep found: its table with 95 % intervals, its verdicts, its figure.

``python -m examples.report OUTPUT/results.jsonl`` prints the tables in Markdown; ``--figure FILE``
draws them, ``--curves FILE`` how scores rose on the way and ``--strengths FILE`` which layers and
heads chose to jump, where that was kept. Several files may be given: the verdicts of all are drawn
by ``--answers FILE``.

A score is the mean over the seeds ± their standard deviation, in percent where it is a share. A
change is against the base on the same seeds; its interval is that of new seeds and new examples at
once, of new seeds alone (Student's) where answers were not kept. It is bold where the interval does
not hold 0. Intervals are not corrected for their number; p-values of verdicts are.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from pandas import DataFrame

from examples.sweeps import figures
from examples.sweeps.definition import Sweep
from examples.sweeps.rows import (
    SECONDS,
    Row,
    Verdict,
    is_share,
    make_rows,
    make_verdicts,
    quoted_rows,
)
from examples.sweeps.store import Results, read_results
from examples.sweeps.strengths import draw_strengths, strengths_frame
from jat_graph.files import replace_unencodable
from jat_graph.viz import save_figure

NOTHING = "-"
WORDS = ("measure", "variant", "task", "verdict")  # columns of words


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, and draw what is asked for."""
    replace_unencodable()
    args = read_arguments(arguments)
    try:
        found = [read_results(path) for path in args.results]
        answers = []
        for results in found:
            rows = make_rows(results)
            answers += [(results.sweep.name, one) for one in make_verdicts(results.sweep, rows)]
            if args.figure is not None:
                save_figure(figures.draw_rows(results, rows), args.figure)
            if args.curves is not None:
                save_figure(figures.draw_curves(results), args.curves)
            if args.strengths is not None:
                save_figure(draw_strengths(results), args.strengths)
            typer.echo(f"## {results.sweep.name}: {results.sweep.title}\n")
            typer.echo("\n\n".join(markdown(frame) for frame in tables(results, rows)) + "\n")
        if args.answers is not None:
            wanted = args.variants
            some = [one for one in answers if not wanted or one[1].row.variant.name in wanted]
            save_figure(figures.draw_answers(some), args.answers)
    except (OSError, ValueError) as error:
        raise SystemExit(f"report: error: {str(error).splitlines()[0]}") from None


def tables(results: Results, rows: Sequence[Row]) -> Iterator[DataFrame]:
    """Yield the tables of a sweep as texts: scores, scores by number, verdicts, strengths."""
    sweep = results.sweep
    plain = [row for row in rows if row.number is None or row.paper is not None]
    if plain:
        frame = DataFrame([cells(sweep, row) for row in quoted_rows(sweep, plain)])
        yield frame.loc[:, (frame != NOTHING).any()]
    if numbered := [row for row in rows if row.number is not None]:
        yield numbered_frame(sweep, numbered)
    if verdicts := make_verdicts(sweep, rows):
        yield DataFrame([verdict_cells(one) for one in verdicts])
    if not (strengths := strengths_frame(results)).empty:
        yield strengths


def numbers(results: Results) -> DataFrame:
    """Return the numbers of the table, to go on with; shares are shares, not percent."""
    lines: list[dict[str, Any]] = []
    for row in make_rows(results):
        low, high = (row.change and row.change.interval) or (None, None)
        change = {"change": row.change and row.change.mean, "low": low, "high": high}
        scores = {"seeds": len(row.values), "mean": row.mean, "std": row.std, **change}
        names = ("task", "split", "metric", "paper", "paper_change", "threshold")
        own = {name: getattr(row, name) for name in names}
        lines.append({**own, "variant": row.variant.name, **scores})
    return DataFrame(lines)


def cells(sweep: Sweep, row: Row) -> dict[str, str]:
    """Return a row as texts."""
    change, ends = change_texts(row)
    unit, digits = (" %", 0) if row.metric == SECONDS else ("", 1)
    printed = row.paper_change
    return {
        "measure": row.place,
        "variant": row.variant.name,
        "score": score_text(sweep, row),
        "change": change,
        "95 % interval": ends,
        "paper": NOTHING if row.paper is None else f"{row.paper:.1f}",
        "paper's change": NOTHING if printed is None else f"{printed:+.{digits}f}{unit}",
        "ρ": NOTHING if row.threshold is None else f"{row.threshold:g}",
    }


def numbered_frame(sweep: Sweep, rows: Sequence[Row]) -> DataFrame:
    """Return the rows as texts, with a column for each number, as for each layer."""
    label = figures.number_label(sweep, rows[0])
    columns = sorted({row.number for row in rows if row.number is not None})
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        name = row.stem, row.variant.name
        line = lines.setdefault(name, dict(zip(("measure", "variant"), name, strict=True)))
        line |= {} if len(line) > 2 else {f"{label} {number}": NOTHING for number in columns}
        change = change_texts(row)[0]
        text = score_text(sweep, row)
        line[f"{label} {row.number}"] = text if change == NOTHING else f"{text} ({change})"
    return DataFrame(list(lines.values()))


def score_text(sweep: Sweep, row: Row) -> str:
    """Return mean ± standard deviation, and the number of seeds where some are missing."""
    if not row.values:
        return "quoted"
    if row.mean is None:
        return "undefined"
    text = number_text(row.mean, row.metric)
    text += "" if row.std is None else f" ± {number_text(row.std, row.metric)}"
    text += " s" if row.metric == SECONDS else ""
    seeds = len(row.values)
    missing = f" ({seeds} seed{'s' if seeds > 1 else ''})"
    return text + (missing if seeds < len(sweep.all_seeds) else "")


def number_text(value: float, metric: str) -> str:
    """Return a score, or its spread, in its metric's unit."""
    if metric == SECONDS:
        return f"{value:.1f}"
    return f"{100 * value:.1f}" if is_share(metric) else f"{value:.3g}"


def signed_text(value: float, metric: str) -> str:
    """Return a difference with its sign; of seconds the share of more time."""
    if metric == SECONDS:
        return f"{100 * value:+.0f} %"
    return f"{100 * value:+.1f}" if is_share(metric) else f"{value:+.3f}"


def change_texts(row: Row) -> tuple[str, str]:
    """Return a row's change, bold where it is shown, and its interval."""
    if row.change is None:
        return NOTHING, NOTHING
    text = signed_text(row.change.mean, row.metric)
    text = f"**{text}**" if row.change.is_shown else text
    ends = [signed_text(end, row.metric) for end in row.change.interval or ()]
    return text, " to ".join(ends) or NOTHING


def verdict_cells(one: Verdict) -> dict[str, str]:
    """Return a verdict as texts."""
    change, ends = change_texts(one.row)
    return {
        "measure": one.row.place,
        "variant": one.row.variant.name,
        "change": change.strip("*"),
        "95 % interval": ends,
        "p": p_text(one.p),
        "corrected": p_text(one.corrected),
        "verdict": one.said,
    }


def p_text(p: float | None) -> str:
    """Return a p-value."""
    return NOTHING if p is None else f"{p:.4f}" if p >= 0.0001 else "< 0.0001"


def markdown(frame: DataFrame) -> str:
    """Return a table in Markdown."""
    align = ["left" if column in WORDS else "right" for column in frame.columns]
    text: str = frame.to_markdown(index=False, colalign=align, disable_numparse=True)
    return text


def read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+", help="results.jsonl of sweeps")
    parser.add_argument("--figure", type=Path, help="PNG file for scores or changes")
    parser.add_argument("--curves", type=Path, help="PNG file for scores over steps")
    parser.add_argument("--strengths", type=Path, help="PNG file for learned strengths")
    parser.add_argument("--answers", type=Path, help="PNG file for the verdicts of all files")
    parser.add_argument("--variants", nargs="+", help="of these alone; default: of all")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
