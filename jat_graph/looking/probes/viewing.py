"""A page of what heads do on texts, and of their trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.looking.data.reading import check_fast
from jat_graph.looking.inspection.selection import Indices
from jat_graph.looking.probes.treebank import Sentence
from jat_graph.looking.viewer import Page
from jat_graph.looking.viewer.reading import read_texts


def view(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: str | Sentence | Sequence[str | Sentence],
    *,
    layers: Indices = None,
    heads: Indices = None,
    tokens: range | str | None = None,
    special_tokens: bool = False,
    title: str = "Heads",
) -> Page:
    """Return a page that shows what heads do on texts: one file, for any browser, no network.

    It has all heads first, then one of them as lines and as a matrix; of heads that jump also the
    attention before the jump, the difference, and the graph with its stepping stones; and
    trees. Of each matrix it has the strongest links, and the share of what is left out.

    Args:
        model: An encoder or decoder of transformers, with jump heads or without.
        tokenizer: Its tokenizer.
        texts: One text or several, each a string or a sentence of a treebank with its tree, that
            the model can take whole.
        layers, heads: Those to show, from 0: one, or several. (default: None, all)
        tokens: The positions to show, as ``range(40, 90)``, or words. (default: None, all)
        special_tokens: Show special tokens, too. What goes to tokens that are not shown is counted
            all the same. (default: False)
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
    return Page(title, tuple(shown))
