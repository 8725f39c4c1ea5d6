"""Decoders whose layers share keys, hold states beside them, or read within windows in places."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf
from torch.testing import assert_close

from jat_graph import JatConfig, PairGraph, attach
from jat_graph.hf import register_clustered

MIXED = ["sliding_attention", "full_attention"] * 2
SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 99, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
    "initializer_range": 0.2,  # so that what heads change is seen
}  # fmt: skip
SHARED = {
    "layer_types": MIXED, "sliding_window": 16, "num_kv_shared_layers": 2,
    "max_position_embeddings": 256, "vocab_size_per_layer_input": 99, "laurel_rank": 4,
    "hidden_size_per_layer_input": 4, "global_head_dim": 8, "num_global_key_value_heads": 2,
}  # fmt: skip
MAMBA = {
    "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8,
    "mamba_n_groups": 1,
}  # fmt: skip
ZAMBA = {
    "mamba_d_state": 8, "n_mamba_heads": 2, "layers_block_type": ["mamba", "hybrid"] * 2,
    "attention_hidden_size": 64, "attention_head_dim": 16, "use_mamba_kernels": False,
}  # fmt: skip
MINIMAX = {
    "layer_types": ["linear_attention", "full_attention"] * 2, "num_local_experts": 2,
    "num_experts_per_tok": 1, "block_size": 8,
}  # fmt: skip
CHUNKS = {
    "layer_types": ["chunked_attention", "full_attention"] * 2, "attention_chunk_size": 16,
    "num_local_experts": 1, "num_experts_per_tok": 1, "intermediate_size_mlp": 48,
    "no_rope_layers": [1, 0, 1, 0],
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Gemma3n": ("Gemma3nTextConfig", SHARED),
    "Gemma4": ("Gemma4TextConfig", SHARED),
    "FalconH1": ("FalconH1Config", MAMBA),
    "Exaone4": ("Exaone4Config", {"layer_types": MIXED, "sliding_window": 16}),
    "DiffLlama": ("DiffLlamaConfig", {}),
    "HrmText": ("HrmTextConfig", {}),
    "Zamba": ("ZambaConfig", ZAMBA),
    "MiniMax": ("MiniMaxConfig", MINIMAX),
    "Llama4": ("Llama4TextConfig", CHUNKS),
}
CLUSTERS: dict[str, Any] = {"keys": 4, "size": 4, "segment": 8, "dense_below": 0}
HEADS = {
    "clusters": JatConfig.clustered(**CLUSTERS),
    "stones": JatConfig.stones(key_selection="all", strength=0.5),
    "pairs": JatConfig(PairGraph(threshold=0.01), heads=2),
}
IDS = torch.randint(3, 99, (2, 90), generator=torch.Generator().manual_seed(0))
LEFT = torch.ones_like(IDS)
LEFT[0, :13] = 0

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def model_of(name: str) -> Any:
    config, more = MODELS[name]
    torch.manual_seed(0)
    made = getattr(hf, config)(**{**SIZES, **more})
    return getattr(hf, f"{name}ForCausalLM")(made).eval()


def tokens(model: Any, **options: Any) -> list[list[int]]:
    settings: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None}
    found: list[list[int]] = model.generate(IDS, **settings, **options)[:, -4:].tolist()
    return found


def last_logits(model: Any, cached: bool) -> torch.Tensor:
    """Return the logits of the last token, read alone after a prompt, or with all."""
    with torch.no_grad():
        if not cached:
            return model(IDS, use_cache=False).logits[:, -1]
        cache = model(IDS[:, :-1], use_cache=True).past_key_values
        return model(IDS[:, -1:], past_key_values=cache, use_cache=True).logits[:, -1]


WHOLE = ["Gemma3n", "Gemma4", "FalconH1", "Exaone4", "Llama4"]


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", WHOLE)
def test_a_cache_changes_nothing(name, heads):
    layers = (1,) if heads == "stones" and name != "FalconH1" else None  # those that see all
    plain = last_logits(model_of(name).double(), False)
    model = attach(model_of(name), HEADS[heads].replace(layers=layers)).double()
    whole = last_logits(model, False)
    assert (whole - plain).abs().max() > 1e-3
    if heads == "pairs" and name != "FalconH1":  # their windows are shorter than the text
        with pytest.raises(ValueError, match=r"DynamicSlidingWindowLayer.* or use_cache=False"):
            last_logits(model, True)
    else:
        assert_close(last_logits(model, True), whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", WHOLE)
def test_by_name_a_cache_changes_nothing(name):
    model = model_of(name).double()
    plain = last_logits(model, False)
    model.set_attn_implementation(register_clustered(**CLUSTERS))
    whole = last_logits(model, False)
    assert (whole - plain).abs().max() > 1e-3
    assert_close(last_logits(model, True), whole, rtol=0, atol=1e-5)


LEFT_ALONE = [
    ("Zamba", "it serves layers whose numbers it does not know"),
    ("DiffLlama", "it calls attention in several places"),
    ("HrmText", "it keeps its keys in a cache under other numbers than its own"),
]


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize(("name", "reason"), LEFT_ALONE)
def test_modules_that_no_heads_can_read_are_refused(name, reason, heads):
    with pytest.raises(ValueError, match=reason):
        attach(model_of(name), HEADS[heads])


@pytest.mark.parametrize(("name", "reason"), LEFT_ALONE)
def test_by_name_sdpa_reads_what_clusters_cannot_and_its_reason_is_said(name, reason):
    model = model_of(name)
    plain = last_logits(model, False)
    model.set_attn_implementation(register_clustered(**CLUSTERS))
    with pytest.warns(UserWarning, match=f"on SDPA instead of clusters where {reason}"):
        assert torch.equal(last_logits(model, False), plain)


@pytest.mark.parametrize("heads", HEADS)
def test_a_mask_of_one_column_is_one_line(heads):
    model = attach(model_of("MiniMax"), HEADS[heads])
    with pytest.raises(ValueError, match="a column for each key, got 1 columns for 91 keys"):
        tokens(model, attention_mask=LEFT)


def test_stones_name_the_layers_that_read_no_chunks():
    message = r"of layer 0 sees a window, or chunk, of 16 tokens.*: pass layers=\(1, 3\)"
    with pytest.raises(ValueError, match=message):
        attach(model_of("Llama4"), HEADS["stones"])
