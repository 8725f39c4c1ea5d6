"""Draw which stepping stones the tokens of a sentence stand on in one head.

``python -m examples.stepping_stones --model PATH --layer 1 --head 10 --output stones.png`` draws
the tokens in the middle and their stones beside them: to the right the keys that they score
unusually high, to the left those that they score unusually low. Stones on which all words named
with ``--mark`` stand are marked, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from transformers import AutoModel, AutoTokenizer

from examples.options import example, option
from examples.sentence_graph import PictureOptions
from jat_graph import JatConfig, attach
from jat_graph.inspection import HeadView, view_head
from jat_graph.viz import save_figure

INK, FAINT, LINK, MARK = "#30415d", "#c4ccd8", "#8fa8c8", "#d81b60"
LOW, HIGH = -1, 1  # where a stone is drawn, and how it was scored


@dataclass
class Options(PictureOptions):
    """What is asked for."""

    threshold: float = option("t", 1.0)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Draw what is asked for."""
    view = look(args.model, args.sentence, args.layer, args.head, args.threshold)
    save_figure(draw(view, args.mark), args.output)
    yield str(args.output)


def look(model: str, sentence: str, layer: int, head: int, threshold: float) -> HeadView:
    """Return one head of the model on the sentence; special tokens are no stones."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    config = JatConfig.stones(threshold=threshold, strength=0.0)
    loaded = attach(AutoModel.from_pretrained(model).eval(), config, tokenizer)
    return view_head(loaded, tokenizer, sentence, layer=layer, head=head)


def draw(view: HeadView, marked: list[str]) -> Figure:
    """Draw the tokens in the middle, stones on both sides, and the links between them."""
    words = [token.text for token in view.tokens]
    rows = {token.index: row for row, token in enumerate(view.tokens)}
    bright = {row for row, word in enumerate(words) if word in marked}
    figure = Figure(figsize=(6.8, 0.8 + 0.26 * len(words)), layout="constrained")
    axis = figure.subplots()
    for side in (LOW, HIGH):
        stones = {rows[s.token.index]: s.links for s in view.report.stones if s.side == side}
        for row, word in enumerate(words):
            links = {rows[link.token.index]: link.weight for link in stones.get(row, ())}
            shared = bool(bright) and bright <= links.keys()  # a stone of all the marked words
            for token, weight in links.items():
                together = shared and token in bright
                ends = [0.14 * side, 0.86 * side], [-token, -row]
                colour, order = (MARK, 2) if together else (LINK, 1)
                axis.plot(*ends, lw=0.6 + 2 * weight, color=colour, zorder=order)
            write(axis, side, row, word, MARK if shared else INK if links else FAINT)
    for row, word in enumerate(words):
        write(axis, 0, row, word, MARK if row in bright else INK)
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
