"""The memory of making graphs of PyTorch Geometric from attention."""

from __future__ import annotations

import random
from functools import partial
from tempfile import TemporaryDirectory

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from examples.benchmarks import heads, measure
from examples.benchmarks.inputs import draw_heads
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
    return measure.outcome([ours], [2 * NEIGHBOURS * length * (2 * 8 + 4)], **facts)


def _build_graph(length: int, settings: Settings) -> Step:
    def make(query: Tensor, key: Tensor, _: Tensor) -> None:
        options = {"config": heads.pairs("strided"), "max_neighbors": NEIGHBOURS}
        edges = attention_graph(query, key, **options).num_edges
        if not 0 < edges <= 2 * NEIGHBOURS * query.size(2):  # one stays if one of its ends asks
            raise AssertionError(f"{NEIGHBOURS} neighbours were asked for, got {edges} edges")

    make(*draw_heads(64, 1, settings))
    return partial(make, *draw_heads(length, 1, settings))


def data_set(length: int, settings: Settings) -> Outcome:
    """Graphs of texts of so many tokens together, against their states and as many edges."""
    ours = measure.peak(_build_data_set, length, settings, device=settings.device)
    most = 4 * length * WIDTH + LAYERS * KEPT * length * (2 * 8 + 4 * LAYERS)
    return measure.outcome([ours], [most], texts=length // TEXT)


def _build_data_set(length: int, settings: Settings) -> Step:
    """Texts of random words, a token each, and an encoder of MiniLM's shape."""
    words = [f"w{number}" for number in range(WORDS)]
    vocabulary = {word: number for number, word in enumerate(["[PAD]", *words])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]")
    shape = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "intermediate_size": 4 * WIDTH}
    config = BertConfig(vocab_size=WORDS + 1, attn_implementation="eager", **shape)
    model, draw = BertModel(config).eval().to(settings.device), random.Random(0)
    options = {"heads": [(layer, 0) for layer in range(LAYERS)], "max_neighbors": KEPT}

    def make(texts: int) -> None:
        pages = [" ".join(draw.choices(words, k=TEXT)) for _ in range(texts)]
        with TemporaryDirectory() as root:
            AttentionGraphs(root, pages, model, fast, **options)

    make(1)
    return partial(make, max(1, length // TEXT))
