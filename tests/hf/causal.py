"""Small random decoders of many families that read by clusters, and their inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import transformers as hf
from torch import Tensor

from jat_graph import JatConfig, attach
from tests.hf.encoders import WHISPER, built
from tests.hf.models import ENCODER, PAD, SPECIAL, VOCABULARY, place, tiny_model

LONG = 52  # tokens, so that there are clusters of clusters
LENGTHS = (LONG, LONG - 9)
RULE: dict[str, Any] = {"keys": 4, "groups": 1, "size": 2, "segment": 4, "window": 2}
CLUSTERS = RULE | {"dense_below": 0}

_GROUPED: dict[str, Any] = ENCODER | SPECIAL | {"num_key_value_heads": 2}
_LOCAL: dict[str, Any] = _GROUPED | {"num_hidden_layers": 4, "head_dim": 8, "sliding_window": 8}
_LOCAL |= {"layer_types": ["sliding_attention", "full_attention"] * 2, "query_pre_attn_scalar": 8}


def _bart() -> hf.PreTrainedModel:
    fields = tiny_model("bart").config.to_dict()
    return built(hf.BartForConditionalGeneration, hf.BartConfig, **fields)


FAMILIES: dict[str, Callable[[], hf.PreTrainedModel]] = {
    "gpt2": partial(tiny_model, "gpt2"),
    "llama": partial(tiny_model, "llama"),
    "opt": partial(tiny_model, "opt"),
    "bart": _bart,
    "whisper": partial(built, hf.WhisperForConditionalGeneration, hf.WhisperConfig, **WHISPER),
    "qwen2": partial(built, hf.Qwen2ForCausalLM, hf.Qwen2Config, **_GROUPED),
    "qwen3": partial(built, hf.Qwen3ForCausalLM, hf.Qwen3Config, **_GROUPED | {"head_dim": 8}),
    "gpt neox": partial(built, hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig, **ENCODER | SPECIAL),
    "mistral": partial(
        built, hf.MistralForCausalLM, hf.MistralConfig, **_GROUPED | {"sliding_window": None}
    ),
    "gemma3": partial(built, hf.Gemma3ForCausalLM, hf.Gemma3TextConfig, **_LOCAL),
    "phi3": partial(built, hf.Phi3ForCausalLM, hf.Phi3Config, **_GROUPED),
    "clip text": partial(built, hf.CLIPTextModel, hf.CLIPTextConfig, **ENCODER | SPECIAL),
}
CACHED = [name for name in FAMILIES if name != "clip text"]
SERVED = {"bart": 2, "whisper": 2, "gemma3": 2}  # layers; all three of others
_WITH_ENCODERS = ("bart", "whisper")  # whose decoders have layers 2 and 3


def decoder(name: str, by_name: bool = True, **settings: Any) -> Any:
    """Return a tiny decoder in float64 that reads by clusters."""
    model = FAMILIES[name]().double()
    if by_name:
        model.config.clustered = CLUSTERS | settings
        model.set_attn_implementation("clustered")
        return model
    fields = CLUSTERS | {"layers": (2, 3) if name in _WITH_ENCODERS else None} | settings
    return attach(model, JatConfig.clustered(**fields))


def decoder_inputs(
    name: str, lengths: Sequence[int] = LENGTHS, side: str = "left"
) -> dict[str, Tensor]:
    """Return random tokens, and what an encoder reads."""
    generator = torch.Generator().manual_seed(1)
    rows, width = len(lengths), max(lengths)
    ids = torch.randint(3, VOCABULARY, (rows, width), generator=generator)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        mask[row, place(length, width, side)] = 1
    ids[mask == 0] = PAD
    inputs = {"input_ids": ids, "attention_mask": mask}
    if name not in _WITH_ENCODERS:
        return inputs | {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    inputs = {f"decoder_{key}": value for key, value in inputs.items()}
    if name == "whisper":
        sounds = torch.randn(rows, 8, 40, generator=generator, dtype=torch.float64)
        return inputs | {"input_features": sounds}
    return inputs | {"input_ids": torch.randint(3, VOCABULARY, (rows, 7), generator=generator)}
