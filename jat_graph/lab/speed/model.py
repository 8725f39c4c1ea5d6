"""``model``: a whole training step with jump heads against the same model on stock SDPA."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from jat_graph.config import JatConfig
from jat_graph.hf import CapturedLayer, attach, capture_scores, detach
from jat_graph.lab.speed.checks import CheckError, require_equal
from jat_graph.lab.speed.inputs import (
    NUM_HEADS,
    THRESHOLD,
    Work,
    measure_work,
    number_of_keys,
    spaced_scores,
    strengthening,
)
from jat_graph.lab.speed.series import Bar, Benchmark, Fact, Outcome, Series, Settings
from jat_graph.voting.ballot import open_ballot
from jat_graph.voting.scores import QueryKeyScores

STOCK = "stock SDPA"
JAT, EFFICIENT = "JAT, all keys", "JAT†, significance"
SELECTIONS = {JAT: "all", EFFICIENT: "significance"}
LENGTHS: dict[str, dict[str, tuple[int, ...]]] = {
    "cpu": {JAT: (128, 512), EFFICIENT: (512, 4096)},
    "cuda": {JAT: (512,), EFFICIENT: (512, 4096, 8192, 16384, 32768, 65536)},
}
LONGEST = {JAT: 4096, EFFICIENT: 65536}
DROPOUT = 0.1
UNFUSED = "not meaningful: with dropout, SDPA on the CPU is not fused and several times slower"

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


def model_series(settings: Settings) -> tuple[Series, ...]:
    """Both kinds of jump heads, without attention dropout and with it."""
    lengths = LENGTHS[settings.device]
    series = []
    for dropout in (0.0, DROPOUT):
        for what, selection in SELECTIONS.items():
            fused = dropout == 0 or settings.device == "cuda"
            measure = partial(_measure, what=what, selection=selection, dropout=dropout)
            series.append(
                Series(
                    step_name(what, dropout),
                    STOCK,
                    lengths[what] if dropout == 0 else lengths[what][:1],
                    LONGEST[what] if fused else 512,  # unfused, each layer keeps L×L
                    measure,
                )
            )
    return tuple(series)


def step_name(what: str, dropout: float = 0.0) -> str:
    """Name our side of a comparison."""
    return f"{what}, attention dropout {dropout:g}"


def _measure(length: int, settings: Settings, what: str, selection: str, dropout: float) -> Outcome:
    name = f"{step_name(what, dropout)}, L={length}"
    config = JatConfig.paper(
        threshold=THRESHOLD,
        heads=NUM_HEADS,
        layers=tuple(range(JUMP_LAYERS)),
        key_selection=selection,
    )
    jump, stock = build_steps(length, settings, config, dropout)
    work = check_steps(name, jump, stock, config)
    work.announce(name)
    timing = settings.time([jump.run], [stock.run])
    note = UNFUSED if dropout > 0 and settings.device == "cpu" else ""
    facts: dict[str, Fact] = {**work.facts, "sequences": len(jump.batch["labels"])}
    return Outcome.of(timing, facts, note)


class TrainingStep:
    """A classifier with its optimizer and one batch; on the GPU under autocast to bfloat16."""

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
    jump = _jumping_step(length, settings, config, dropout)
    strengthen(jump, JUMP_LAYERS)
    return jump, _without_jumps(jump)


def build_training_steps(
    length: int, settings: Settings, config: JatConfig, dropout: float = 0.0
) -> tuple[TrainingStep, TrainingStep]:
    """A step with jump heads and one without, from the same random weights."""
    jump = _jumping_step(length, settings, config, dropout)
    return jump, _without_jumps(jump)


def _jumping_step(
    length: int, settings: Settings, config: JatConfig, dropout: float
) -> TrainingStep:
    sequences = max(1, TOKENS[settings.device] // length)
    batch = random_batch(SHAPE["vocab_size"], sequences, length, settings)
    model = _random_model(length, dropout).to(settings.torch_device).train()
    return TrainingStep(attach(model, config), batch, settings)


def _without_jumps(jump: TrainingStep) -> TrainingStep:
    return TrainingStep(detach(copy.deepcopy(jump.model)), jump.batch, jump.settings)


def check_steps(what: str, jump: TrainingStep, stock: TrainingStep, config: JatConfig) -> Work:
    """Refuse to go on unless jump heads change the loss, and only when they should.

    With hop 0 alone, and with an infinite threshold, both losses are equal to the bit.
    """
    base = stock.loss()
    for name, plain in (
        ("one hop of weight 1 at index 0", replace(config, hop_weights=(1.0,))),
        ("an infinite threshold", config.replace(threshold=math.inf)),
    ):
        attach(detach(jump.model), plain)
        require_equal(f"{what}, loss with {name}", jump.loss(), base)
    attach(detach(jump.model), config)
    return require_work(what, jump, base)


def require_work(what: str, jump: TrainingStep, base: Tensor) -> Work:  # []
    """Refuse to go on unless the jump heads of a model have work to do, and change the loss."""
    with capture_scores(jump.model) as layers:
        require_change(what, jump.loss(), base)
    found = [measure_work(_key_scores(layer), THRESHOLD) for layer in layers]
    work = Work(*(min(figures) for figures in zip(*map(_figures, found), strict=True)))
    work.require(what)
    return work


def require_change(what: str, loss: Tensor, base: Tensor) -> None:  # [] each
    """Refuse to go on unless jump heads change the loss."""
    if not loss.isfinite() or loss == base:
        raise CheckError(
            f"{what}: the loss with jump heads must be finite and differ from {base.item()}, "
            f"got {loss.item()}; nothing was timed"
        )


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
    if layer.config.graph.key_selection == "all":
        return spaced_scores(layer.query, layer.key, number_of_keys(layer.query.size(2)))
    source = QueryKeyScores(layer.query, layer.key, layer.scale)
    return open_ballot(layer.config, source, layer.mask).key_scores()[0]


def _figures(work: Work) -> tuple[float, float]:
    return work.joined, work.taking_part


MODEL = Benchmark(
    name="model",
    claim=(
        "A whole training step of a RoBERTa-base for classification, forward, backward and AdamW: "
        f"{NUM_HEADS} jump heads in the first {JUMP_LAYERS} layers against the same model and "
        "weights on stock SDPA. Weights are random, with queries of the jump heads scaled."
    ),
    series=model_series,
    bars=(
        Bar("cpu", step_name(JAT), "", 128, 128, 1.08),
        Bar("cpu", step_name(JAT), "", 512, 512, 1.15),
        Bar("cpu", step_name(EFFICIENT), "", 512, 512, 1.06),
        Bar("cpu", step_name(EFFICIENT), "", 4096, 4096, 1.08),
        Bar("cuda", step_name(JAT), "", 512, 512, 1.30),
        Bar("cuda", step_name(EFFICIENT), "", 512, 512, 1.10),
        Bar("cuda", step_name(EFFICIENT), "", 4096, 65536, 1.08),
    ),
)
