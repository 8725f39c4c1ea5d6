"""Whole models with jump heads against the same without, and the memory of graphs of PyG."""

from __future__ import annotations

import copy
import math
import random
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor
from transformers import PreTrainedModel

from examples.benchmarks import heads, measure
from examples.benchmarks.measure import HEADS, Outcome, Settings, Step, agree, draw_heads
from jat_graph import JatConfig, attach, attention_graph, calibrate, detach
from jat_graph.data import AttentionGraphs
from jat_graph.inspection import graph_statistics

# RoBERTa-base, and the tokens of a step, which has at least one sequence.
SHAPE: dict[str, Any] = {"vocab_size": 50265, "hidden_size": 768, "num_hidden_layers": 12}
SHAPE |= {"num_attention_heads": 12, "intermediate_size": 3072, "type_vocab_size": 1}
TOKENS = {"cpu": 1024, "cuda": 32768}
UNFUSED = "not meaningful: with dropout, SDPA on the CPU is not fused and several times slower"
SPREAD = 4.0  # of queries and keys, whose products are next to nothing in an untrained model
NEIGHBOURS = 16  # of each token of one graph
TEXT, LAYERS, KEPT = 512, 6, 8  # of a data set: tokens of a text, heads, and neighbours for each
WIDTH, WORDS = 384, 1000  # MiniLM's width; words to draw from


class TrainingStep:
    """A classifier with its optimizer and one batch; on the GPU under autocast to bfloat16."""

    def __init__(self, model: PreTrainedModel, batch: dict[str, Tensor]) -> None:
        self.model, self.batch = model.train(), batch
        # Small steps, so that the graphs stay what was checked.
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)

    def __call__(self) -> None:
        """Run one step: forward, backward, AdamW."""
        self.optimizer.zero_grad(set_to_none=True)
        self._loss().backward()
        self.optimizer.step()

    @torch.no_grad()
    def loss(self) -> Tensor:
        """The loss in training mode, with the same dropout every time."""
        torch.manual_seed(0)
        return self._loss()

    def begun(self, tokens: int) -> dict[str, Tensor]:
        """The beginning of at most 8 sequences of the batch."""
        first = {name: entry[:8] for name, entry in self.batch.items()}
        return {name: e[:, :tokens] if e.dim() == 2 else e for name, e in first.items()}

    def jump(self, config: JatConfig, tokens: int = 512) -> dict[str, float]:
        """Attach jump heads whose thresholds join the wanted share of the pairs, and return it."""
        batch = self.begun(tokens)
        config = calibrate(self.model, [batch], density=measure.WANTED[0], config=config)
        found = graph_statistics(attach(self.model, config), [batch])
        self.model.train()
        return {"joined": min(head.density for head in found)}

    def require_change(self, base: Tensor) -> None:
        """Refuse to go on unless jump heads change the loss."""
        loss = self.loss()
        if not loss.isfinite() or loss == base:
            raise AssertionError(f"loss must be finite and not {base:.9g}, got {loss:.9g}")

    def _loss(self) -> Tensor:
        device = self.model.device.type
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            return self.model(**self.batch).loss


def random_batch(sequences: int, length: int, vocabulary: int, device: str) -> dict[str, Tensor]:
    """Random tokens, and labels of two classes."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, vocabulary, (sequences, length), generator=generator)
    labels = torch.randint(2, (sequences,), generator=generator)
    return {"input_ids": tokens.to(device), "labels": labels.to(device)}


def widen(model: PreTrainedModel) -> PreTrainedModel:
    """Scale queries and keys, so that attention and graphs have something to tell apart."""
    ends = ("query.weight", "key.weight", "q_proj.weight", "k_proj.weight")
    for name, parameter in model.named_parameters():
        if name.endswith(ends):
            parameter.data.mul_(SPREAD)
    return model


def steps(length: int, settings: Settings, dropout: float) -> list[TrainingStep]:
    """Two steps of one RoBERTa with random weights, each with a copy of its own."""
    torch.manual_seed(0)
    options = {"attention_probs_dropout_prob": dropout, "attn_implementation": "sdpa"}
    positions = {"max_position_embeddings": length + 2}  # RoBERTa counts them from 2
    config = transformers.RobertaConfig(**SHAPE, **positions, **options)
    model = widen(transformers.RobertaForSequenceClassification(config)).to(settings.device)
    sequences = max(1, TOKENS[settings.device] // length)
    batch = random_batch(sequences, length, SHAPE["vocab_size"], settings.device)
    return [TrainingStep(each, batch) for each in (model, copy.deepcopy(model))]


def step(
    length: int, settings: Settings, selection: str, stones: bool = False, heads: int = HEADS,
    layers: int = 6, dropout: float = 0.0,
) -> Outcome:  # fmt: skip
    """A training step with jump heads in the first layers against one without."""
    jumping, stock = steps(length, settings, dropout)
    make, facts = JatConfig.stones if stones else JatConfig.paper, {}
    options = {"heads": heads, "layers": tuple(range(layers)), "key_selection": selection}
    nothing = {} if stones else {"threshold": math.inf}  # with which heads do not jump yet
    attach(jumping.model, make(**options, **nothing))
    agree(jumping.loss(), stock.loss(), rtol=0.0, atol=0.0)
    if stones:
        for name, parameter in jumping.model.named_parameters():
            if "strength" in name:
                parameter.data.fill_(0.1)  # as if training had begun
    else:
        detach(jumping.model)
        facts = jumping.jump(make(**options))
    jumping.require_change(stock.loss())
    note = UNFUSED if dropout and settings.device == "cpu" else ""
    sequences = len(jumping.batch["labels"])
    return measure.in_turns(jumping, stock, settings, note=note, **facts, sequences=sequences)


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
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]")
    shape = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "intermediate_size": 4 * WIDTH}
    config = transformers.BertConfig(vocab_size=WORDS + 1, attn_implementation="eager", **shape)
    model, draw = transformers.BertModel(config).eval().to(settings.device), random.Random(0)
    options = {"heads": [(layer, 0) for layer in range(LAYERS)], "max_neighbors": KEPT}

    def make(texts: int) -> None:
        pages = [" ".join(draw.choices(words, k=TEXT)) for _ in range(texts)]
        with TemporaryDirectory() as root:
            AttentionGraphs(root, pages, model, fast, **options)

    make(1)
    return partial(make, max(1, length // TEXT))
