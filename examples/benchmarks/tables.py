"""Results as numbers, as a table in Markdown, and as a picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

# What a cell shows, and the words before it.
SHOWN = {"ratio": "", "multiple": "multiple ", "memory_ratio": "memory "}
SHOWN |= {"cosine": "cosine ", "their_cosine": "of the other ", "expected": "expected "}
SHOWN |= {"alike": "chosen alike "}
WORDS = {"extra_bytes": "extra memory", "our_bytes": "peak memory"}
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
    """Results as parts of a page: what is compared, then a table of each file and how it grows."""
    text = ""
    for name, group in groupby(shown, lambda results: str(results["benchmark"])):
        text += f"\n## {name}\n\n{benchmarks[name]['claim']}\n"
        for results in group:
            text += f"\n{_table(results, benchmarks[name])}\n\n{_ran(results, benchmarks[name])}\n"
    return text


def _table(results: dict[str, Any], benchmark: dict[str, Any]) -> str:
    """A row for each comparison, a column for each length."""
    cells: dict[tuple[str, str], dict[int, str]] = {}
    for row in results["rows"]:
        outcome, key = row["outcome"], (row["what"], row["against"])
        bars = [
            bar
            for case in benchmark["cases"]
            if (case["what"], case["against"]) == key
            for bar in case.get("bars", {}).get(results["settings"]["device"], ())
            if bar[1] <= row["length"] <= bar[2]
        ]
        texts = []
        for name, value in {"ratio": outcome["ratio"], **outcome["facts"]}.items():
            if name in SHOWN and value is not None:
                bar = next((most for most, *_, number in bars if number == name), None)
                texts.append(SHOWN[name] + _number(value, bar))
        texts = [*texts, *filter(None, [outcome["note"]])]
        cells.setdefault(key, {})[row["length"]] = "; ".join(texts)
    lengths = sorted({row["length"] for row in results["rows"]})
    lines = [["our side", "against", *map(str, lengths)], ["-"] * (2 + len(lengths))]
    lines += [[*key, *(found.get(n, "") for n in lengths)] for key, found in cells.items()]
    return "\n".join(f"|{'|'.join(line)}|" for line in lines)


def _number(value: Any, bar: float | None) -> str:
    """A number, its quartiles where it was measured again, and its bar, bold if missed."""
    spread = value if isinstance(value, dict) else dict.fromkeys(("median", "low", "high"), value)
    text, low, high = (f"{spread[name]:.3g}" for name in ("median", "low", "high"))
    text = f"**{text}**" if bar is not None and spread["median"] > bar else text
    text += f" ({low}–{high})" if spread["low"] < spread["high"] else ""
    return text if bar is None else f"{text}, ≤{bar:.3g}"


def _ran(results: dict[str, Any], benchmark: dict[str, Any]) -> str:
    """What they ran on, and how the numbers grow that are drawn over the length."""
    machine, start, found = results["machine"], benchmark.get("growing_from", 0), {}
    numbers = frame(results).query(f"length >= {start}")
    for name in benchmark.get("growing", ()):
        bar = f", ≤{benchmark['slope_bar']:g}" if "slope_bar" in benchmark else ""
        for (what, against), points in numbers.groupby(["what", "against"], sort=False):
            side = {"ours": what, "theirs": against}.get(name, f"{WORDS.get(name, name)}, {what}")
            points = points[points[name] > 0]
            if len(points) > 1 and side not in found:
                slope, _ = np.polyfit(np.log(points["length"]), np.log(points[name]), 1)
                found[side] = f"{side} {slope:.2f}{bar if name == 'ours' else ''}"
    grown = f" Log–log slope{f' from {start} on' if start else ''}: {'; '.join(found.values())}."
    malloc = ", memory kept by malloc" if "malloc" in machine else ""
    where = f"{machine.get('gpu', machine['processor'])}, {machine['cores']} cores{malloc}"
    return f"{results['settings']['dtype']} on {where}." + (grown if found else "")


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
            lines = {}
            looks = (("what", "-"), ("against", "--"))[: len(sides)]
            for side, (column, look) in reversed([*zip(sides, looks, strict=True)]):
                for name, points in numbers.groupby(column, sort=False):
                    line = points.groupby("length")[side].first().dropna() / SCALES[unit]
                    lines |= {name: (line, look)} if len(line) > 1 else {}
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
    for place, (title, label, lines) in enumerate(panels, start=1):
        axis = figure.add_subplot(rows, columns, place)
        axis.set_prop_cycle(color=COLOURS)
        for name, (values, look) in lines.items():
            words = "\n".join(wrap(name, 28))
            axis.plot(values, look, marker=".", ms=4, lw=1.0, label=words)
        axis.set_title(title, fontsize=8)
        axis.set_xlabel("tokens L", fontsize=8)
        axis.set_ylabel(label, fontsize=8)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.tick_params(labelsize=8, which="both")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.45, -0.24), frameon=False)
    return figure
