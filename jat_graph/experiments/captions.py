"""What an experiment was made from, and how to read its table: sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from jat_graph.experiments.comparing import reference_arm
from jat_graph.experiments.curriculum import PRETRAINED, lessons_of, masters_one_step, mastery
from jat_graph.experiments.grid_parts import SECONDS
from jat_graph.experiments.results import Record, Results


def caption_lines(results: Results) -> list[str]:
    """Say what an experiment was made from, and how to read it.

    Args:
        results: The finished cells.

    Returns:
        Sentences.
    """
    grid = results.grid
    lines = [f"{source_line(results)} {_sizes(results)}", _reading(results)]
    if grid.tuning is not None and any(arm.tune for arm in grid.arms):
        tried = ", ".join(f"{threshold:g}" for threshold in grid.tuning.thresholds)
        lines.append(
            f"ρ is the one of {tried} that did best on {grid.tuning.held_out:.0%} of the training "
            "data, held out of a training on the rest with a seed that no cell has."
        )
    if grid.paper.scores:
        lines.append(f"The paper's numbers ({grid.source}) are those of {grid.paper.model}.")
    elif grid.source:
        lines.append(f"In the paper: {grid.source}.")
    if grid.kind == "stepping-stones":
        lines.append(_mastery_line(results))
    if grid.budget:
        lines.append(f"Budget: {grid.budget}.")
    return [*lines, _machine_line(results)]


def source_line(results: Results) -> str:
    """Name the model and the data that were really used, and the number of seeds.

    Args:
        results: The finished cells.

    Returns:
        One sentence.
    """
    data = "data by name" if results.data is None else f"data folder {results.data!r}"
    model = f"Model {results.model}"
    if results.grid.kind == "stepping-stones":
        model, data = _encoders(results), "texts made by the library"
    seeds = sorted({record.seed for record in results.records})
    return f"{model}, {data}, {counted(len(seeds), 'seed')}."


def _encoders(results: Results) -> str:
    """Name the models of stepping stones that cells were run with."""
    tasks = {record.task for record in results.records}
    lessons = ", which had lessons" if lessons_of(results.grid) else ""
    scratch = [f"Encoders from scratch{lessons}"] if tasks - {PRETRAINED} else []
    return "; ".join(scratch + [f"Model {results.model}"] * (PRETRAINED in tasks))


def counted(number: int, what: str) -> str:
    """Write a number of things.

    Args:
        number: The number.
        what: What one of them is called.

    Returns:
        ``"1 seed"``, ``"2 seeds"``.
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _mastery_line(results: Results) -> str:
    """Say what chance is, with which bases arms were compared, and with which they were not."""
    grid = results.grid
    left_out: dict[str, list[str]] = {}
    for record in results.records:
        if record.arm == grid.base.name and not masters_one_step(grid, record):
            left_out.setdefault(record.task, []).append(str(record.seed))
    where = "; ".join(f"{task}, seed {', '.join(seeds)}" for task, seeds in left_out.items())
    return (
        "Guessing gives 33 %; 67 % is within reach of a model that sees which of the two things "
        "stands higher in its chain, as the ends of a chain tell, and follows no step. Arms are "
        f"compared where {grid.base.name!r} answers at least {100 * mastery(grid):g} % of the "
        f"questions of one step to validate on{f', which leaves out {where}' if where else ''}."
    )


def _sizes(results: Results) -> str:
    """Say how many examples each task was trained on, and scored on."""
    parts = []
    for task in results.grid.tasks:
        record = next((record for record in results.records if record.task == task), None)
        if record is not None and record.examples:
            sizes = (f"{_share(record, name)} ({name})" for name in record.examples)
            parts.append(f"{task} {' and '.join(sizes)}")
    return f"Examples: {'; '.join(parts)}." if parts else ""


def _share(record: Record, split: str) -> str:
    """Say how many examples were used, and of how many if not all were."""
    used = record.examples[split]
    whole = record.all_examples.get(split, used)
    return f"{used:,}" if used == whole else f"{used:,} of {whole:,}"


def _reading(results: Results) -> str:
    """Say what scores, changes and intervals are."""
    grid = results.grid
    if SECONDS in grid.columns:
        return (
            "Times are means ± standard deviations over the seeds, whole trainings; a change is "
            "the share of more time, with Student's interval over the seeds."
        )
    bases = {reference_arm(grid, arm).name for arm in grid.arms}
    against = f"against {grid.base.name!r}" if len(bases) == 1 else "against the base at its place"
    seeds = Counter((record.task, record.arm) for record in results.records).values()
    if max(seeds, default=0) < 2:
        return (
            f"Scores are in percent, of one seed. A change is {against}; its interval is that of "
            "new examples alone, a paired bootstrap: it says nothing of other seeds, so that no "
            "change is bold. Intervals are not corrected for their number."
        )
    single = "; with one seed the interval is that of new examples alone, and the change not bold"
    return (
        "Scores are means ± standard deviations over the seeds, in percent. A change is "
        f"{against}; its interval is that of new seeds and new examples at once, conditional on "
        "nothing: a paired bootstrap over the examples, to which Student's spread of the seeds is "
        "added (that alone where there are no examples to resample). A change is bold where its "
        f"interval does not hold 0{single if min(seeds) < 2 else ''}. Intervals are not corrected "
        "for their number."
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
    what = "cells above"
    if results.grid.kind == "stepping-stones":
        what += ", without the lessons"
    line = f"Run on {machines}; {hours:.1f} hours of training for the {what}; {versions}."
    if SECONDS in results.grid.columns and len({_machine(one) for one in ran}) > 1:
        line += " Times of different machines are compared: changes are partly theirs."
    return line


def _machine(described: Mapping[str, str | int]) -> str:
    gpu = f"{described['gpu']}, " if "gpu" in described else ""
    cores = described.get("cores", "?")
    return f"{gpu}{described.get('processor', 'unknown processor')}, {cores} cores"
