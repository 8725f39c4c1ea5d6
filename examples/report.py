"""Show what a sweep found: its table with 95 % intervals, its verdicts, its figure.

``python -m examples.report OUTPUT/results.jsonl`` prints the tables in Markdown; ``--figure FILE``
draws them, and ``--curves FILE`` how scores rose on the way, where that was kept. Several files may
be given: the verdicts of all are drawn by ``--answers FILE``, and ``--short`` prints a single table
of each, for ``docs/experiments.md``.

A score is the mean over the seeds ± their standard deviation, in percent where it is a share. A
change is against the base, or ``--against VARIANT``, on the same seeds; its interval, of new seeds
and new examples at once, of new seeds alone (Student's) where answers were not kept, is not
corrected for their number, as p-values of verdicts are. It is bold where it does not hold 0.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import typer
from pandas import DataFrame

from examples.sweeps import figures
from examples.sweeps.definition import Sweep
from examples.sweeps.rows import (
    MEAN,
    SECONDS,
    Row,
    Verdict,
    asked_metric,
    is_share,
    make_rows,
    make_verdicts,
    quoted_rows,
)
from examples.sweeps.store import Results, read_results
from jat_graph.core.files import replace_unencodable
from jat_graph.viz import save_figure

NOTHING = "-"
SIDES = ("queries", "keys", "values")  # of a head, each with strengths of its own
WORDS = ("measure", "variant", "task", "verdict")  # columns of words


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, and draw what is asked for."""
    replace_unencodable()
    args = read_arguments(arguments)
    try:
        found = [compared(read_results(path), args.against) for path in args.results]
        answers = []
        for path, results in zip(args.results, found, strict=True):
            rows = make_rows(results)
            answers += [(results.sweep.name, one) for one in make_verdicts(results.sweep, rows)]
            if args.figure is not None:
                save_figure(figures.draw_rows(results, rows), args.figure)
            if args.curves is not None:
                save_figure(figures.draw_curves(results), args.curves)
            typer.echo(f"## {results.sweep.name}: {results.sweep.title}\n")
            parts = map(markdown, tables(results, rows))
            if args.short:
                table = re.sub("-{2,}", "-", markdown(short_frame(results.sweep, rows)))
                parts = [re.sub(r" *\| *", "|", table), described(results.sweep, path)]
            typer.echo("\n\n".join(parts) + "\n")
        if args.answers is not None:
            wanted = args.variants
            some = [one for one in answers if not wanted or one[1].row.variant.name in wanted]
            save_figure(figures.draw_answers(some), args.answers)
    except (OSError, ValueError) as error:
        raise SystemExit(f"report: error: {str(error).splitlines()[0]}") from None


def compared(results: Results, name: str | None) -> Results:
    """Return results whose changes are against the variant of a name, and not the sweep's base."""
    sweep = results.sweep
    first = sweep.base if name is None else sweep.variant(name)
    others = (variant for variant in sweep.variants if variant != first)
    return replace(results, sweep=sweep.model_copy(update={"variants": (first, *others)}))


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


def short_frame(sweep: Sweep, rows: Sequence[Row]) -> DataFrame:
    """Return as texts what a question asks, else means over tasks, else the changes shown."""
    said = {(one.row.place, one.row.variant.name): one.said for one in make_verdicts(sweep, rows)}
    texts = dict[str, dict[str, str]]()
    for row in rows:
        plain = row.number is None or row.paper is not None
        if row.metric == asked_metric(sweep, row.task) if sweep.kind == "partners" else plain:
            text = re.sub(r" ± [\d.]+", "", full_text(sweep, row)).replace(" to ", ", ")
            text += f": {answer}" if (answer := said.get((row.place, row.variant.name))) else ""
            texts.setdefault(row.place, {})[row.variant.name] = text
    wanted = {place for place, _ in said} or {row.place for row in rows if row.task == MEAN}
    wanted = wanted or {row.place for row in rows if row.change and row.change.is_shown}
    wanted = wanted or {*[*texts][:2]}
    frame = DataFrame({place: text for place, text in texts.items() if place in wanted})
    usual = r", (all layers|test|accuracy(_\d+)?)\b"
    frame = frame.rename(columns=lambda place: re.sub(usual, "", place))
    down, frame = ("measure", frame.T) if len(frame) < len(frame.columns) else ("variant", frame)
    return frame.rename_axis(down).reset_index().fillna("")


def described(sweep: Sweep, path: Path) -> str:
    """Return the number of seeds, what repeats a sweep, and its picture."""
    own, seeds = path.with_suffix(".toml"), len(sweep.all_seeds)
    name, picture = own.as_posix() if own.exists() else sweep.name, f"experiments-{sweep.name}.png"
    return f"{seeds} seed{'s' * (seeds > 1)}, `{name}`, [picture](pictures/{picture})"


def numbers(results: Results) -> DataFrame:
    """Return the numbers of the table, to go on with; shares are shares, not percent."""
    lines: list[dict[str, Any]] = []
    for row in make_rows(results):
        low, high = (row.change and row.change.interval) or (None, None)
        own = vars(row) | {"variant": row.variant.name, "mean": row.mean, "std": row.std}
        own |= {"seeds": len(own.pop("values")), "low": low, "high": high}
        lines.append(own | {"change": row.change and row.change.mean})
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
        f"paper {sweep.paper.model}".strip(): NOTHING if row.paper is None else f"{row.paper:.1f}",
        "paper's change": NOTHING if printed is None else f"{printed:+.{digits}f}{unit}",
        "ρ": NOTHING if row.threshold is None else f"{row.threshold:g}",
    }


def numbered_frame(sweep: Sweep, rows: Sequence[Row]) -> DataFrame:
    """Return the rows as texts, with a column for each number, as for each layer."""
    texts = dict[tuple[str, str], dict[int | None, str]]()
    for row in rows:
        texts.setdefault((row.stem, row.variant.name), {})[row.number] = full_text(sweep, row)
    frame = DataFrame(texts).T.fillna(NOTHING).sort_index(axis="columns")
    frame = frame.add_prefix(f"{figures.number_label(sweep, rows[0])} ")
    return frame.rename_axis(["measure", "variant"]).reset_index()


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


def full_text(sweep: Sweep, row: Row) -> str:
    """Return a row's score with its change, and that with its interval."""
    change, ends = change_texts(row)
    text = score_text(sweep, row) + ("" if change == NOTHING else f", {change}")
    return text + ("" if ends == NOTHING else f" ({ends})")


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


def strengths_frame(results: Results) -> DataFrame:
    """Return what the variants have learned as texts, a line for each task and variant.

    Columns are means of the sizes of θ over heads and seeds, the largest in brackets, of each side
    and each layer from 0; ``alike`` is how θ of two seeds correlate, ``sizes alike`` their sizes.
    """
    learned: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in results.records:
        if record.content.get("strengths"):
            learned.setdefault(record.key[:2], []).append(record.content["strengths"])
    lines = []
    for (task, variant), records in learned.items():
        modules = [*records[0]]
        theta = np.array([[record[module] for module in modules] for record in records])
        layers = [re.search(r"(?<![^.])\d+(?![^.])", module) for module in modules]
        layer = np.array([int(found[0]) if found else 0 for found in layers])
        parts = {side: theta[:, :, index] for index, side in enumerate(SIDES)}
        parts |= {f"layer {n}": theta[:, layer == n] for n in np.unique(layer)}
        line = {"task": task, "variant": variant}
        for name, part in parts.items():
            line[name] = f"{np.abs(part).mean():.3f} ({np.abs(part).max():.2f})"
        moved = theta[:, theta.any(0)]  # what is fixed stays at 0
        for name, own in {"alike": moved, "sizes alike": np.abs(moved)}.items():
            pairs = [np.corrcoef(*both)[0, 1] for both in combinations(own, 2)]
            line[name] = f"{np.mean(pairs):+.2f}" if pairs else "-"
        lines.append(line)
    return DataFrame(lines).fillna("-")


def markdown(frame: DataFrame) -> str:
    """Return a table in Markdown."""
    align = ["left" if column in WORDS else "right" for column in frame.columns]
    return str(frame.to_markdown(index=False, colalign=align, disable_numparse=True))


def read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+", help="results.jsonl of sweeps")
    parser.add_argument("--figure", type=Path, help="PNG file for scores or changes")
    parser.add_argument("--curves", type=Path, help="PNG file for scores over steps")
    parser.add_argument("--answers", type=Path, help="PNG file for the verdicts of all files")
    parser.add_argument("--against", help="the variant to compare with; default: the first one")
    parser.add_argument("--short", action="store_true", help="print one table of each file")
    parser.add_argument("--variants", nargs="+", help="only these (default: all)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
