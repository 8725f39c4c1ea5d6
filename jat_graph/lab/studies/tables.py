"""An experiment as a Markdown table, and what it shows in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jat_graph.lab.statistics import Difference
from jat_graph.lab.studies.grid import Grid
from jat_graph.lab.studies.kinds import kind_of
from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.studies.rows import (
    MEAN,
    Row,
    experiment_rows,
    group_rows,
    number_label,
    quoted_rows,
    reference_arm,
)
from jat_graph.lab.studies.strengths import STRENGTHS_LINE, strengths_frame
from jat_graph.lab.studies.verdicts import question_line, verdict_frame, verdicts
from jat_graph.lab.tables import NOTHING, SECONDS, markdown, show_change, show_score

if TYPE_CHECKING:
    from pandas import DataFrame


WORDS = ("measure", "arm")  # columns of words
QUOTED = "quoted"  # in the place of a score
_CHANCE = 0.05  # share of intervals that lie off 0 by chance


def experiment_markdown(results: Results, rows: Sequence[Row]) -> str:
    """Write an experiment down: its table, what it shows, and what it was made from."""
    if not rows:
        return "No cell is finished yet."
    lines = [*finding_lines(results, rows), *caption_lines(results, rows)]
    plain = [row for row in rows if row.number is None or row.paper is not None]
    shown = list(quoted_rows(results.grid, plain))
    tables = [markdown(text_frame(results, shown), WORDS)] if plain else []
    if numbered := [row for row in rows if row.number is not None]:
        tables.append(markdown(_numbered_frame(results, numbered), WORDS))
        where = f"In the table by {number_label(results.grid, numbered[0])}"
        lines.insert(0, f"{where}, changes are in brackets, without their intervals.")
    if found := verdicts(results, rows):
        tables.append(markdown(verdict_frame(found), (*WORDS, "verdict")))
        lines.append(question_line(results, found))
    if not (learned := strengths_frame(results)).empty:
        tables.append(markdown(learned, ("task", "arm")))
        lines.append(STRENGTHS_LINE)
    return "\n".join(["\n\n".join(tables), "", *(f"- {line}" for line in lines)])


def finding_lines(results: Results, rows: Sequence[Row]) -> list[str]:
    """Say what the intervals show, and how it compares with the paper."""
    single = [row for row in rows if row.task != MEAN]
    changes = [row.change for row in single if row.change and len(row.change.by_seed) > 1]
    found = [change.interval for change in changes if change.interval]
    lines = []
    if found:
        above, below = (sum(one.low > 0 for one in found), sum(one.high < 0 for one in found))
        alike = sum(one.low == one.high == 0 for one in found)
        equal = f", {alike} of them of arms that score alike with each seed" if alike else ""
        lines.append(
            f"Of {counted(len(found), 'interval')}, {above} {_lie(above)} above 0, {below} "
            f"{_lie(below)} below, and {len(found) - above - below} hold it{equal}. If no arm "
            f"differed, about {_CHANCE * (len(found) - alike):.2g} would lie off 0 by chance."
        )
    pairs = [
        (row.change.mean, row.paper_change)
        for row in single
        if row.change and row.paper_change and row.change.mean and row.metric != SECONDS
    ]
    if pairs:
        same = sum((ours > 0) == (printed > 0) for ours, printed in pairs)
        lines.append(f"The change has the sign of the paper's in {same} of {len(pairs)} places.")
    return [*lines, *_best_line(rows)]


def results_frame(results: Results) -> DataFrame:
    """Return the numbers of an experiment's table, to go on with.

    Args:
        results: What :func:`read_results` gives, finished or not.

    Returns:
        A row for each task, split, metric and arm: the number of seeds, ``mean`` and ``std`` of the
        scores, ``change`` against the base with ``low`` and ``high``, the ends of its 95 %
        interval, and the paper's numbers; shares are shares, not percent. NaN where there is none.
    """
    from pandas import DataFrame

    return DataFrame([_numbers(row) for row in experiment_rows(results)])


def text_frame(results: Results, rows: Sequence[Row]) -> DataFrame:
    """The rows as texts, with their units; a column that nobody fills is left out."""
    from pandas import DataFrame

    frame = DataFrame([_cells(results, row) for row in rows])
    return frame.loc[:, (frame != NOTHING).any()]


def _numbered_frame(results: Results, rows: Sequence[Row]) -> DataFrame:
    """The rows as texts, with a column for each number, as for each layer."""
    from pandas import DataFrame

    label = number_label(results.grid, rows[0])
    numbers = sorted({number for row in rows if (number := row.number) is not None})
    lines = []
    for group in group_rows(rows, lambda row: f"{row.stem}, {row.arm.name}"):
        found = {row.number: row for row in group}
        cells = {f"{label} {number}": _short(results, found.get(number)) for number in numbers}
        lines.append({"measure": group[0].stem, "arm": group[0].arm.name} | cells)
    return DataFrame(lines)


def _short(results: Results, row: Row | None) -> str:
    """A score and its change."""
    if row is None:
        return NOTHING
    change, _ = _change(row.change, row.metric)
    text = _score(results, row)
    return text if change == NOTHING else f"{text} ({change})"


def _numbers(row: Row) -> dict[str, Any]:
    mean, std = (None, None) if row.summary is None else (row.summary.mean, row.summary.std)
    change = row.change
    return {
        "task": row.task,
        "split": row.split,
        "metric": row.metric,
        "arm": row.arm.name,
        "seeds": len(row.values),
        "mean": mean,
        "std": std,
        "change": None if change is None else change.mean,
        "low": None if change is None else change.low,
        "high": None if change is None else change.high,
        "paper": row.paper,
        "paper_change": row.paper_change,
        "threshold": row.threshold,
    }


def _cells(results: Results, row: Row) -> dict[str, str]:
    change, low_high = _change(row.change, row.metric)
    unit, digits = (" %", 0) if row.metric == SECONDS else ("", 1)
    printed = row.paper_change
    return {
        "measure": row.place,
        "arm": row.arm.name,
        "score": _score(results, row),
        "change": change,
        "95 % interval": low_high,
        "paper": NOTHING if row.paper is None else f"{row.paper:.1f}",
        "paper's change": NOTHING if printed is None else f"{printed:+.{digits}f}{unit}",
        "ρ": NOTHING if row.threshold is None else f"{row.threshold:g}",
    }


def _score(results: Results, row: Row) -> str:
    if not row.values:
        return QUOTED
    if row.summary is None:
        return "undefined"
    text = show_score(row.summary.mean, row.metric)
    if row.summary.std is not None:
        text += f" ± {show_score(row.summary.std, row.metric)}"
    text += " s" if row.metric == SECONDS else ""
    missing = len(row.values) < len(results.grid.all_seeds)
    return text + (f" ({counted(len(row.values), 'seed')})" if missing else "")


def _change(change: Difference | None, metric: str) -> tuple[str, str]:
    """Show a change, bold if its interval is one over seeds and does not hold 0."""
    if change is None:
        return NOTHING, NOTHING
    text = show_change(change.mean, metric)
    if change.interval is None:
        return text, NOTHING
    low, high = (show_change(end, metric) for end in (change.interval.low, change.interval.high))
    shown = len(change.by_seed) > 1 and not change.interval.holds_zero
    return f"**{text}**" if shown else text, f"{low} to {high}"


def _best_line(rows: Sequence[Row]) -> Iterator[str]:
    """Say which arm changes the mean over the tasks most, here and in the paper."""
    means = [(row, row.change) for row in rows if row.task == MEAN and row.change is not None]
    if len(means) < 2 or any(row.metric == SECONDS for row, _ in means):
        return
    row, change = max(means, key=lambda pair: pair[1].mean)
    text, low_high = _change(change, row.metric)
    line = f"Of all arms {row.arm.name} changes the mean of the tasks to the highest: {text}"
    line += f" ({low_high})" if low_high != NOTHING else ""
    printed = [row for row, _ in means if row.paper_change is not None]
    if printed:
        best = max(printed, key=lambda row: row.paper_change or 0.0)
        line += f"; in the paper {best.arm.name}, {best.paper_change:+.1f}"
    yield f"{line}. It was chosen with the scores in view, so its change is rather too high."


def _lie(number: int) -> str:
    return "lies" if number == 1 else "lie"


def caption_lines(results: Results, rows: Sequence[Row]) -> list[str]:
    """Say what an experiment was made from, and how to read it."""
    grid = results.grid
    lines = [f"{source_line(results)} {_sizes(results)}", _reading(results, rows)]
    lines += _tuning_line(grid)
    if grid.paper.scores and grid.paper.model:
        where = f" ({grid.source})" if grid.source else ""
        lines.append(f"The paper's numbers{where} are those of {grid.paper.model}.")
    elif grid.source:
        lines.append(f"In the paper: {grid.source}.")
    if grid.paper.quoted:
        names = ", ".join(grid.paper.quoted)
        lines.append(f"Quoted from the paper and not run here: {names}.")
    lines += kind_of(grid).caption(results).remarks
    if grid.budget:
        lines.append(f"Budget: {grid.budget}.")
    return [*lines, _machine_line(results)]


def source_line(results: Results) -> str:
    """Name the model and the data that were really used, and the number of seeds."""
    caption = kind_of(results.grid).caption(results)
    counts = Counter((record.task, record.arm) for record in results.records).values()
    least, most = min(counts, default=0), max(counts, default=0)
    seeds = counted(most, "seed") if least == most else f"{least} to {most} seeds"
    return f"{caption.models}, {caption.data}, {seeds}."


def counted(number: int, what: str) -> str:
    """Write a number of things."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _sizes(results: Results) -> str:
    """Say how many examples each task was trained on and scored on, by arm if that differs."""
    parts = []
    for task in results.grid.tasks:
        arms: dict[str, dict[str, None]] = {}
        for record in results.records:
            if record.task == task and record.examples:
                sizes = (f"{_share(record, name)} ({name})" for name in record.examples)
                arms.setdefault(" and ".join(sizes), {})[record.arm] = None
        said = [f"{text} for {', '.join(arms[text])}" for text in arms] if len(arms) > 1 else arms
        parts += [f"{task} {', '.join(said)}"] if arms else []
    return f"Examples: {'; '.join(parts)}." if parts else ""


def _share(record: Record, split: str) -> str:
    """Say how many examples were used, and of how many if not all were."""
    used = record.examples[split]
    whole = record.all_examples.get(split, used)
    return f"{used:,}" if used == whole else f"{used:,} of {whole:,}"


def _tuning_line(grid: Grid) -> Iterator[str]:
    """Say how ρ was chosen, and for which arm if others took it over."""
    if grid.tuning is None or not any(arm.tune for arm in grid.arms):
        return
    tried = ", ".join(f"{threshold:g}" for threshold in grid.tuning.thresholds)
    line = (
        f"ρ is the one of {tried} that did best on {grid.tuning.held_out:.0%} of the training "
        "data, held out of a training on the rest with a seed that no cell has."
    )
    taken: dict[str, list[str]] = {}
    for arm in grid.arms:
        if isinstance(arm.tune, str):
            taken.setdefault(arm.tune, []).append(arm.name)
    for chooser, others in taken.items():
        line += (
            f" It was chosen for {chooser}, which that favours; {', '.join(others)} took it over."
        )
    yield line


def _reading(results: Results, rows: Sequence[Row]) -> str:
    """Say what scores, changes and intervals are."""
    grid = results.grid
    if SECONDS in grid.columns:
        return (
            "Times are means ± standard deviations over the seeds, whole trainings; a change is "
            "the share of more time, with Student's interval over the seeds."
        )
    bases = {reference_arm(grid, arm).name for arm in grid.arms}
    against = f"against {grid.base.name!r}" if len(bases) == 1 else "against the base at its place"
    compared = [len(row.change.by_seed) for row in rows if row.change is not None]
    if max((len(row.values) for row in rows), default=0) < 2:
        return (
            f"Scores are in percent, of one seed. A change is {against}; its interval is that of "
            "new examples alone, a paired bootstrap: it says nothing of other seeds, so that no "
            "change is bold. Intervals are not corrected for their number."
        )
    single = "; with one seed the interval is that of new examples alone, and the change not bold"
    of_what = (
        "of new seeds and new examples at once: a paired bootstrap over the examples, to which "
        "Student's spread of the seeds is added (that alone where there are no examples to "
        "resample)"
        if any(record.answers for record in results.records)
        else "of new seeds, Student's of the paired t test"
    )
    return (
        "Scores are means ± standard deviations over the seeds, in percent. A change is "
        f"{against}; its interval is that {of_what}. A change is bold where its interval does not "
        f"hold 0{single if 1 in compared else ''}. Intervals are not corrected for their number."
    )


def _machine_line(results: Results) -> str:
    """Name all machines and versions that cells ran with, and the time they took."""
    ran = [record.machine or results.machine for record in results.records]
    machines = " and ".join(dict.fromkeys(_machine(one) for one in ran))
    names = {
        name: [str(one.get(name, own)) for one in ran] for name, own in results.versions.items()
    }
    versions = ", ".join(
        f"{name} {' or '.join(dict.fromkeys(all_))}" for name, all_ in names.items()
    )
    hours = sum(record.seconds for record in results.records) / 3600
    what = kind_of(results.grid).caption(results).trained
    where = f"{machines}{_precision(results)}"
    line = f"Run on {where}; {hours:.1f} hours of training for the {what}; {versions}."
    if SECONDS in results.grid.columns and len({_machine(one) for one in ran}) > 1:
        line += " Times of different machines are compared: changes are partly theirs."
    return line


def _precision(results: Results) -> str:
    """Name the numbers that cells multiplied in, where each of them says so."""
    kept = list(dict.fromkeys(record.mixed_precision for record in results.records))
    names = ["fp32" if name == "no" else name for name in kept if name is not None]
    return f" in {' and '.join(names)}" if names and None not in kept else ""


def _machine(described: Mapping[str, str | int]) -> str:
    gpu = f"{described['gpu']}, " if "gpu" in described else ""
    cores = described.get("cores", "?")
    return f"{gpu}{described.get('processor', 'unknown processor')}, {cores} cores"
