"""Measure which heads need exact attention: the loss of clusters, and the gain if some stay exact.

``python -m examples.exact_heads --data-dir DIR --output FILE.jsonl`` lets all-MiniLM-L6-v2 read
articles of WikiText-2 by clusters: the error of each head; what a tolerance chooses; and what its
states lose where some heads stay exact, or all read as many pairs more ("even"). Heads are chosen
on other articles. What the file has is not measured again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from pandas import DataFrame
from scipy.stats import spearmanr
from torch import Tensor

import jat_graph
from examples import questions, where_to_look
from examples.long_inputs import MINILM, load
from examples.options import example, option
from jat_graph import JatConfig
from jat_graph.viz import save_figure

SHARES, TOLERANCES, EXACT = (1 / 16, 1 / 8, 1 / 4), (0.05, 0.1, 0.2, 0.3), (1 / 12, 1 / 6, 1 / 3)
QUERIES, RANDOM = 64, 5  # that are measured of each head and text; orders of heads at random
SAID = {"even": "all heads read more keys", "tolerance": "keys by a tolerance"}
SAID |= {"gain": "exact: heads that gain most", "worst": "exact: heads of the largest errors"}
SAID |= {"random": "exact: heads at random"}


@dataclass
class Options:
    """What is asked for."""

    output: Path = option("file for the numbers, one line each; finished ones are kept")
    data_dir: Path | None = option("folder with WikiText-2", None)
    file: Path | None = option("a long text instead, .txt or .gz", None)
    model: str = option(f"folder or Hub name; {MINILM} is in its package", MINILM)
    texts: int = option("texts to choose on, and as many to measure on, for each seed", 4)
    seeds: int = 3
    length: int = option("tokens of a text", 512)
    plot: Path | None = option("picture of the numbers", None)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Measure what the file lacks; yield a line for each reading, and then a table."""
    model, tokenizer = load(args.model, args.length)
    number = 2 * args.texts * args.seeds
    ids = torch.tensor(where_to_look.read_tokens(tokenizer, args, number))
    sizes = {"texts": args.texts, "length": args.length}

    def wanted(row: questions.Row) -> bool:
        return {name: row[name] for name in sizes} == sizes

    rows = questions.read_runs(args.output, "numbers of exact_heads", wanted)
    for seed, both in enumerate(ids.view(args.seeds, 2, args.texts, 1, args.length)):
        own, others = ([{"input_ids": text} for text in texts] for texts in both)
        found = {(row["name"], row["size"]): row for row in rows if row["seed"] == seed}
        for name, size, texts, settings in plan(model, own, others, found, seed):
            if (name, size) not in found:
                row = {"seed": seed, **sizes, "name": name, "size": size}
                row |= measure(model, texts, settings(), name != "alone")
                questions.add_runs(args.output, [row])
                rows += [found.setdefault((name, size), row)]
                yield f"seed {seed}, {name} {size:.3g}: states lose {row['lost']:.4f}"
    frame = DataFrame(rows).replace({"name": r" \d$"}, "", regex=True)  # of random orders
    if args.plot is not None:
        save_figure(draw(frame), args.plot)
    yield from table(frame)


def plan(model: Any, own: list[Any], others: list[Any], found: Any, seed: int) -> Iterator[Any]:
    """Yield what is measured on which texts; what was found decides on later ones."""
    shape, least = (model.config.num_hidden_layers, model.config.num_attention_heads), min(SHARES)
    few, heads = partial(read_few, own[0]["input_ids"].numel()), torch.arange(math.prod(shape))
    keep = partial(keep_exact, few(least), shape)
    yield from (("map", share, own, partial(few, share)) for share in SHARES)
    yield from (("alone", int(head), own[:2], partial(keep, head)) for head in heads)
    for size in TOLERANCES:
        wanted = {"tolerance": size, "config": few(least).replace(keys=None)}
        yield "tolerance", size, others, partial(jat_graph.calibrate, model, own, **wanted)
        yield "even, tolerance", size, others, partial(few, found["tolerance", size]["share"])
    errors, drawn = torch.tensor(found["map", least]["errors"]), torch.Generator().manual_seed(seed)
    lost = torch.tensor([found["alone", int(head)]["lost"] for head in heads])
    orders = {"worst": (-errors).flatten().argsort(), "gain": lost.argsort(), "low layers": heads}
    orders |= {f"random {i}": torch.randperm(len(heads), generator=drawn) for i in range(RANDOM)}
    for name, share in product(orders, EXACT):
        yield name, share, others, partial(keep, orders[name][: math.ceil(share * len(heads))])
    yield "even", 0.0, others, partial(few, least)
    for share in EXACT:
        yield "even", share, others, partial(few, found["worst", share]["share"])


def read_few(length: int, share: float) -> JatConfig:
    """Return clusters by which a token reads a share of the keys."""
    return JatConfig.clustered(**where_to_look.tree_settings(length, int(share * length)))


def keep_exact(config: JatConfig, shape: tuple[int, int], heads: Tensor) -> JatConfig:
    """Return the settings with some heads dense, as counted through all layers."""
    exact = torch.zeros(math.prod(shape)).index_fill(0, heads, 1).view(shape).tolist()
    return config.replace(dense_below=[[math.inf if x else 0 for x in row] for row in exact])


def measure(model: Any, texts: list[Any], config: JatConfig, by_head: bool) -> dict[str, Any]:
    """Return what the states lose, 1 less their cosine, and errors and shares by layer and head."""
    report = jat_graph.fidelity(model, texts, config, queries=QUERIES)
    heads = DataFrame(map(vars, report.heads))
    row = {"share": heads["share"].mean(), "lost": 1 - report.token_cosine}
    row |= {"lost_by_means": 1 - report.embedding_cosine}
    maps = heads.pivot(index="layer", columns="head").round(3)
    names = ("error", "share") if by_head else ()
    return row | {f"{name}s": maps[name].to_numpy().tolist() for name in names}


def table(frame: DataFrame) -> Iterator[str]:
    """Yield what is lost in thousandths by seed, and what single heads gain over the median one."""
    lost = 1000 * frame.pivot_table("lost", ["name", "size"], "seed")
    share = 100 * frame.groupby(["name", "size"])["share"].mean()
    yield from lost.drop("alone").assign(share=share).round(2).to_string().splitlines()
    maps = frame[frame["name"] == "map"].groupby("seed")["errors"].first()
    for seed, alone in lost.loc["alone"].items():
        rank = spearmanr([*chain(*maps[seed])], -alone).statistic
        best = (alone.median() - alone).nlargest(4).rename(int).round(1).to_dict()
        yield f"seed {seed}: single heads gain {best}, rank correlation with errors {rank:.2f}"


def draw(frame: DataFrame) -> Figure:
    """Draw what is lost and read by layer and head, and what the states lose over what is read."""
    figure = Figure(figsize=(6.8, 6), layout="constrained")
    groups = frame.groupby(["name", "size"])
    axes = figure.subplot_mosaic("012;345;xxx", height_ratios=(1, 1, 1.6))
    maps = [("map", x, "errors", 0.3, f"error with 1/{1 / x:.0f} of the keys") for x in SHARES]
    maps += [("tolerance", x, "shares", 1, f"keys read, tolerance {x}") for x in TOLERANCES[:3]]
    for place, (name, size, what, most, title) in enumerate(maps):
        mean, axis = torch.tensor([*groups.get_group((name, size))[what]]).mean(0), axes[str(place)]
        image = axis.imshow(mean.numpy(), vmin=0, vmax=most, cmap="magma_r", aspect="auto")
        axis.set(xticks=range(0, mean.shape[1], 2), yticks=range(len(mean)), title=title)
        axis.set(xlabel="head", ylabel="layer")
        figure.colorbar(image)
    means = groups[["share", "lost"]].mean()
    for name, said in SAID.items():
        axes["x"].plot(means.loc[name, "share"], means.loc[name, "lost"], "o-", label=said, ms=4)
    axes["x"].set(yscale="log", xlabel="share of pairs read", ylabel="1 − cosine of states")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


if __name__ == "__main__":
    main()
