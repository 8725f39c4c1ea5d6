"""``decoding``: the time of one new token with a cache, against computing all tokens again."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from jat_graph.config import JatConfig
from jat_graph.hf import attach
from jat_graph.inspection.calibration import calibrate
from jat_graph.lab.speed.checks import require_equal
from jat_graph.lab.speed.series import Bar, Benchmark, Outcome, Series, Settings

SHAPE: dict[str, int] = {
    "vocab_size": 1000,
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 512,
}
STEP = 64  # every so many keys vote
DENSITY = 0.5  # of the graphs, on other tokens
CALIBRATION_TOKENS = 256
SPREAD = 8.0  # of queries and keys, whose products are next to nothing in an untrained model
BASE, STRIDED, ALL = "stock SDPA", f"JAT, every {STEP}th key", "JAT, all keys"
SELECTIONS: dict[str, dict[str, Any] | None] = {
    BASE: None,
    STRIDED: {"key_selection": "strided", "key_step": STEP},
    ALL: {"key_selection": "all"},
}
STONES, STONES_ALL = f"stones, every {STEP}th key", "stones, all keys"
OVER_STONES = {"graph": "stones", "strength": 0.5}
SELECTIONS |= {
    STONES: {**OVER_STONES, "key_selection": "strided", "key_step": STEP},
    STONES_ALL: {**OVER_STONES, "key_selection": "all"},
}
AGAINST = "the same without a cache"
AGAINST_BASE = f"{BASE} with its cache"
LENGTHS = {
    BASE: (512, 1024, 2048, 4096, 8192),
    STRIDED: (512, 1024, 2048, 4096, 8192),
    ALL: (512, 1024, 2048),  # the prompt itself takes L³ comparisons
    STONES: (512, 1024, 2048, 4096, 8192),
    STONES_ALL: (512, 1024, 2048),
}
DRIFT = 16  # a cache grows by 1/16 before it is cropped


class Decoder:
    """A Llama without training whose cache holds a prompt; without a selection no head jumps."""

    def __init__(self, length: int, settings: Settings, selection: dict[str, Any] | None) -> None:
        generator = torch.Generator().manual_seed(length)
        tokens = torch.randint(SHAPE["vocab_size"], (1, length + 1), generator=generator)
        self.tokens = tokens.to(settings.torch_device)
        self.model = _build_model(length, settings)
        if selection is not None:
            config = JatConfig.paper(heads=SHAPE["num_attention_heads"], **selection)
            batch = {"input_ids": self.tokens.flip(-1)[:, :CALIBRATION_TOKENS]}
            if config.graph.kind == "pairs":
                config = calibrate(self.model, [batch], density=DENSITY, config=config)
            attach(self.model, config)
        with torch.no_grad():
            self.cache = self.model(self.tokens[:, :-1], use_cache=True).past_key_values

    def next_token(self) -> Tensor:  # [1, vocabulary]
        """The logits after one more token, which the cache then holds."""
        length = self.tokens.size(1) - 1
        spare = self.cache.get_seq_length() - length
        if spare > length // DRIFT:
            self.cache.crop(-spare)
        with torch.no_grad():
            outputs = self.model(self.tokens[:, -1:], past_key_values=self.cache)
        logits: Tensor = outputs.logits[:, -1]
        return logits

    def all_tokens(self) -> Tensor:  # [1, vocabulary]
        """The same logits, computed from all tokens again."""
        with torch.no_grad():
            outputs = self.model(self.tokens, use_cache=False, logits_to_keep=1)
        logits: Tensor = outputs.logits[:, -1]
        return logits


def decoding_series(settings: Settings) -> tuple[Series, ...]:
    """Each way of choosing keys over its own lengths."""
    return tuple(
        Series(
            what,
            AGAINST_BASE if what in (STONES, STONES_ALL) else AGAINST,
            lengths,
            2 * lengths[-1],
            partial(_measure, what=what),
        )
        for what, lengths in LENGTHS.items()
    )


def _measure(length: int, settings: Settings, what: str) -> Outcome:
    decoder = Decoder(length, settings, SELECTIONS[what])
    chosen = decoder.next_token().argmax(-1), decoder.all_tokens().argmax(-1)
    require_equal(f"{what}, L={length}", *chosen)
    other = decoder.all_tokens
    if what in (STONES, STONES_ALL):
        other = Decoder(length, settings, None).next_token
    timing = settings.time([decoder.next_token], [other])
    return Outcome.of(timing, {"layers": SHAPE["num_hidden_layers"]})


def _build_model(length: int, settings: Settings) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(max_position_embeddings=2 * length, **SHAPE)  # type: ignore[arg-type]
    model = LlamaForCausalLM(config).eval()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        for layer in model.model.layers:
            for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                projection.weight.mul_(SPREAD)
    return model.to(settings.torch_device, settings.dtype)


DECODING = Benchmark(
    name="decoding",
    claim=(
        "One new token after L others, B = 1, a Llama of 2 layers, 4 heads and D = 64, every head "
        "jumping with half of the pairs joined: with a KV cache, against computing all tokens "
        "again; every head jumping along stones, with a cache, against the same model without "
        "jumps and with its cache. The slope is that of the least-squares line through the "
        "logarithms of length and time."
    ),
    series=decoding_series,
    growing=("ours", "theirs"),
    bars=(Bar("cpu", STONES, AGAINST_BASE, 8192, 8192, 1.5),),
)
