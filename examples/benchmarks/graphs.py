"""The memory of making graphs of PyTorch Geometric from attention."""

from __future__ import annotations

import random
from functools import partial
from tempfile import TemporaryDirectory

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from examples.benchmarks import heads, measure
from examples.benchmarks.inputs import Heads, draw_heads
from examples.benchmarks.measure import Outcome, Settings, Step
from jat_graph import attention_graph
from jat_graph.data import AttentionGraphs

NEIGHBOURS = 16  # of each token of one graph
TEXT, LAYERS, KEPT = 512, 6, 8  # of a data set: tokens of a text, heads, and neighbours for each
WIDTH, WORDS = 384, 1000  # MiniLM's width; words to draw from


def one_graph(length: int, settings: Settings) -> Outcome:
    """The graph of one head, against as many edges as there can be."""
    _, facts = heads.check(draw_heads(length, 1, settings), "strided")
    ours = measure.peak(_build_graph, length, settings, device=settings.device)
    return measure.outcome([ours], [bytes_of_edges(2 * NEIGHBOURS * length, 1)], **facts)


def data_set(length: int, settings: Settings) -> Outcome:
    """A data set of texts of so many tokens together, against its states and as many edges."""
    ours = measure.peak(_build_data_set, length, settings, device=settings.device)
    most = 4 * length * WIDTH + bytes_of_edges(LAYERS * KEPT * length, LAYERS)
    return measure.outcome([ours], [most], texts=length // TEXT)


def bytes_of_edges(edges: int, weights: int) -> int:
    """Two numbers of nodes and some weights for each edge."""
    return edges * (2 * 8 + weights * 4)


def _build_graph(length: int, settings: Settings) -> Step:
    def make(drawn: Heads) -> None:
        options = {"config": heads.pairs("strided"), "max_neighbors": NEIGHBOURS}
        graph = attention_graph(drawn.query, drawn.key, **options)
        # An edge stays if one of its ends asks for it.
        _require_edges(graph.num_edges, 2 * NEIGHBOURS * drawn.length)

    make(draw_heads(64, 1, settings))
    return partial(make, draw_heads(length, 1, settings))


def _build_data_set(length: int, settings: Settings) -> Step:
    """Texts of random words, a token each, and an encoder of MiniLM's shape."""
    words = [f"w{number}" for number in range(WORDS)]
    vocabulary = {word: number for number, word in enumerate(["[PAD]", *words])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]")
    config = BertConfig(
        vocab_size=WORDS + 1, hidden_size=WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=12, intermediate_size=4 * WIDTH, attn_implementation="eager",
    )  # fmt: skip
    model, draw = BertModel(config).eval().to(settings.device), random.Random(0)
    options = {"heads": [(layer, 0) for layer in range(LAYERS)], "max_neighbors": KEPT}

    def make(texts: int) -> None:
        pages = [" ".join(draw.choices(words, k=TEXT)) for _ in range(texts)]
        with TemporaryDirectory() as root:
            graphs = AttentionGraphs(root, pages, model, fast, **options)
        edges = sum(graph.num_edges for graph in graphs)
        _require_edges(edges, LAYERS * KEPT * TEXT * texts)

    make(1)
    return partial(make, max(1, length // TEXT))


def _require_edges(edges: int, most: int) -> None:
    if not 0 < edges <= most:
        raise AssertionError(f"there must be at most {most} edges and some, got {edges}")
