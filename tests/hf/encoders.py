"""Small random encoders of many families, and what their attention is called with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from tests.hf.models import (
    ENCODER,
    LENGTH,
    PAD,
    QUERIES_AND_KEYS,
    SIDE,
    SPECIAL,
    VOCABULARY,
    tiny_inputs,
    tiny_model,
)

# Few enough to leave something to clusters: three blocks of one token and three keys.
LENGTHS = (LENGTH, 9, 6)
SETTINGS: dict[str, Any] = {"keys": 2, "size": 2, "segment": 4, "dense_below": 0}


class Family(NamedTuple):
    """How to build a model and its inputs, and what clusters serve in it."""

    build: Callable[[], hf.PreTrainedModel]
    inputs: Callable[[tuple[int, ...], str], dict[str, Tensor]]
    served: int  # calls of attention in a forward that clusters serve ...
    others: int = 0  # ... and those that they do not


def built(kind: Any, config: Any, **fields: Any) -> hf.PreTrainedModel:
    """Return a small random model whose queries and keys are large."""
    torch.manual_seed(0)
    model: hf.PreTrainedModel = kind(config(**fields)).eval()
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if QUERIES_AND_KEYS.search(path):
                weight.mul_(9.0)
    return model


def _tokens(name: str, lengths: tuple[int, ...], side: str) -> dict[str, Tensor]:
    return tiny_inputs(name, lengths, side=side)


def _text(kind: Any, config: Any, served: int, others: int = 0, **fields: Any) -> Family:
    build = partial(built, kind, config, **ENCODER | fields)
    return Family(build, partial(_tokens, "roberta"), served, others)


def _known(name: str, served: int, others: int = 0) -> Family:
    return Family(partial(tiny_model, name), partial(_tokens, name), served, others)


def _pixels(kind: Any, config: Any, served: int, **fields: Any) -> Family:
    sizes = {"image_size": 16, "patch_size": 4, "num_channels": 3, "hidden_size": 32}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    build = partial(built, kind, config, **sizes | fields)
    return Family(build, partial(_tokens, "vit"), served)


def _sounds(name: str, shape: tuple[int, ...]) -> Callable[..., dict[str, Tensor]]:
    def inputs(lengths: tuple[int, ...], side: str) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(1)
        return {name: torch.randn(len(lengths), *shape, generator=generator)}

    return inputs


WHISPER: dict[str, Any] = SPECIAL | {"d_model": 32, "num_mel_bins": 8, "max_source_positions": 20}
WHISPER |= {"pad_token_id": PAD, "vocab_size": VOCABULARY, "decoder_start_token_id": 1}
WHISPER |= {f"{part}_{k}": v for part in ("encoder", "decoder") for k, v in SIDE.items()}
_WAVES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_WAVES |= {"intermediate_size": 48, "conv_dim": (16, 16), "conv_stride": (5, 4)}
_WAVES |= {"conv_kernel": (8, 4), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4}
_WAVES |= {"num_conv_pos_embedding_groups": 2, "vocab_size": VOCABULARY}
_GEMMA = SPECIAL | {"num_key_value_heads": 2, "head_dim": 8, "use_bidirectional_attention": True}
_GEMMA |= {"layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2}
_GEMMA |= {"sliding_window": 4, "query_pre_attn_scalar": 8}
T5: dict[str, Any] = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
T5 |= {"vocab_size": VOCABULARY}

FAMILIES: dict[str, Family] = {
    "bert": _known("bert", 3),
    "roberta": _known("roberta", 3),
    "distilbert": _known("distilbert", 3),
    "albert": _known("albert", 3),
    "electra": _known("electra", 3),
    "modernbert": _known("modernbert", 1, 2),  # two layers are local
    "bart": Family(lambda: tiny_model("bart").get_encoder(), partial(_tokens, "roberta"), 2),
    "xlm-roberta": _text(hf.XLMRobertaModel, hf.XLMRobertaConfig, 3),
    "camembert": _text(hf.CamembertModel, hf.CamembertConfig, 3),
    "esm": _text(hf.EsmModel, hf.EsmConfig, 3, position_embedding_type="rotary", mask_token_id=3),
    "nomic": _text(hf.NomicBertModel, hf.NomicBertConfig, 3, head_dim=8),
    "eurobert": _text(
        hf.EuroBertModel, hf.EuroBertConfig, 3, num_key_value_heads=2, mask_token_id=3, **SPECIAL
    ),
    "gemma3": _text(hf.Gemma3TextModel, hf.Gemma3TextConfig, 1, 1, **_GEMMA),
    "vit": _known("vit", 3),
    "clip vision": _pixels(hf.CLIPVisionModel, hf.CLIPVisionConfig, 2),
    "siglip vision": _pixels(hf.SiglipVisionModel, hf.SiglipVisionConfig, 2),
    "dinov2": _pixels(hf.Dinov2Model, hf.Dinov2Config, 2),
    "whisper": Family(
        lambda: built(hf.WhisperModel, hf.WhisperConfig, **WHISPER).encoder,
        _sounds("input_features", (8, 40)),
        2,
    ),
    "wav2vec2": Family(
        partial(built, hf.Wav2Vec2Model, hf.Wav2Vec2Config, **_WAVES),
        _sounds("input_values", (400,)),
        2,
    ),
    "t5": Family(
        partial(built, hf.T5EncoderModel, hf.T5Config, **T5),
        partial(_tokens, "roberta"),
        0,
        2,
    ),
}
TEXTS = tuple(
    name for name, family in FAMILIES.items() if "input_ids" in family.inputs((3,), "left")
)


def clustered_model(name: str, **settings: Any) -> hf.PreTrainedModel:
    """Return a tiny encoder that reads by clusters, by name."""
    model = FAMILIES[name].build()
    model.config.clustered = SETTINGS | settings
    model.set_attn_implementation("clustered")
    return model


class Call(NamedTuple):
    """What an attention module was called with, and what it gave."""

    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    options: dict[str, Any]
    output: Tensor  # [B, H, L, Dv]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """All calls of attention by clusters, as they come."""
    found: list[Call] = []
    inner = ALL_ATTENTION_FUNCTIONS["clustered"]

    def spy(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        output, rows = inner(module, query, key, value, mask, **kwargs)
        found.append(Call(module, query, key, value, mask, kwargs, output.transpose(1, 2)))
        return output, rows

    monkeypatch.setitem(type(ALL_ATTENTION_FUNCTIONS)._global_mapping, "clustered", spy)
    return found
