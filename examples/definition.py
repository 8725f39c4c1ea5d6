"""Find for which δ and p Definition 3.1 of the JAT paper holds in each head.

``python -m examples.definition --model PATH --data-dir DIR --output definition.png`` lets a model
as it comes read texts of WNUT-17. By the definition words i and j are similar with regard to k if,
where S_ik ≥ p and S_jk ≥ p, S_ij ≥ p has a probability above δ, and elsewhere of at most 1 − δ. p
is mean + c · std of a text, and probabilities are shares of ordered triples of different words.
Asked of scores, as in the paper, and of attention probabilities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import torch
from matplotlib.figure import Figure
from transformers import AutoModel, AutoTokenizer

from examples.data import draw_rows
from examples.options import example, option
from examples.sweeps.connections import ALL, Links, TypedText, count_links, read_words
from examples.tasks import get_task
from jat_graph.core.files import write_text
from jat_graph.viz import save_figure

SPREADS = (-0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)  # c
DELTAS = tuple(round(0.05 * step, 2) for step in range(1, 20))
SHARES = {"both": "where both look at a third", "otherwise": "elsewhere", "any": "of all pairs"}


@dataclass
class Options:
    """What is asked for."""

    model: str = option("folder or Hub name of a pretrained model")
    output: Path = option("PNG file to write")
    data_dir: Path | None = option("folder of WNUT-17 (default: Hub)", None)
    texts: int = option("to read", 200)
    json: Path | None = option("file for the numbers of each head", None)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Measure and draw; yield the means over the heads."""
    rows = get_task("wnut17").load(args.data_dir, ["validation"])["validation"]
    texts = [TypedText(r["tokens"], [None] * len(r["tokens"])) for r in draw_rows(rows, args.texts)]
    found = {links: measure(args.model, texts, links) for links in get_args(Links)}
    save_figure(draw(found), args.output)
    heads = pd.concat(found, names=["links"])
    if args.json is not None:
        content = heads.reset_index().to_json(orient="split", index=False, double_precision=4)
        write_text(args.json, content + "\n")
    means = heads.assign(fit=holds(heads, 0.5)).groupby(["links", "c"]).mean()
    yield means.to_string(float_format="%.3f")


def measure(model: str, texts: Iterable[TypedText], links: Links) -> pd.DataFrame:
    """Return shares of pairs above p by c, layer and head, as ``SHARES`` says; NaN of no pairs."""
    loaded, tokenizer = AutoModel.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    counts, size = torch.zeros(()), (0, 0)
    for types, rows in read_words(loaded, tokenizer, texts, 128, links):
        size, heads = rows.shape[:2], rows.flatten(0, 1).unsqueeze(1)  # each as if it were a layer
        found = [count_links(heads, types, spread) for spread in SPREADS]
        names = [f"{name}, {ALL}" for name in ("δ", "otherwise")]
        counts = counts + torch.stack([torch.stack([of[name] for name in names]) for of in found])
    if not counts.dim():
        raise ValueError("texts must have one of two words, got none")
    both, otherwise = counts.double().unbind(1)  # [c, layers · H, 2]
    parts = zip(SHARES, (both, otherwise, both + otherwise), strict=True)
    shares = {name: (some[..., 0] / some[..., 1]).flatten().numpy() for name, some in parts}
    places = pd.MultiIndex.from_product([SPREADS, *map(range, size)], names=["c", "layer", "head"])
    return pd.DataFrame(shares, places)


def holds(shares: pd.DataFrame, delta: float) -> pd.Series:
    """Tell which rows fit the definition."""
    return (shares["both"] > delta) & (shares["otherwise"] <= 1 - delta)


def draw(found: dict[str, pd.DataFrame]) -> Figure:
    """Draw the share of heads that fit over δ and p, and both shares over p."""
    figure = Figure(figsize=(6.8, 2.5 * len(found)), layout="constrained")
    axes: Any = figure.subplots(len(found), 2, squeeze=False)
    for (left, right), (links, shares) in zip(axes, found.items(), strict=True):
        grid = [holds(shares, delta).groupby("c").mean() for delta in DELTAS]
        mesh = left.pcolormesh(SPREADS, DELTAS, grid, vmin=0, vmax=1, cmap="Blues")
        figure.colorbar(mesh, ax=left, label="share of heads")
        left.set(title=f"{links}: where the definition holds", ylabel="δ")
        for name, label in SHARES.items():
            ends = shares[name].groupby("c").quantile([0.25, 0.5, 0.75]).unstack()
            right.plot(SPREADS, ends[0.5], marker="o", ms=3, label=label)
            right.fill_between(SPREADS, ends[0.25], ends[0.75], alpha=0.15, lw=0)
        right.set(title=f"{links}: pairs above p", ylabel="share of pairs (median, quartiles)")
        right.set_ylim(0, 1)
    figure.supxlabel("c, where p = mean + c · standard deviation")
    axes[0, 1].legend(frameon=False)
    return figure


if __name__ == "__main__":
    main()
