"""Draw the graph of one jump head on a sentence: tokens on a circle, edges between them.

``python -m examples.sentence_graph --model PATH --layer 2 --head 9 --output graph.png`` calibrates
the model's heads on the sentence to the density asked for, so that the picture shows the pairs
that this head joins most readily. Words named with ``--mark`` stand out, and so do their edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from transformers import AutoModel, AutoTokenizer

from examples.options import example, option
from jat_graph import JatConfig, attach, calibrate
from jat_graph.looking.inspection.reports import HeadView
from jat_graph.looking.inspection.text import view_head
from jat_graph.viz import save_figure

SENTENCE = "Book costs more than pencil. Book costs less than computer."
EDGE, MARK = "#8fa8c8", "#d81b60"


@dataclass
class Options:
    """What is asked for."""

    model: str = option("folder or Hub name of a pretrained model")
    layer: int = option("layer, from 0")
    head: int = option("head, from 0")
    output: Path = option("PNG file to write")
    sentence: str = option("the JAT paper's pair", SENTENCE)
    mark: list[str] = option("words in colour", ["computer", "pencil"])
    density: float = option("pairs to join", 0.2)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Draw what is asked for."""
    view = look(args.model, args.sentence, args.layer, args.head, args.density)
    save_figure(draw(view, args.mark), args.output)
    yield str(args.output)


def look(model: str, sentence: str, layer: int, head: int, density: float) -> HeadView:
    """Return one head of the model on the sentence, whose heads all jump along so many pairs."""
    loaded = AutoModel.from_pretrained(model).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    every_head = JatConfig(heads=loaded.config.num_attention_heads)
    batch = tokenizer(sentence, return_tensors="pt")
    attach(loaded, calibrate(loaded, [batch], density=density, config=every_head))
    return view_head(loaded, tokenizer, sentence, layer=layer, head=head)


def draw(view: HeadView, marked: list[str]) -> Figure:
    """Draw the tokens in reading order, clockwise from the top, and the edges between them."""
    figure = Figure(figsize=(6.8, 4.6), layout="constrained")
    axis = figure.subplots()
    angle = np.pi / 2 - 2 * np.pi * np.arange(len(view.tokens)) / len(view.tokens)
    index = np.stack([np.cos(angle), np.sin(angle)], axis=-1)  # [tokens, 2]
    edges = edges_of(view)
    heaviest = max(edges.values(), default=1.0)
    for ends, weight in edges.items():
        bright = all(view.tokens[end].text in marked for end in ends)
        line: Any = {"color": MARK, "zorder": 2} if bright else {"color": EDGE, "zorder": 1}
        axis.plot(*index[list(ends)].T, lw=4 * weight / heaviest, **line)
    for token, (x, y) in zip(view.tokens, index, strict=True):
        colour = MARK if token.text in marked else "#30415d"
        box = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": colour}
        word: Any = {"color": colour, "fontsize": 8, "bbox": box, "zorder": 3}
        axis.text(x, y, token.text, ha="center", va="center", **word)
    axis.set(xlim=(-1.25, 1.25), ylim=(-1.15, 1.15))
    axis.set_axis_off()
    for share in (1, 0.5, 0.25):
        label = f"{share * heaviest:.0%} of the keys vote"
        axis.plot([], [], color=EDGE, lw=4 * share, label=label)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def edges_of(view: HeadView) -> dict[tuple[int, int], float]:
    """Return the weight of each joined pair of shown tokens, the larger of its two."""
    weights = view.weights.maximum(view.weights.T).triu(1)
    return {(i, j): float(weights[i, j]) for i, j in weights.nonzero().tolist()}


if __name__ == "__main__":
    main()
