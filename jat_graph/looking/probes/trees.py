"""A sentence's tree as arcs (Figure 2 of Hewitt and Manning 2019), and a page of heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.core.extras import import_extra
from jat_graph.looking.data.reading import check_fast
from jat_graph.looking.directions import isolated
from jat_graph.looking.inspection.selection import Indices
from jat_graph.looking.probes.drawing import COLOURS, QUIET, Figure, add_legend
from jat_graph.looking.probes.findings import Floats
from jat_graph.looking.probes.treebank import Edges, Sentence
from jat_graph.looking.viewer import AtlasView, Page
from jat_graph.looking.viewer.reading import read_texts
from jat_graph.looking.viz.figures import new_figure, short_label

RIGHT, WRONG = COLOURS[:2]
LETTER, GAP = 0.085, 0.18  # inches, of a word's letters and between words
ASIDE = 0.04  # inches, from a word's middle to an arc's end
MOST_LETTERS = 20


def spanning_tree(distances: Floats, among: Sequence[int]) -> Edges:  # [n, n]
    """Join some words by the edges that are shortest together."""
    minimum_spanning_tree = import_extra("scipy.sparse.csgraph").minimum_spanning_tree
    # A distance of 0 is no edge there. All trees have as many edges: a constant changes none.
    own = distances[np.ix_(among, among)] + 1.0
    rows, columns = minimum_spanning_tree(own).nonzero()
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return frozenset((min(among[i], among[k]), max(among[i], among[k])) for i, k in pairs)


def squared_distances(points: Tensor) -> Tensor:  # [..., L, R] -> [..., L, L]
    """Return ‖p_i − p_k‖² of all pairs; around their mean, where rounding is least."""
    centred = points - points.mean(-2, keepdim=True)
    norms = centred.square().sum(-1)
    found = norms[..., :, None] + norms[..., None, :] - 2 * centred @ centred.mT
    return found.clamp(min=0.0)


def draw_tree_arcs(sentence: Sentence, distances: Tensor) -> Figure:
    """Draw a tree above its words, and below them that of least distances, [n, n]."""
    if not sentence.shown:
        raise ValueError("sentence must have a word that is not punctuation, got none")
    widths = [LETTER * min(len(word), MOST_LETTERS) + GAP for word in sentence.words]
    middles = [end - width / 2 for end, width in zip(accumulate(widths), widths, strict=True)]
    tree = sentence.shown_edges
    predicted = spanning_tree(distances.detach().double().cpu().numpy(), sentence.shown)
    spans = [middles[end] - middles[start] for start, end in predicted | tree]
    height = 0.3 + 0.5 * math.sqrt(max(spans, default=0.25))
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
        axis.text(middles[index], 0, isolated(short_label(word, MOST_LETTERS)), **look)
    axis.set(xlim=(-0.4, middles[-1] + 0.6), ylim=(-height, height))
    axis.set_axis_off()
    axis.plot([], [], color=RIGHT, label="in both trees")
    axis.plot([], [], color=WRONG, ls=dashed, label="in one of them")
    return add_legend(figure, axis, 2)


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
        elif not isinstance(text, str):
            kind = type(text).__name__
            raise ValueError(f"texts[{number}] must be a string or a Sentence, got {kind}")
    chosen: Any = {"layers": layers, "heads": heads, "tokens": tokens}
    shown = read_texts(model, tokenizer, some, special_tokens=special_tokens, **chosen)
    return Page(title, tuple(shown), tuple(atlases))
