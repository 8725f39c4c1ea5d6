"""Which models and modules can have jump heads, and why the others cannot."""

import re
from typing import Any

import pytest
import torch
import transformers as hf
from transformers import PreTrainedModel

from jat_graph import JatConfig
from jat_graph.hf import attach, capture_scores
from tests.hf.encoders import T5
from tests.hf.models import (
    ARCHITECTURES,
    ENCODER,
    LENGTH,
    SIDE,
    VOCABULARY,
    run,
    tiny_config,
    tiny_inputs,
    tiny_model,
)

SIZES: dict[str, Any] = ENCODER | {"num_hidden_layers": 2}
GEMMA: dict[str, Any] = SIZES | {"num_key_value_heads": 2, "head_dim": 8}
BART: dict[str, Any] = {"vocab_size": VOCABULARY, "d_model": 32, "max_position_embeddings": 64}
BART |= {f"{part}_{key}": x for part in ("encoder", "decoder") for key, x in SIDE.items()}
INTERFACE = "does not go through transformers' attention interface"
SDPA = "does not support scaled dot product attention"

REFUSED = [
    ("MPNet", SIZES, rf"MPNetModel cannot .*MPNetSelfAttention.* {INTERFACE}"),
    ("Deberta", SIZES, rf"DebertaModel cannot .*DisentangledSelfAttention.* {INTERFACE}"),
    ("DebertaV2", SIZES, rf"DebertaV2Model cannot .*DisentangledSelfAttention.* {INTERFACE}"),
    ("Longformer", SIZES | {"attention_window": 4}, rf"LongformerSelfAttention.* {INTERFACE}"),
    ("BigBird", SIZES, rf"BigBirdModel cannot .*BigBird\w*Attention.* {INTERFACE}"),
    ("Nystromformer", SIZES, rf"NystromformerSelfAttention.* {INTERFACE}"),
    ("ConvBert", SIZES, rf"ConvBertSelfAttention.* {INTERFACE}"),
    ("LongT5", T5, "LongT5Model cannot .* is left unchanged"),
    ("PegasusX", BART, SDPA),
    ("BigBirdPegasus", BART, SDPA),
    ("T5", T5, "T5Attention is left unchanged, because it adds a position bias"),
    ("Gemma2", GEMMA, r"Gemma2Attention \(layers.0.self_attn\) cannot .* caps its scores"),
    ("GptOss", GEMMA | {"num_local_experts": 2}, r"GptOssAttention .* has attention sinks"),
]


def model_of(name: str, settings: dict[str, Any]) -> PreTrainedModel:
    torch.manual_seed(0)
    model: PreTrainedModel = getattr(hf, f"{name}Model")(getattr(hf, f"{name}Config")(**settings))
    return model.eval()


@pytest.mark.parametrize(
    ("name", "settings", "message"), [pytest.param(*case, id=case[0]) for case in REFUSED]
)
def test_models_that_cannot_jump_say_why_and_stay_as_they_were(name, settings, message):
    model = model_of(name, settings)
    before, implementation = model.config.to_dict(), model.config._attn_implementation
    with pytest.raises(ValueError, match=message):
        attach(model, tiny_config())
    assert model.config.to_dict() == before
    assert model.config._attn_implementation == implementation


COUNTS = {"albert": 1, "bart": 4}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_self_attention_is_found_in_order(name):
    model = attach(tiny_model(name), tiny_config(heads=4))
    with capture_scores(model) as found:
        run(model, tiny_inputs(name))
    assert [layer.layer for layer in found] == list(range(COUNTS.get(name, 3)))
    assert all(layer.heads == (0, 1, 2, 3) for layer in found)
    causal = {"gpt2": [True] * 3, "llama": [True] * 3, "bart": [False, False, True, True]}
    assert [layer.mask.causal for layer in found] == causal.get(name, [False] * len(found))


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_cross_attention_is_left_alone(name):
    settings = {"is_decoder": True} if name == "bert" else {}
    model = attach(tiny_model(name, add_cross_attention=True, **settings), tiny_config())
    encoded = torch.randn(3, LENGTH + 1, 32)  # other lengths would be refused in jump heads
    with capture_scores(model) as found:
        run(model, tiny_inputs(name), encoder_hidden_states=encoded, use_cache=False)
    assert [(layer.layer, layer.query.size(2)) for layer in found] == [
        (number, LENGTH) for number in range(3)
    ]
    assert all(layer.mask.causal for layer in found)


DECODER = GEMMA | {"num_hidden_layers": 3, "sliding_window": 8, "pad_token_id": 0}
LAYERS = {"layer_types": ["sliding_attention", "full_attention", "full_attention"]}
WINDOWS: dict[str, tuple[dict[str, Any], int, tuple[int, ...]]] = {
    "Mistral": ({}, 0, ()),
    "Phi3": ({}, 0, ()),
    "Qwen2": ({"use_sliding_window": True, "max_window_layers": 1}, 1, (0,)),
    "Qwen2Moe": ({"use_sliding_window": True, "num_experts": 4} | LAYERS, 0, (1, 2)),
    "Gemma3Text": (LAYERS, 0, (1, 2)),
    "ModernBert": ({"local_attention": 16, "global_attn_every_n_layers": 2}, 1, (0, 2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("kind", ["stones", "standard scores"])
def test_windows_of_a_models_own_are_refused_where_all_tokens_are_needed(name, kind):
    settings, first, whole = WINDOWS[name]
    model, ids = model_of(name, DECODER | settings), torch.randint(3, 50, (1, 20))
    stones = JatConfig.stones(strength=0.5)
    config = stones if kind == "stones" else tiny_config(standardize=True)
    none = "which no layer of this model sees; pairs without standardize read within it"
    cure = f": pass layers={whole}" if whole else f", {none}"
    size = 9 if name == "ModernBert" else 8  # it counts from the middle
    seen = f"{name.removesuffix('Text')}Attention of layer {first} sees a window, or chunk,"
    message = f"{seen} of {size} tokens, and {kind} need all of them{cure}"
    for layers in (None, (first,)):
        with pytest.raises(ValueError, match=re.escape(message) + "$"):
            attach(model, config.replace(layers=layers))
    remedy = config.replace(layers=whole) if whole else tiny_config(standardize=False)
    run(attach(model, remedy), {"input_ids": ids})
    if name != "ModernBert":  # a window of all 64 positions hides nothing
        attach(model_of(name, DECODER | settings | {"sliding_window": 64}), config)


def test_a_model_without_attention_says_so():
    sizes = {"hidden_sizes": [8, 8, 8, 8], "depths": [1, 1, 1, 1], "embedding_size": 8}
    with pytest.raises(ValueError, match=r"ResNetModel cannot .* it has no attention"):
        attach(model_of("ResNet", sizes), tiny_config())
