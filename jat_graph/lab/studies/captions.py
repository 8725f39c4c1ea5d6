"""What stands below an experiment's table: what it was made from, and how to read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from jat_graph.lab.studies.grid import Grid
from jat_graph.lab.studies.kinds import kind_of
from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.studies.rows import Row, reference_arm
from jat_graph.lab.tables import SECONDS


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
