"""A sentence's tree as arcs and as points in a probe's space, and a page of heads with trees.

After Figure 2 of Hewitt and Manning 2019, and Figure 3 of Coenen et al. 2019.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, count
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.data.reading import check_fast
from jat_graph.directions import isolated
from jat_graph.inspection.selection import Indices
from jat_graph.probes.findings import COLOURS, QUIET, Axes, Figure, Floats, add_legend
from jat_graph.probes.treebank import Sentence, spanning_tree, squared_distances
from jat_graph.viewer import AtlasView, Page
from jat_graph.viewer.content import ParsedWords
from jat_graph.viewer.reading import read_texts
from jat_graph.viz.figures import add_bar, new_figure, short_label

Where: TypeAlias = Mapping[int, tuple[float, float]]  # each word's point

RIGHT, WRONG = COLOURS[:2]
LETTER, GAP = 0.085, 0.18  # inches, of a word's letters and between words
LINE, ASIDE = 0.22, 0.04  # inches, of a label's height, and from a word's middle to an arc's end
MOST_LETTERS = 20
DEVIATION = "PuOr_r"  # darker is farther from 1, on both sides


def draw_tree_arcs(sentence: Sentence, distances: Tensor) -> Figure:
    """Draw a tree above its words, and below them that of least distances, [n, n]."""
    tree, middles = sentence.shown_edges, _middles(sentence)
    predicted = spanning_tree(distances.detach().double().cpu().numpy(), sentence.shown)
    widths = [middles[end] - middles[start] for start, end in predicted | tree]
    height = 0.3 + 0.5 * math.sqrt(max(widths, default=0.25))
    heading = f"The tree, and below: {len(predicted & tree)} of {len(tree)} edges found"
    figure = new_figure(max(4.5, middles[-1] + 1.2), 2 * height + 0.3, heading=heading)
    from matplotlib.patches import Arc  # which is there, or there would be no figure

    axis, dashed = figure.subplots(), (0, (4, 2))
    for side, own, other in ((1, tree, predicted), (-1, predicted, tree)):
        for edge in sorted(own):  # half an ellipse over or under the words
            start, end = (middles[word] for word in edge)
            look: Any = {"color": RIGHT} if edge in other else {"color": WRONG, "ls": dashed}
            first, middle = 0 if side > 0 else 180, ((start + end) / 2, 0.14 * side)
            size = end - start - 2 * ASIDE, math.sqrt(end - start)
            axis.add_patch(Arc(middle, *size, theta1=first, theta2=first + 180, lw=1.6, **look))
    for index, word in enumerate(sentence.words):
        look = {"ha": "center", "va": "center", "fontsize": 9}
        look["color"] = "black" if index in sentence.shown else QUIET
        axis.text(middles[index], 0, _label(word), **look)
    axis.set(xlim=(-0.4, middles[-1] + 0.6), ylim=(-height, height))
    axis.set_axis_off()
    axis.plot([], [], color=RIGHT, label="in both trees")
    axis.plot([], [], color=WRONG, ls=dashed, label="in one of them")
    return add_legend(figure, axis, 2)


def draw_tree_plane(sentence: Sentence, points: Tensor) -> Figure:
    """Draw a tree beside its words in the space of a probe, [n, R]."""
    tree, shown, middles = sentence.shown_edges, sentence.shown, _middles(sentence)
    if not shown:
        raise ValueError("sentence must have a word that is no punctuation, got none")
    points = points.detach().double().cpu()
    squared = squared_distances(points).numpy()
    side, wide = max(4.0, 2.1 * math.sqrt(middles[-1])), max(4.0, middles[-1] + 1.2)
    figure = new_figure(wide + side, side + 1.0)
    left, right = figure.subplots(1, 2, width_ratios=(wide, side))
    flat = {word: (middles[word], -float(sentence.depths[word])) for word in shown}
    _draw_edges(left, flat, tree, squared)
    for edge in sorted(tree):
        low, high = sorted((flat[word] for word in edge), key=lambda point: point[1])
        x, y = np.average([low, high], axis=0, weights=(0.6, 0.4))  # a head has many edges
        _write(left, f"{squared[edge]:.1f}", (x, y), size=7.5, above=3)
    for word, point in flat.items():
        _write(left, _label(sentence.words[word]), point)
    lowest, last = min(y for _, y in flat.values()), max(x for x, _ in flat.values())
    left.set(xlim=(-0.4, last + 0.8), ylim=(lowest - 0.5, 0.5))
    left.set_title("Its tree, and the squared distance of each edge", fontsize=10)

    # Where words are along the two axes of most variance, in inches from their middle.
    centred = points[shown] - points[shown].mean(0)
    main, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    spread = np.zeros((len(main), 2))
    spread[:, : len(sizes[:2])] = main[:, :2] * sizes[:2]
    spread -= (spread.max(0) + spread.min(0)) / 2
    spread *= 0.4 * side / (np.abs(spread).max() or 1.0)
    plane = {word: (float(x), float(y)) for word, (x, y) in zip(shown, spread, strict=True)}
    _draw_edges(right, plane, tree, squared)
    for one, other in sorted(spanning_tree(squared, shown) - tree):
        across, up = zip(plane[one], plane[other], strict=True)
        right.plot(across, up, color=QUIET, linestyle=(0, (4, 3)), zorder=1)
    _write_beside(right, sentence, plane)
    right.set(xlim=(-side / 2, side / 2), ylim=(-side / 2, side / 2), aspect="equal")
    title = "In the space of the probe: its two main axes\n(dashed: joined there alone)"
    right.set_title(title, fontsize=10)
    for axis in (left, right):
        axis.set_axis_off()
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    label = "squared distance of an edge of the tree (1 if it fits)"
    look: Any = {"shrink": 0.7, "aspect": 30, "pad": 0.02, "extend": "max"}
    bar = add_bar(figure, ScalarMappable(Normalize(0, 2), DEVIATION), right, label, **look)
    bar.set_ticks([0, 0.5, 1, 1.5, 2])
    return figure


def _label(word: str) -> str:
    return isolated(short_label(word, MOST_LETTERS))


def _width(word: str) -> float:
    return LETTER * min(len(word), MOST_LETTERS) + GAP


def _middles(sentence: Sentence) -> list[float]:
    """Where the middle of each word is, in inches."""
    widths = [_width(word) for word in sentence.words]
    return [end - width / 2 for end, width in zip(accumulate(widths), widths, strict=True)]


def _draw_edges(
    axis: Axes, where: Where, edges: Iterable[tuple[int, int]], squared: Floats
) -> None:
    """Draw edges in the colours of their deviation."""
    from matplotlib import colormaps

    for one, other in sorted(edges):
        across, up = zip(where[one], where[other], strict=True)
        # A line around it, or that of an edge of about 1 would not be seen.
        axis.plot(across, up, color="black", linewidth=4.2, zorder=1)
        colour = colormaps[DEVIATION](float(squared[one, other]) / 2)  # white at 1
        axis.plot(across, up, color=colour, linewidth=3.0, zorder=2)


def _write_beside(axis: Axes, sentence: Sentence, where: Where) -> None:
    """Write the words beside their points, each where no other word or point is."""
    taken = [(x, y, 2 * ASIDE) for x, y in where.values()]
    for word, (x, y) in sorted(where.items(), key=lambda item: item[1][1]):
        wide = _width(sentence.words[word])
        aside, up = wide / 2 + 1.5 * ASIDE, 1.01 * LINE
        around = [(x, y + up), (x + aside, y), (x - aside, y), (x, y - up)]
        higher = ((x, y + up + step * LINE / 10) for step in count())
        point = next(
            (x, y)
            for x, y in chain(around, higher)
            if all(abs(x - u) >= (wide + w) / 2 or abs(y - v) >= LINE for u, v, w in taken)
        )
        taken.append((*point, wide))
        axis.plot(x, y, "o", color="black", markersize=5, zorder=3)
        _write(axis, _label(sentence.words[word]), point)


def _write(
    axis: Axes, text: str, point: tuple[float, float], size: float = 9, above: int = 4
) -> None:
    box = {"boxstyle": "round,pad=0.12", "fc": "white", "ec": "none"}
    axis.text(*point, text, fontsize=size, ha="center", va="center", bbox=box, zorder=above)


def view(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: str | Sentence | Sequence[str | Sentence],
    *,
    layers: Indices = None,
    heads: Indices = None,
    tokens: range | str | None = None,
    special_tokens: bool = False,
    atlases: Sequence[AtlasView] = (),
    title: str = "Heads",
) -> Page:
    """Return a page that shows what heads do on texts: one file, for any browser, no network.

    It has all heads first, then one of them as lines and as a matrix; of heads that jump also the
    attention before the jump, the difference, and the graph with its stepping stones; trees; and
    maps. Of each matrix it has the strongest links, and the share of what is left out.

    Args:
        model: An encoder or decoder of transformers, with jump heads or without.
        tokenizer: Its tokenizer.
        texts: One text or several, each a string or a sentence of a treebank with its tree, that
            the model can take whole.
        layers, heads: Those to show, from 0: one, or several. (default: None, all)
        tokens: The positions to show, as ``range(40, 90)``, or words. (default: None, all)
        special_tokens: Show special tokens, too. What goes to tokens that are not shown is counted
            all the same. (default: False)
        atlases: Maps to show beside the heads. (default: none)
        title: Title of the page. (default: ``"Heads"``)

    Returns:
        The page; a notebook shows it, and ``save`` writes it.

    Raises:
        ValueError: If the model gives no attention or lacks the heads, a text is empty, too long or
            lacks the tokens, or the page would be too large; but for the first the model is not
            run then.

    Reference:
        Vig, *A Multiscale Visualization of Attention in the Transformer Model*, 2019; A of Eq. 3 of
        the JAT paper.

    Example:
        >>> from jat_graph.probes import view
        >>> from transformers import BertConfig, BertModel, BertTokenizer
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] dogs bark at cats".split()
        >>> tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(words)})
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4)).eval()
        >>> page = view(model, tokenizer, "dogs bark at cats", layers=(0, 2))
        >>> [(head.layer, head.head) for head in page.texts[0].heads][3:5]
        [(0, 3), (2, 0)]
    """
    some: list[Any] = [texts] if isinstance(texts, str | Sentence) else list(texts)
    if not some:
        raise ValueError("texts must be one or more, got none")
    for number, text in enumerate(some):
        if isinstance(text, Sentence):
            check_fast(tokenizer)
            some[number] = ParsedWords(text.words, text.tags, text.heads, text.relations, ())
        elif not isinstance(text, str):
            kind = type(text).__name__
            raise ValueError(f"texts[{number}] must be a string or a Sentence, got {kind}")
    chosen: Any = {"layers": layers, "heads": heads, "tokens": tokens}
    shown = read_texts(model, tokenizer, some, special_tokens=special_tokens, **chosen)
    return Page(title, tuple(shown), tuple(atlases))
