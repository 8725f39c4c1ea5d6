"""Which heads need exact attention: what clusters lose in each, and what is won if some stay exact.

``python -m examples.exact_heads --data-dir DIR --output FILE.jsonl`` lets all-MiniLM-L6-v2 read
articles of WikiText-2 by clusters: the error of each head; what a tolerance chooses; and what the
model's states lose where some heads stay exact, or all heads read as many pairs more ("even").
What is chosen is chosen on other articles. What the file has is not measured again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from matplotlib.figure import Figure
from pandas import DataFrame
from scipy.stats import spearmanr
from torch import Tensor

import jat_graph
from examples.long_inputs import MINILM, load
from examples.options import example, option
from examples.tasks.base import read_lines, reading
from examples.where_to_look import Options as Texts
from examples.where_to_look import read_tokens
from jat_graph import JatConfig
from jat_graph.files import check_target
from jat_graph.viz import save_figure

SHARES, TOLERANCES, EXACT = (1 / 16, 1 / 8, 1 / 4), (0.05, 0.1, 0.2, 0.3), (1 / 12, 1 / 6, 1 / 3)
QUERIES, RANDOM = 64, 5  # that are measured of each head and text; orders of heads at random
LOOKS = {"even": "ko-", "gain": "C2s-", "worst": "C3^-", "low layers": "C0v-", "random": "C7x-"}
Batches: TypeAlias = list[dict[str, Tensor]]
Found: TypeAlias = dict[tuple[str, float], dict[str, Any]]


@dataclass
class Options:
    """What is asked for."""

    output: Path = option("file for the numbers, a line each; what it has is kept")
    data_dir: Path | None = option("folder with WikiText-2", None)
    file: Path | None = option("a long text in its place, .txt or .gz", None)
    model: str = option(f"folder or Hub name; {MINILM} is that of its package", MINILM)
    texts: int = option("to choose on, and as many to measure on; others for each seed", 6)
    seeds: int = 3
    length: int = option("tokens of a text", 512)
    plot: Path | None = option("picture of the numbers", None)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Measure what the file lacks; yield a line for each reading, and then a table."""
    for path in (args.output, args.plot):
        check_target(path)
    model, tokenizer = load(args.model, args.length)
    asked = Texts([args.model], args.data_dir, args.file, 2 * args.texts * args.seeds, args.length)
    ids = torch.tensor(read_tokens(tokenizer.name_or_path, asked))
    rows = [row for _, row in read_lines(args.output)] if args.output.exists() else []
    with reading(args.output, "numbers of exact_heads"):
        rows = [x for x in rows if (x["texts"], x["length"]) == (args.texts, args.length)]
    for seed, both in enumerate(ids.view(args.seeds, 2, args.texts, 1, args.length)):
        own, others = ([{"input_ids": text} for text in texts] for texts in both)
        found = {(row["name"], row["size"]): row for row in rows if row["seed"] == seed}
        for name, size, batches, settings in plan(model, own, others, found, seed):
            if (name, size) not in found:
                row = {"seed": seed, "texts": args.texts, "length": args.length, "name": name}
                row |= {"size": size} | measure(model, batches, settings(), name != "alone")
                with args.output.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                found[name, size] = row
                rows.append(row)
                yield f"seed {seed}, {name} {size:.3g}: states lose {row['lost']:.4f}"
    frame = DataFrame(rows)
    frame["name"] = frame["name"].str.replace(r" \d$", "", regex=True)
    yield from table(frame)
    if args.plot is not None:
        save_figure(draw(frame), args.plot)


def plan(
    model: Any, own: Batches, others: Batches, found: Found, seed: int
) -> Iterator[tuple[str, float, Batches, Callable[[], JatConfig]]]:
    """Yield what is measured on which texts; what was found decides on later ones."""
    shape, least = (model.config.num_hidden_layers, model.config.num_attention_heads), min(SHARES)
    few, heads = partial(read_few, own[0]["input_ids"].numel()), torch.arange(math.prod(shape))
    for share in SHARES:
        yield "map", share, own, partial(few, share)
    keep = partial(keep_exact, few(least), shape)
    for head in heads:
        yield "alone", int(head), own, partial(keep, head)
    for tolerance in TOLERANCES:
        wanted = {"tolerance": tolerance, "config": JatConfig.clustered(dense_below=0)}
        yield "tolerance", tolerance, others, partial(jat_graph.calibrate, model, own, **wanted)
        share = found["tolerance", tolerance]["share"]
        yield "even, tolerance", tolerance, others, partial(few, share)
    lost = torch.tensor([found["alone", int(head)]["lost"] for head in heads])
    errors, drawn = torch.tensor(found["map", least]["errors"]), torch.Generator().manual_seed(seed)
    orders = {"worst": (-errors).flatten().argsort(), "gain": lost.argsort(), "low layers": heads}
    orders |= {f"random {i}": torch.randperm(len(heads), generator=drawn) for i in range(RANDOM)}
    yield "even", 0.0, others, partial(few, least)
    for share in EXACT:
        for name, order in orders.items():
            yield name, share, others, partial(keep, order[: math.ceil(share * len(heads))])
        yield "even", share, others, partial(few, found["worst", share]["share"])


def read_few(length: int, share: float) -> JatConfig:
    """Return clusters by which a token reads a share of the keys, half of them around it."""
    block = max(1, int(share * length / 6))
    return JatConfig.clustered(keys=int(share * length) - 3 * block, block=block, dense_below=0)


def keep_exact(config: JatConfig, shape: tuple[int, int], heads: Tensor) -> JatConfig:
    """Return the settings with some heads dense, as counted through all layers."""
    exact = torch.zeros(math.prod(shape)).index_fill(0, heads, 1).view(shape).tolist()
    return config.replace(dense_below=[[math.inf if x else 0 for x in row] for row in exact])


def measure(model: Any, texts: Batches, config: JatConfig, by_head: bool) -> dict[str, Any]:
    """Return what the states lose, 1 less their cosine, and errors and shares by layer and head."""
    report = jat_graph.fidelity(model, texts, config, queries=QUERIES)
    heads = DataFrame(map(vars, report.heads))
    row = {"share": heads["share"].mean(), "lost": 1 - report.token_cosine}
    row |= {"lost_by_means": 1 - report.embedding_cosine}
    maps = heads.pivot(index="layer", columns="head").round(3)
    names = ("error", "share") if by_head else ()
    return row | {f"{name}s": maps[name].to_numpy().tolist() for name in names}


def table(frame: DataFrame) -> Iterator[str]:
    """Yield what is lost in thousandths by seed, and how well a head's error foretells its gain."""
    rows = frame[frame["name"] != "alone"]
    lost = 1000 * rows.pivot_table("lost", ["name", "size"], "seed")
    share = 100 * rows.groupby(["name", "size"])["share"].mean()
    yield from lost.assign(share=share).round(2).to_string().splitlines()
    for seed, own in frame.groupby("seed"):
        errors = torch.tensor(own.loc[own["name"] == "map", "errors"].iloc[0]).flatten()
        rank = spearmanr(errors, -own.loc[own["name"] == "alone", "lost"]).statistic
        yield f"seed {seed}: rank correlation of a head's error and its gain alone {rank:.2f}"


def draw(frame: DataFrame) -> Figure:
    """Draw what is lost and read by layer and head, and what the states lose over what is read."""
    figure = Figure(figsize=(13, 4.8), layout="constrained")
    groups, axes = frame.groupby(["name", "size"]), figure.subplots(2, 4)
    errors = [(f"error, {x:.3g} of the keys", ("map", x), "errors", 0.4) for x in SHARES]
    shares = [(f"keys read, tolerance {x}", ("tolerance", x), "shares", 1) for x in TOLERANCES]
    for axis, (title, group, what, most) in zip(axes.flat, errors + shares, strict=False):
        mean = torch.tensor([*groups.get_group(group)[what]]).mean(0)
        image = axis.imshow(mean, vmin=0, vmax=most, cmap="magma_r", aspect="auto")
        axis.set_title(title, fontsize=9)
        axis.set(xlabel="head", ylabel="layer")
        figure.colorbar(image)
    means = groups[["share", "lost"]].mean()
    for name, look in LOOKS.items():
        axes[1, 3].plot(means.loc[name, "share"], means.loc[name, "lost"], look, label=name, ms=4)
    axes[1, 3].set(yscale="log", xlabel="share of pairs read", ylabel="1 − cosine of states")
    axes[1, 3].legend(fontsize=7)
    return figure


if __name__ == "__main__":
    main()
