"""Let small decoders read fewer keys, and measure the loss on texts, or on facts far back.

``python -m examples.decoder_reading --models OUT/characters-0 … --json FILE --data-dir DIR`` lets
models of ``examples.decoders`` read held-out text, or answer questions, densely, with each method
of ``causal_reading`` and with clusters, and writes a line for each. What the file has is not
measured again, so that it may be stopped; ``--plot`` draws all that it has. Without models, tables
of it are printed.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor
from transformers import LlamaForCausalLM

from examples.causal_reading import METHODS, FewKeys, share_read
from examples.decoders import Batch, by_clusters, cut, read_texts, say, set_reading
from examples.options import example, option
from examples.tasks.base import read_lines
from examples.tasks.needle import KINDS, draw_test
from jat_graph.files import check_target, read_object
from jat_graph.viz import save_figure

PIECES = {"characters": (16, 1024), "words": (2, 4096)}  # of the held-out text
LENGTHS = (1024, 2048, 4096, 8192, 16384)  # of texts with facts
SIZES = ((16, 16), (16, 4), (16, 64), (64, 64), (16, 32), (16, 8))  # block, keys
OF_FACTS = ((16, 16), (16, 4))
AT_ONCE = 8192  # tokens
DENSE, CLUSTERS = "dense", "clusters"
COLOURS = dict(
    zip(
        (DENSE, *METHODS, CLUSTERS),
        "#222222 #8c959f #56b4e9 #e69f00 #009e73 #cc79a7 #222222 #0072b2 #0072b2".split(),
        strict=True,
    )
)


@dataclass
class Options:
    """What is asked for."""

    json: Path = option("file for the results, one line each; finished ones are kept")
    models: list[str] = option("folders of models from examples.decoders", [])
    plot: Path | None = option("picture of all results in the file", None)
    data_dir: Path | None = option("folder with Tiny Shakespeare and WikiText-2", None)
    tokens: int | None = option("tokens of a piece or text; default: all lengths", None)
    texts: int = option("texts with facts, of each kind and 1024 tokens; fewer if longer", 8)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Measure all models, and draw; yield a line for each reading."""
    for path in (args.json, args.plot):
        check_target(path)
    for folder in map(Path, args.models):
        run = read_object(folder / "run.json", "run")
        model = LlamaForCausalLM.from_pretrained(folder).eval()
        for case, batch in draw_cases(run["task"], args):
            rows = [row for _, row in read_lines(args.json)] if args.json.exists() else []
            own = [row for row in rows if (row["model"], row["case"]) == (folder.name, case)]
            done = {(row["method"], row["block"], row["keys"]) for row in own}
            for row in measure(model, batch, done):
                line = json.dumps({"model": folder.name, "seed": run["seed"], "case": case} | row)
                with args.json.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
                yield line
    every = [row for _, row in read_lines(args.json)] if args.json.exists() else []
    for row in every:
        if "-clusters-" in row["model"]:  # trained with them
            row["case"] = " by clusters ".join(row["case"].rsplit(" ", 1))
    if args.plot is not None:
        save_figure(draw(every), args.plot)
    if not args.models:
        yield from tables(every)


def draw_cases(task: str, args: Options) -> Iterator[tuple[str, Batch]]:
    """Yield what models of a task are asked, and its name."""
    if task != "needle":
        pieces, length = PIECES[task.partition("-")[0]]
        length = args.tokens or length
        text = read_texts(task, args.data_dir)[2]
        if len(text) <= pieces * length:
            wanted = f"more than {pieces * length} tokens that are held out"
            raise ValueError(f"{args.data_dir} must have {wanted}, got {len(text)}")
        yield f"{task} {length}", cut(text, torch.arange(pieces) * length, length)
        return
    for length in LENGTHS if args.tokens is None else (args.tokens,):
        for kind in KINDS:
            torch.manual_seed(length)
            texts = max(1, args.texts * 1024 // length)
            yield f"{kind} {length}", Batch(*draw_test(kind, texts, length))


def measure(
    model: LlamaForCausalLM, batch: Batch, done: set[tuple[str, int, int]]
) -> Iterator[dict[str, Any]]:
    """Yield what each reading loses against the dense one, the same tokens for all."""
    facts = batch.targets.min() < 0
    sizes = OF_FACTS if facts else SIZES
    every = ((method, *size) for size in sizes for method in (CLUSTERS, *METHODS))
    wanted = [own for own in ((DENSE, 0, 0), *every) if own not in done]
    if not wanted:
        return
    model.set_attn_implementation("sdpa")
    dense, usual = losses_of(model, batch)
    for method, block, keys in wanted:
        if method != DENSE:
            few = by_clusters(keys, block) if method == CLUSTERS else FewKeys(method, keys, block)
            set_reading(model, few)
        loss, said = (dense, usual) if method == DENSE else losses_of(model, batch)
        row = {"method": method, "block": block, "keys": keys, "loss": loss.mean().item()}
        row |= {"more": (loss - dense).mean().item()}
        row |= {"changed": (said != usual).double().mean().item()}
        if facts:
            right = said == batch.targets[batch.targets >= 0]
            row["right"] = right.view(len(batch.tokens), -1).double().mean(0).tolist()
        yield row


@torch.no_grad()
def losses_of(model: LlamaForCausalLM, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the losses of a batch, and the likeliest next tokens, in order."""
    losses, said = [], []
    size = max(1, AT_ONCE // batch.tokens.size(1))
    for own in zip(*(x.split(size) for x in batch), strict=True):
        logits, targets = say(model, Batch(*own))
        losses.append(F.cross_entropy(logits, targets, reduction="none"))
        said.append(logits.argmax(-1))
    return torch.cat(losses), torch.cat(said)


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a table a case: means over seeds, and how many these are where they are not three.

    Of a text it has the loss that is more than dense, in thousandths, its deviation, and the share
    of other next tokens, by keys and block; of facts the percent that are found, by length and
    keys.
    """
    cases: dict[str, Any] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        name, length = row["case"].rsplit(" ", 1)
        columns = [f"{row['keys']} of {row['block']}"]
        if "right" in row:
            keys = [row["keys"]] if row["keys"] else [size[1] for size in OF_FACTS]
            columns = [f"{length}, {own}" for own in keys]
        for column in columns if "right" in row or row["keys"] else ():
            cases[name][column][row["method"]].append(row)
    for name, own in cases.items():
        facts = "," in next(iter(own))
        compared = [column for column, methods in own.items() if methods.keys() != {DENSE}]
        order = sorted(compared, key=lambda column: [*map(int, re.findall(r"\d+", column))][::-1])
        yield f"{name:<28}" + "".join(f"{column:>{10 if facts else 18}}" for column in order)
        for method in COLOURS:
            cells = [own[column][method] for column in order]
            if any(cells):
                yield f"{method:<28}" + "".join(map(percent if facts else change, cells))


def percent(rows: list[dict[str, Any]]) -> str:
    """Return the percent of answers that are right, over seeds."""
    if not rows:
        return " " * 10
    few = "" if len(rows) == 3 else f" ({len(rows)})"
    return f"{100 * fmean(fmean(row['right']) for row in rows):6.0f}{few:<4}"


def change(rows: list[dict[str, Any]]) -> str:
    """Return by how much a loss is more than dense, and how many next tokens are others."""
    if not rows:
        return " " * 18
    more = [1000 * row["more"] for row in rows]
    deviation = stdev(more) if len(more) > 1 else 0.0
    few = "" if len(rows) == 3 else f" ({len(rows)})"
    text = f"{fmean(more):.1f} ±{deviation:.1f}{fmean(row['changed'] for row in rows):6.1%}{few}"
    return f"{text:>18}"


def draw(rows: list[dict[str, Any]]) -> Figure:
    """Draw losses over the share of pairs that are read, and right answers over the length."""
    panels: dict[str, Any] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        name, length = row["case"].rsplit(" ", 1)
        method = panels[f"facts {name}" if "right" in row else name][row["method"]]
        if "right" in row and row["keys"] in (0, OF_FACTS[0][1]):
            method[int(length)].append(100 * fmean(row["right"]))
        elif "right" not in row and row["block"] == SIZES[0][0]:
            method[100 * share_read(row["keys"], row["block"], int(length))].append(row["more"])
    rows = len(panels) // 3 + 1  # with a cell for the legend
    figure = Figure(figsize=(6.8, 2.3 * rows), layout="constrained")
    axes = figure.subplots(rows, 3, squeeze=False).ravel()
    ordered = sorted(panels.items(), key=lambda panel: panel[0].startswith("facts"))
    for axis, (name, methods) in zip(axes, ordered, strict=False):
        facts = name.startswith("facts")
        for method, colour in COLOURS.items():
            places = sorted(methods[method])
            own = [methods[method][place] for place in places]
            style = ".--" if method in ("oracle", METHODS[-1]) else ".-"
            axis.plot(places, [*map(fmean, own)], style, color=colour, label=method)
            axis.fill_between(places, [*map(min, own)], [*map(max, own)], color=colour, alpha=0.1)
        axis.set_title(name)
        axis.set_xscale("log", base=2 if facts else 10)
        ticks = sorted({place for own in methods.values() for place in own})[::2]
        axis.set_xticks(ticks, [f"{place:.2g}" if place < 100 else str(place) for place in ticks])
        axis.set_xticks([], minor=True)
        axis.set_xlabel("tokens of the text" if facts else "% of pairs that are read")
        axis.set_ylabel("% of answers right" if facts else "loss more than dense")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    axes[len(panels)].legend(*axes[0].get_legend_handles_labels(), loc="center", frameon=False)
    return figure


if __name__ == "__main__":
    main()
