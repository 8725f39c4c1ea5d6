"""Small random models whose queries and keys are large enough for votes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch.testing import assert_close

from jat_graph import JatConfig, jump_operator
from jat_graph.hf import CapturedLayer, attach, capture_scores
from tests.oracles import (
    masked_softmax,
    reference_graph,
    reference_mask,
    reference_scores_propagated,
)

VOCABULARY = 50
LENGTH = 12
PAD = 0
# The tiny models' scores are about 0.02; SCALE makes a good half of their pairs join at THRESHOLD.
SCALE = 9.0
THRESHOLD = 1.0
QUERIES_AND_KEYS = re.compile(
    r"\b(query|key|query_key_value|qkv_proj|q_lin|k_lin|q_proj|k_proj|Wqkv|c_attn"
    r"|embeddings_project|embedding_hidden_mapping_in)\.weight$"
)

_WORDS: dict[str, Any] = {"vocab_size": VOCABULARY, "pad_token_id": PAD}
ENCODER: dict[str, Any] = _WORDS | {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}


SPECIAL: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2}
SIDE = {"layers": 2, "attention_heads": 4, "ffn_dim": 48}
_CONFIGS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "bert": (hf.BertModel, hf.BertConfig, ENCODER),
    "roberta": (hf.RobertaModel, hf.RobertaConfig, ENCODER),
    "distilbert": (
        hf.DistilBertModel,
        hf.DistilBertConfig,
        _WORDS | {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48},
    ),
    "albert": (hf.AlbertModel, hf.AlbertConfig, ENCODER | {"embedding_size": 16}),
    "electra": (hf.ElectraModel, hf.ElectraConfig, ENCODER | {"embedding_size": 16}),
    "modernbert": (
        hf.ModernBertModel,
        hf.ModernBertConfig,
        ENCODER
        | SPECIAL
        | {"cls_token_id": 1, "sep_token_id": 2}
        | {"local_attention": 8, "global_attn_every_n_layers": 3},
    ),
    "vit": (
        partial(hf.ViTModel, add_pooling_layer=False),
        hf.ViTConfig,
        {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
        | {"intermediate_size": 48, "image_size": 16, "patch_size": 4, "num_channels": 3},
    ),
    "gpt2": (
        hf.GPT2LMHeadModel,
        hf.GPT2Config,
        _WORDS | SPECIAL | {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64},
    ),
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig, ENCODER | SPECIAL | {"num_key_value_heads": 2}),
    "bart": (
        hf.BartModel,
        hf.BartConfig,
        _WORDS
        | SPECIAL
        | {f"{part}_{k}": v for part in ("encoder", "decoder") for k, v in SIDE.items()}
        | {"d_model": 32, "max_position_embeddings": 64, "decoder_start_token_id": 2},
    ),
    "opt": (hf.OPTForCausalLM, hf.OPTConfig, ENCODER | {"ffn_dim": 48, "word_embed_proj_dim": 32}),
}
ARCHITECTURES = tuple(name for name in _CONFIGS if name != "opt")
DECODERS = ("gpt2", "llama", "bart")
# Models that count padding among their positions.
COUNTS_PADDING = ("bert", "distilbert", "albert", "electra", "gpt2", "llama", "opt")
TEXT = tuple(name for name in ARCHITECTURES if name != "vit")


def tiny_model(name: str, *, scale: float = SCALE, **settings: Any) -> hf.PreTrainedModel:
    """Return a small random model in evaluation mode, its queries and keys scaled up."""
    torch.manual_seed(0)
    kind, config, fields = _CONFIGS[name]
    model: hf.PreTrainedModel = kind(config(**fields | settings)).eval()
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if QUERIES_AND_KEYS.search(path):
                weight.mul_(scale)
    return model


def tiny_config(**overrides: Any) -> JatConfig:
    """Return settings under which a good half of a tiny model's pairs join in two heads."""
    fixed = {} if "vote_rate" in overrides else {"threshold": THRESHOLD}
    return JatConfig.paper(**fixed | {"heads": (0, 2)} | overrides)


def tiny_jump_model(name: str, **overrides: Any) -> hf.PreTrainedModel:
    """Return a tiny model with jump heads."""
    return attach(tiny_model(name), tiny_config(**overrides))


def tiny_inputs(
    name: str,
    lengths: Sequence[int] = (LENGTH, LENGTH, LENGTH),
    *,
    side: str = "right",
    padded_to: int | None = None,
) -> dict[str, Tensor]:
    """Return random inputs; the same tokens for the same lengths, whatever the padding."""
    if name == "vit":
        generator = torch.Generator().manual_seed(1)
        return {"pixel_values": torch.randn(len(lengths), 3, 16, 16, generator=generator)}
    width = padded_to or max(lengths)
    ids = torch.full((len(lengths), width), PAD)
    for row, length in enumerate(lengths):
        ids[row, place(length, width, side)] = _tokens(row, length)
    inputs = {"input_ids": ids}
    if min(lengths) < width:
        inputs["attention_mask"] = (ids != PAD).long()
    if name == "bart":
        inputs |= {f"decoder_{key}": value.clone() for key, value in inputs.items()}
    if name in COUNTS_PADDING and "attention_mask" in inputs:
        inputs["position_ids"] = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    return inputs


def _tokens(row: int, length: int) -> Tensor:
    generator = torch.Generator().manual_seed(100 + row)
    return torch.randint(3, VOCABULARY, (LENGTH * 4,), generator=generator)[:length]


def place(length: int, width: int, side: str) -> slice:
    """Return where the valid tokens of a padded row are."""
    return slice(width - length, width) if side == "left" else slice(0, length)


def run(model: nn.Module, inputs: Mapping[str, Tensor], **kwargs: Any) -> Tensor:
    """Return a model's logits or last hidden states, without gradients."""
    with torch.no_grad():
        return main_output(model(**inputs, **kwargs))


def main_output(outputs: Any) -> Tensor:
    """Return logits or last hidden states."""
    result: Tensor = outputs["logits"] if "logits" in outputs else outputs["last_hidden_state"]
    return result


# Paddings of three sequences.
PADDINGS = [
    pytest.param((LENGTH,) * 3, "right", id="unpadded"),
    pytest.param((LENGTH, 9, 6), "right", id="right"),
    pytest.param((LENGTH, 9, 6), "left", id="left"),
]


def assert_padding_changes_nothing(
    model: nn.Module, inputs: Mapping[str, Any], lengths: Sequence[int], side: str, atol: float
) -> None:
    """Assert that each row of a batch is what its valid tokens give alone."""
    whole = run(model, inputs)
    for row, length in enumerate(lengths):
        valid = place(length, whole.size(1), side)
        alone = {
            key: value[row : row + 1, valid] if isinstance(value, Tensor) else value
            for key, value in inputs.items()
        }
        assert_close(whole[row, valid], run(model, alone)[0], rtol=0, atol=atol)


def assert_joins(model: nn.Module, inputs: Mapping[str, Tensor]) -> list[CapturedLayer]:
    """Return what was captured: each layer's jump heads join 10 to 90 % of the allowed pairs."""
    with capture_scores(model) as layers:
        run(model, inputs)
    assert layers
    for layer in layers:
        joined = density(layer)
        assert 0.1 <= joined <= 0.9, f"layer {layer.layer} joins {joined:.0%} of its pairs"
    return layers


def density(layer: CapturedLayer) -> float:
    """Return the share of the allowed pairs i ≠ k that are joined in a layer's jump heads."""
    config = layer.config.replace(soft_temperature=None)  # hard votes are counted
    batch, heads, length, _ = layer.query.shape
    mask = layer.mask.allowed(length, layer.query.device)
    valid = None if layer.mask.valid is None else layer.mask.valid.unsqueeze(-2)
    operator = jump_operator(
        layer.query,
        layer.key,
        config=config,
        attention_mask=valid if layer.mask.pairs is None else mask,
        is_causal=layer.mask.causal,
        scale=layer.scale,
        excluded=None if layer.mask.excluded is None else layer.mask.excluded[:, 0],
    )
    joined = operator.base.to_dense() > 0
    edges = joined.new_ones(batch, heads, length, length) if mask is None else mask
    edges = edges.expand_as(joined) & ~torch.eye(length, dtype=torch.bool, device=joined.device)
    assert not bool((joined & ~edges).any())
    return float(joined.sum() / edges.sum())


def reference_rows(layer: CapturedLayer, hop_weights: Any = (0.0, 1.0)) -> Tensor:
    """Return the jump heads' attention probabilities in float64, by the reference."""
    query = layer.query.double()
    mask = layer.mask.allowed(query.size(2), query.device)
    scores = reference_scores_of(layer, hop_weights)
    return masked_softmax(scores, reference_mask(query, mask).visible)


def reference_scores_of(layer: CapturedLayer, hop_weights: Any = (0.0, 1.0)) -> Tensor:
    """Return the jump heads' propagated scores in float64, by the reference."""
    query, key = layer.query.double(), layer.key.double()
    threshold = torch.tensor(layer.config.graph.threshold, dtype=torch.float64)
    graph = reference_graph(
        query,
        key,
        threshold=threshold.expand(query.size(0), query.size(1)),
        attention_mask=layer.mask.allowed(query.size(2), query.device),
        scale=layer.scale,
    )
    return layer.scale * reference_scores_propagated(query, key, graph.adj_norm, hop_weights)


def strengths(model: nn.Module) -> list[nn.Parameter]:
    """Return the learned strengths of a model."""
    return [weight for name, weight in model.named_parameters() if name.endswith(".theta")]


def strengthened(model: nn.Module) -> Any:
    """Give all strengths of a model numbers other than 0, each another."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for theta in strengths(model):
            theta.copy_(torch.rand(theta.shape, generator=generator) + 0.3)
    return model


def heads_read(model: Any, inputs: dict[str, Tensor]) -> tuple[list[Tensor], Tensor]:
    """Return queries, keys and values of BERT's first layer, and what its heads read of them."""
    module, seen = model.encoder.layer[0].attention.self, {}
    hooks = [
        part.register_forward_hook(lambda *call, name=name: seen.update({name: call[-1]}))
        for name, part in (("q", module.query), ("k", module.key), ("v", module.value))
    ]
    hooks.append(module.register_forward_hook(lambda *call: seen.update(out=call[-1][0])))
    run(model, inputs)
    for hook in hooks:
        hook.remove()
    parts = [seen[name].unflatten(-1, (4, -1)).transpose(1, 2) for name in ("q", "k", "v", "out")]
    return parts[:3], parts[3]
