"""Draw which stepping stones the tokens of a sentence stand on in one head.

``python -m examples.stepping_stones --model PATH --layer 1 --head 10 --output stones.png`` draws
the tokens in the middle and their stones beside them: to the right the keys that they score
unusually high, to the left those that they score unusually low. Stones on which all words named
with ``--mark`` stand are marked, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from examples.options import example, option
from examples.sentence_graph import PictureOptions
from jat_graph import JatConfig, attach, jump_operator
from jat_graph.hf import capture_scores
from jat_graph.viz import save_figure

INK, FAINT, LINK, MARK = "#30415d", "#c4ccd8", "#8fa8c8", "#d81b60"
LOW, HIGH = -1, 1  # where a stone is drawn, and how it was scored


@dataclass(frozen=True)
class Standing:
    """Who stands on which stones in one head, and where walks lead, special tokens left out."""

    words: list[str]
    links: dict[int, Tensor]  # how much each stands on each, [n, n], by the side of the stone
    walk: Tensor  # P, [n, n]


@dataclass
class Options(PictureOptions):
    """What is asked for."""

    threshold: float = option("t", 1.0)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Draw what is asked for."""
    standing = look(args.model, args.sentence, args.layer, args.head, args.threshold)
    save_figure(draw(standing, args.mark), args.output)
    yield str(args.output)


def look(model: str, sentence: str, layer: int, head: int, threshold: float) -> Standing:
    """Return who stands on which stones in one head of the model; special tokens are none."""
    loaded, tokenizer = AutoModel.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    loaded.eval()
    batch = tokenizer(sentence, return_tensors="pt", return_special_tokens_mask=True)
    special = batch.pop("special_tokens_mask").bool()  # [1, L]
    attach(loaded, JatConfig.stones(threshold=threshold, strength=0.0))
    with capture_scores(loaded) as layers, torch.no_grad():
        loaded(**batch)
    if not (0 <= layer < len(layers) and 0 <= head < len(layers[0].heads)):
        raise ValueError(
            f"layer and head must be below {len(layers)} and {len(layers[0].heads)}, "
            f"got {layer} and {head}"
        )
    seen = layers[layer]
    operator = jump_operator(
        seen.query, seen.key, config=seen.config, scale=seen.scale, excluded=special
    )
    shown = (~special[0]).nonzero().squeeze(-1)
    high, low = operator.links[0, head].chunk(2, dim=-1)
    words = tokenizer.convert_ids_to_tokens(batch["input_ids"][0, shown])
    return Standing(
        words,
        {LOW: low[shown][:, shown], HIGH: high[shown][:, shown]},
        operator.to_dense()[0, head][shown][:, shown],
    )


def draw(standing: Standing, marked: list[str]) -> Figure:
    """Draw the tokens in the middle, stones on both sides, and the links between them."""
    words = standing.words
    figure = Figure(figsize=(6.8, 0.8 + 0.26 * len(words)), layout="constrained")
    axis = figure.subplots()
    bright = torch.tensor([word in marked for word in words])
    for side, links in standing.links.items():
        shared = bright.any() & (links[bright] > 0).all(dim=0)  # stones of all the marked words
        for token, stone in links.nonzero().tolist():
            together = bool(bright[token] & shared[stone])
            ends = [0.14 * side, 0.86 * side], [-token, -stone]
            look: Any = {"color": MARK, "zorder": 2} if together else {"color": LINK, "zorder": 1}
            axis.plot(*ends, lw=0.6 + 2 * float(links[token, stone]), **look)
        for stone, word in enumerate(words):
            used = bool(links[:, stone].any())
            write(axis, side, stone, word, MARK if shared[stone] else INK if used else FAINT)
    for token, word in enumerate(words):
        write(axis, 0, token, word, MARK if word in marked else INK)
    titles = {LOW: "scored unusually low", 0: "tokens", HIGH: "scored unusually high"}
    for index, title in titles.items():
        axis.text(index, 1, title, ha="center", va="center", style="italic")
    axis.set(xlim=(-1.3, 1.3), ylim=(0.5 - len(words), 1.4))
    axis.set_axis_off()
    widths = {f"{above} std above the threshold": 0.6 + 2 * above for above in (0.5, 1, 2)}
    handles = [Line2D([], [], color=LINK, lw=width, label=name) for name, width in widths.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


def write(axis: Axes, place: float, row: int, word: str, colour: str) -> None:
    """Write a word in a box."""
    box = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": colour}
    axis.text(place, -row, word, color=colour, ha="center", va="center", bbox=box)


if __name__ == "__main__":
    main()
