"""Two copies of one RoBERTa, with jump heads and without, and a training step of each."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from jat_graph.config import JatConfig
from jat_graph.hf import CapturedLayer, attach, capture_scores, detach
from jat_graph.lab.speed.checks import CheckError, require_equal
from jat_graph.lab.speed.inputs import (
    THRESHOLD,
    Work,
    measure_work,
    number_of_keys,
    spaced_scores,
    strengthening,
)
from jat_graph.lab.speed.series import Settings
from jat_graph.voting.ballot import open_ballot
from jat_graph.voting.scores import QueryKeyScores

# RoBERTa-base.
SHAPE = {
    "vocab_size": 50265,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
JUMP_LAYERS = 6
# Tokens of a step; a step has at least one sequence.
TOKENS = {"cpu": 1024, "cuda": 32768}
# The part of a batch that weights are scaled on: at most so many sequences and tokens of each.
SCALED_SEQUENCES, SCALED_TOKENS = 8, 512


class TrainingStep:
    """A model with its optimizer and one batch.

    Args:
        model: A transformer for sequence classification.
        batch: Its inputs and labels.
        settings: Where it runs; on the GPU under autocast to bfloat16.
    """

    def __init__(self, model: Any, batch: dict[str, Tensor], settings: Settings) -> None:
        self.model, self.batch, self.settings = model, batch, settings
        # Small steps, so that the scores stay what was checked.
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)

    def run(self) -> None:
        """Run one step: forward, backward, AdamW."""
        self._run(self.batch)

    def warm_up(self, tokens: int) -> None:
        """Run one step on the beginning of the sequences."""
        self._run(cut_batch(self.batch, len(self.batch["labels"]), tokens))

    @torch.no_grad()
    def loss(self) -> Tensor:
        """The loss in training mode, with the same dropout every time."""
        torch.manual_seed(0)
        return self._loss(self.batch)

    def _run(self, batch: dict[str, Tensor]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self._loss(batch).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def _loss(self, batch: dict[str, Tensor]) -> Tensor:
        cuda = self.settings.device == "cuda"
        with torch.autocast(self.settings.device, torch.bfloat16, enabled=cuda):
            loss: Tensor = self.model(**batch).loss
        return loss


def build_steps(
    length: int, settings: Settings, config: JatConfig, dropout: float
) -> tuple[TrainingStep, TrainingStep]:
    """A step with jump heads and one without, from the same weights.

    The weights are random; queries of the jump heads are scaled until the graphs do real work.
    """
    sequences = max(1, TOKENS[settings.device] // length)
    batch = random_batch(SHAPE["vocab_size"], sequences, length, settings)
    model = _random_model(length, dropout).to(settings.torch_device).train()
    jump = TrainingStep(attach(model, config), batch, settings)
    strengthen(jump, JUMP_LAYERS)
    stock = detach(copy.deepcopy(model))
    return jump, TrainingStep(stock, batch, settings)


def check_steps(what: str, jump: TrainingStep, stock: TrainingStep, config: JatConfig) -> Work:
    """Refuse to go on unless jump heads change the loss, and only when they should.

    With hop 0 alone, and with an infinite threshold, both losses are equal to the bit.
    """
    base = stock.loss()
    for name, plain in (
        ("one hop of weight 1 at index 0", replace(config, hop_weights=(1.0,))),
        ("an infinite threshold", replace(config, threshold=math.inf)),
    ):
        attach(detach(jump.model), plain)
        require_equal(f"{what}, loss with {name}", jump.loss(), base)
    attach(detach(jump.model), config)
    return require_work(what, jump, base)


def require_work(what: str, jump: TrainingStep, base: Tensor) -> Work:  # []
    """Refuse to go on unless the jump heads of a model have work to do, and change the loss."""
    with capture_scores(jump.model) as layers:
        loss = jump.loss()
    if not loss.isfinite() or loss == base:
        raise CheckError(
            f"{what}: the loss with jump heads must be finite and differ from {base.item()}, "
            f"got {loss.item()}; nothing was timed"
        )
    found = [measure_work(_key_scores(layer), THRESHOLD) for layer in layers]
    work = Work(*(min(figures) for figures in zip(*map(_figures, found), strict=True)))
    work.require(what)
    return work


def random_batch(
    vocabulary: int, sequences: int, length: int, settings: Settings
) -> dict[str, Tensor]:  # [B, L], [B]
    """Random tokens, and labels of two classes."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, vocabulary, (sequences, length), generator=generator)
    labels = torch.randint(2, (sequences,), generator=generator)
    device = settings.torch_device
    return {"input_ids": tokens.to(device), "labels": labels.to(device)}


def cut_batch(batch: dict[str, Tensor], sequences: int, tokens: int) -> dict[str, Tensor]:
    """The beginning of a batch."""
    return {
        name: entry[:sequences, :tokens] if entry.dim() == 2 else entry[:sequences]
        for name, entry in batch.items()
    }


def _random_model(length: int, dropout: float) -> Any:
    from transformers import RobertaConfig, RobertaForSequenceClassification

    settings: dict[str, Any] = {
        **SHAPE,
        "max_position_embeddings": length + 2,  # RoBERTa counts positions from 2
        "type_vocab_size": 1,
        "attention_probs_dropout_prob": dropout,
        "attn_implementation": "sdpa",
    }
    torch.manual_seed(0)
    return RobertaForSequenceClassification(RobertaConfig(**settings))


def strengthen(
    step: TrainingStep, layers: int, tokens: int = SCALED_TOKENS, margin: float = 1.0
) -> None:
    """Scale the queries of the jump heads, until the scores of every layer are large enough.

    A layer's scores depend on the layers below, so that each pass settles one layer more.
    """
    part = cut_batch(step.batch, SCALED_SEQUENCES, tokens)
    step = TrainingStep(step.model, part, step.settings)
    attentions = [layer.attention.self for layer in step.model.base_model.encoder.layer]
    for _ in range(layers):
        with capture_scores(step.model) as captured:
            step.loss()
        for layer in captured:
            factor = strengthening(_key_scores(layer), THRESHOLD).mean(0) * margin  # [H]
            query = attentions[layer.layer].query
            scale = torch.ones(query.out_features // layer.query.size(-1), device=factor.device)
            scale[list(layer.heads)] = factor.clamp(min=1.0)
            scale = scale.repeat_interleave(layer.query.size(-1))
            with torch.no_grad():
                query.weight.mul_(scale[:, None])
                query.bias.mul_(scale)


def _key_scores(layer: CapturedLayer) -> Tensor:
    """The scores of the voting keys, or of U evenly spaced ones where all vote."""
    if layer.config.key_selection == "all":
        return spaced_scores(layer.query, layer.key, number_of_keys(layer.query.size(2)))
    source = QueryKeyScores(layer.query, layer.key, layer.scale)
    return open_ballot(layer.config, source, layer.mask).key_scores()[0]


def _figures(work: Work) -> tuple[float, float]:
    return work.joined, work.taking_part
