"""Results as numbers, as a table in Markdown, and as a picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import cycle
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

WORDS = {"keys": "U", "rank_seconds": "ranking", "product_seconds": "product"}
WORDS |= {"count_seconds": "counting alone", "multiple": "times Q, K and key scores"}
WORDS |= {"extra_bytes": "extra", "peak_bytes": "peak memory", "our_bytes": "peak memory"}
WORDS |= {"their_bytes": "of the other", "memory_ratio": "memory ratio"}
WORDS |= {"their_cosine": "of the other"}
WORDS |= {"read_bytes": "bytes read", "their_read_bytes": "of the other"}
UNITS = {"seconds": ((1.0, " s"), (1e-3, " ms")), "bytes": ((2.0**30, " GiB"), (2.0**20, " MiB"))}
LABELS = {"seconds": "time in seconds", "bytes": "peak memory in MiB"}
LABELS |= {"ratio": "time over that of the other side"}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#222222", "#8c6d31")
LINE = 0.22  # inches, of a name below a panel
SCALES = {"seconds": 1.0, "bytes": 2.0**20, "ratio": 1.0}


def frame(results: dict[str, Any]) -> pd.DataFrame:
    """Results as numbers: ``ours``, ``theirs`` and ``ratio`` are medians; facts are columns."""
    empty = [f"outcome.{side}" for side in ("ours", "theirs", "ratio")]  # of what has no numbers
    found = pd.json_normalize(results["rows"]).drop(columns=empty, errors="ignore")
    return found.rename(columns=lambda name: re.sub(r"^outcome\.(facts\.)?|\.median$", "", name))


def sections(shown: Sequence[dict[str, Any]], benchmarks: dict[str, Any]) -> str:
    """Results as parts of a page: tables, how numbers grow, and what they ran on."""
    text, titles = "", []
    for results in shown:
        title = f"## {results['benchmark']}, {'GPU' if 'gpu' in results['machine'] else 'CPU'}"
        titles.append(title + ", memory kept by malloc" * ("malloc" in results["machine"]))
    for results, title in zip(shown, titles, strict=True):
        benchmark, machine = benchmarks[results["benchmark"]], results["machine"]
        named = f", {machine['processor']}" if titles.count(title) > 1 else ""
        lines = "\n".join(f"- {line}" for line in (*_slopes(results, benchmark), _ran(results)))
        parts = title + named, benchmark["claim"], _table(results, benchmark), lines
        text += "".join(f"\n{part}\n" for part in parts)
    return text


def _table(results: dict[str, Any], benchmark: dict[str, Any]) -> str:
    """A row for each point, comparison by comparison, by rising length."""
    keys = list(dict.fromkeys((row["what"], row["against"]) for row in results["rows"]))
    index = {key: number for number, key in enumerate(keys)}
    rows = sorted(results["rows"], key=lambda r: (index[r["what"], r["against"]], r["length"]))
    cells = pd.DataFrame([_cells(row, benchmark, results["settings"]["device"]) for row in rows])
    align = ["left" if name in ("our side", "against", "also") else "right" for name in cells]
    return cells.to_markdown(index=False, colalign=align, disable_numparse=True)


def _ran(results: dict[str, Any]) -> str:
    """What they ran on."""
    machine, dtype = dict(results["machine"]), results["settings"]["dtype"]
    gpu = f"{machine.pop('gpu')} with CUDA {machine.pop('cuda')}, " if "gpu" in machine else ""
    text = "Measured in {} on {}{processor}, {cores} cores, {threads} threads, {system}; {}."
    others = [f"{n} {v}" for n, v in machine.items() if f"{{{n}}}" not in text]
    return text.format(dtype, gpu, ", ".join(others), **machine)


def _slopes(results: dict[str, Any], benchmark: dict[str, Any]) -> list[str]:
    """How the numbers grow that the claim is about, by the first comparison that has them."""
    start, found = benchmark.get("growing_from", 0), {}
    over = f"from {start} on" if start else "over the lengths"
    numbers = frame(results).query(f"length >= {start}")
    for name in benchmark.get("growing", ()):
        bar = f" (bar: at most {benchmark['slope_bar']:g})" if "slope_bar" in benchmark else ""
        for (what, against), points in numbers.groupby(["what", "against"], sort=False):
            side = {"ours": what, "theirs": against}.get(name, f"{WORDS.get(name, name)}, {what}")
            points = points[points[name] > 0]
            if len(points) > 1 and side not in found:
                slope, _ = np.polyfit(np.log(points["length"]), np.log(points[name]), 1)
                wanted = bar if name == "ours" else ""
                found[side] = f"Log–log slope {over}, {side}: {slope:.2f}{wanted}."
    return list(found.values())


def _cells(row: dict[str, Any], benchmark: dict[str, Any], device: str) -> dict[str, str]:
    """A point in words."""
    outcome, facts = row["outcome"], dict(row["outcome"]["facts"])
    bars = [
        (most, number)
        for case in benchmark["cases"]
        if (case["what"], case["against"]) == (row["what"], row["against"])
        for most, shortest, longest, number in case.get("bars", {}).get(device, ())
        if shortest <= row["length"] <= longest
    ]
    unit = "bytes" if row["what"].endswith(", bytes") else benchmark.get("unit", "seconds")
    wanted = [f"≤ {most:.3g}" + " times" * (number != "ratio") for most, number in bars[:1]]
    shares = [f"{facts.pop(n):.0%}" if n in facts else "-" for n in ("joined", "taking_part")]
    more = {number: f" (bar: at most {most:g})" for most, number in bars[1:]}
    also = [f"{WORDS.get(n, n)} {_fact(n, fact)}{more.get(n, '')}" for n, fact in facts.items()]
    return {
        "our side": row["what"],
        "against": row["against"],
        "L": str(row["length"]),
        "ours": _spread(outcome["ours"], unit),
        "the other": _spread(outcome["theirs"], unit),
        "ratio": _spread(outcome["ratio"], ""),
        "bar": "".join(wanted) or "-",
        "joined": shares[0],
        "taking part": shares[1],
        "also": "; ".join([*also, *filter(None, [outcome["note"]])]),
    }


def _spread(spread: dict[str, Any] | None, unit: str) -> str:
    """A median and its quartiles in one unit."""
    if spread is None:
        return "-"
    (middle, low, high), word = _digits([spread[n] for n in ("median", "low", "high")], unit)
    return f"{middle}{word} ({low} to {high})"


def _fact(name: str, value: float | str) -> str:
    unit = name.rpartition("_")[2]
    if isinstance(value, str) or (isinstance(value, int) and unit not in UNITS):
        return value if isinstance(value, str) else f"{value:,}"
    (number,), word = _digits([value], unit)
    return f"{number}{word}"


def _digits(values: list[float], unit: str) -> tuple[list[str], str]:
    """Numbers in the multiple of their unit that fits the first of them."""
    large, small = UNITS.get(unit, ((1.0, ""), (1.0, "")))
    factor, word = large if abs(values[0]) >= large[0] else small
    scaled = [value / factor for value in values]
    return [f"{n:.0f}" if abs(n) >= 100 else f"{n:.3g}" for n in scaled], word


def draw(shown: Sequence[dict[str, Any]], benchmarks: dict[str, Any]) -> Figure:
    """Time or memory over the length, a panel for each benchmark; dashed are the other sides."""
    machines = dict.fromkeys(results["machine"]["processor"] for results in shown)
    panels = []
    for results in shown:
        benchmark, numbers = benchmarks[results["benchmark"]], frame(results)
        numbers = numbers[~numbers["what"].str.endswith(", bytes")].sort_values("length")
        title = results["benchmark"]
        if len(machines) > 1:
            title += f": {results['machine']['processor']}"
        for sides in benchmark.get("drawn", [("ours", "theirs")]):
            unit = "bytes" if sides[0].endswith("bytes") else benchmark.get("unit", "seconds")
            unit = "ratio" if sides == ["ratio"] else unit  # where one other side has many times
            looks = (("what", "-"), ("against", "--"))[: len(sides)]
            lines = {
                name: (line["length"], line[side] / SCALES[unit], look)
                for side, (column, look) in zip(sides[::-1], looks[::-1], strict=True)
                for name, points in numbers.groupby(column, sort=False)
                for line in [points.dropna(subset=[side]).drop_duplicates("length")]
                if len(line) > 1
            }
            panels += [(title, LABELS[unit], lines)] if lines else []
    if not panels:
        raise ValueError("--plot needs a comparison at two lengths or more, got none")
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    longest = max(len(lines) for *_, lines in panels)
    size = (2.22 * columns + 0.14, (2.1 + LINE * longest) * rows + 0.4)
    figure = Figure(size, layout="constrained")
    where = (
        f"Measured on {', '.join(machines)}. Whole lines: this library; dashed: the other sides."
    )
    figure.suptitle("\n".join(wrap(where, 40 * columns)), fontsize=8)
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis in axes[len(panels) :]:
        axis.remove()
    for axis, (title, label, lines) in zip(axes, panels, strict=False):
        for colour, (name, (lengths, values, look)) in zip(
            cycle(COLOURS), lines.items(), strict=False
        ):
            words = "\n".join(wrap(name, 28))
            axis.plot(lengths, values, look, marker=".", ms=4, lw=1.0, color=colour, label=words)
        axis.set_title(title, fontsize=8)
        axis.set_xlabel("tokens L", fontsize=8)
        axis.set_ylabel(label, fontsize=8)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.tick_params(labelsize=8, which="both")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.45, -0.24), frameon=False)
    return figure
