"""``graphs``: the peak memory of making graphs of PyTorch Geometric from attention."""

from __future__ import annotations

import random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch

from jat_graph.config import JatConfig
from jat_graph.data import AttentionGraphs
from jat_graph.graphs import attention_graph
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.heads import check_head
from jat_graph.lab.speed.inputs import THRESHOLD, Heads, draw_heads
from jat_graph.lab.speed.probe import peak_of, probe
from jat_graph.lab.speed.series import Bar, Benchmark, Outcome, Series, Settings
from jat_graph.lab.speed.spread import Spread
from jat_graph.training.memory import missing_peaks

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

NEIGHBOURS = 16
ONE = f"attention_graph, {NEIGHBOURS} neighbours, 1 head"
EDGES = "as many edges with weights as there can be"
CONFIG = JatConfig.paper(threshold=THRESHOLD, heads=1, key_selection="strided")
WARM_UP_LENGTH = 64

TEXT, KEPT = 512, 8  # tokens of a text; neighbours that each head keeps
HEADS = tuple((layer, 0) for layer in range(6))
MANY = f"AttentionGraphs, texts of {TEXT} tokens, {len(HEADS)} heads, {KEPT} neighbours"
STATES = "their states, and as many edges as there can be"
WIDTH, WORDS = 384, 1000  # MiniLM's width; words to draw from


def graph_series(settings: Settings) -> tuple[Series, ...]:
    """One graph of a long text, and many graphs of a page each."""
    return (
        Series(ONE, EDGES, (4096, 65536), 2**20, _measure_one),
        Series(MANY, STATES, (64 * TEXT, 1000 * TEXT), 2**24, _measure_many),
    )


def _measure_one(length: int, settings: Settings) -> Outcome:
    if missing := missing_peaks(settings.device):
        return Outcome(note=f"not measured: {missing}")
    heads = draw_heads(length, 1, device=settings.torch_device, dtype=settings.dtype)
    facts = check_head(f"{ONE}, L={length}", heads, CONFIG)
    del heads
    ours = float(probe(__name__, ONE, length, settings.device))
    return _against(ours, _bytes_of_edges(2 * NEIGHBOURS * length, 1), facts)


def _measure_many(length: int, settings: Settings) -> Outcome:
    if missing := missing_peaks(settings.device):
        return Outcome(note=f"not measured: {missing}")
    ours = float(probe(__name__, MANY, length, settings.device))
    edges = len(HEADS) * KEPT * length
    states = length * WIDTH * torch.float32.itemsize
    return _against(ours, states + _bytes_of_edges(edges, len(HEADS)), {"texts": length // TEXT})


def _bytes_of_edges(edges: int, weights: int) -> float:
    return float(edges * (2 * torch.long.itemsize + weights * torch.float32.itemsize))


def _against(ours: float, most: float, facts: dict[str, Any]) -> Outcome:
    return Outcome(Spread.of([ours]), Spread.of([most]), Spread.of([ours / most]), facts)


def run_side(side: str, length: int, settings: Settings) -> int:
    """Make the graphs of so many tokens, and return what it took above what was there before."""
    device = settings.torch_device
    if side == ONE:
        few, many = (draw_heads(size, 1, device=device) for size in (WARM_UP_LENGTH, length))
        _make_one(few)
        return peak_of(lambda: _make_one(many), device)
    model = _draw_model().to(device)  # type: ignore[arg-type]  # transformers wraps it untyped
    _make_many(model, 1)
    return peak_of(lambda: _make_many(model, length // TEXT), device)


def _make_one(heads: Heads) -> None:
    options: Any = {"config": CONFIG, "max_neighbors": NEIGHBOURS}
    graph = attention_graph(heads.query, heads.key, **options)
    # An edge stays if one of its ends asks for it.
    _require_edges(ONE, graph.num_edges, 2 * NEIGHBOURS * heads.length)


def _make_many(model: PreTrainedModel, texts: int) -> None:
    words = [f"w{number}" for number in range(WORDS)]
    draw = random.Random(0)
    pages = [" ".join(draw.choices(words, k=TEXT)) for _ in range(texts)]
    with TemporaryDirectory() as root:
        options: Any = {"heads": HEADS, "max_neighbors": KEPT}
        graphs = AttentionGraphs(root, pages, model, _tokenizer(words), **options)
    _require_edges(MANY, sum(graph.num_edges for graph in graphs), len(HEADS) * KEPT * TEXT * texts)


def _require_edges(what: str, edges: int, most: int) -> None:
    if not 0 < edges <= most:
        raise CheckError(f"{what}: there must be at most {most} edges and some, got {edges}")


def _draw_model() -> PreTrainedModel:
    """Return an encoder of MiniLM's shape with random weights."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    options: Any = {"attn_implementation": "eager"}
    config = BertConfig(
        vocab_size=WORDS + 1,
        hidden_size=WIDTH,
        num_hidden_layers=len(HEADS),
        num_attention_heads=12,
        intermediate_size=4 * WIDTH,
        **options,
    )
    model: PreTrainedModel = BertModel(config)
    model.train(False)
    return model


def _tokenizer(words: list[str]) -> PreTrainedTokenizerBase:
    """Return a tokenizer that takes each word as one token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(["[PAD]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    options: Any = {"tokenizer_object": tokenizer, "pad_token": "[PAD]"}
    return PreTrainedTokenizerFast(**options)  # type: ignore[no-untyped-call]


GRAPHS = Benchmark(
    name="graphs",
    claim=(
        "Peak memory of making graphs, above what the process held before, each point in a fresh "
        f"process: that of one head with the {NEIGHBOURS} strongest neighbours of each token, "
        "which is to stay below 1 GiB at 65,536 tokens; and a data set of many texts, read by an "
        f"encoder of MiniLM's shape with random weights, L the tokens of all texts. Each is given "
        "as a multiple of the largest result that there can be."
    ),
    series=graph_series,
    unit="bytes",
    bars=(
        Bar("cpu", ONE, EDGES, 65536, 65536, 2**30 / _bytes_of_edges(2 * NEIGHBOURS * 65536, 1)),
    ),
    growing=("ours",),
)
"""What ``jat-graph bench graphs`` measures."""
