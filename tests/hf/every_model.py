"""What becomes of every model class of transformers that can be built small, on "clustered"."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, NamedTuple

import torch
import transformers as hf
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, AutoConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_MAPPING_NAMES,
)

from jat_graph.hf import LayerSupport, register_clustered, supports

SMALL: dict[str, Any] = (
    dict.fromkeys(("hidden_size", "d_model", "dim", "n_embd", "embed_dim", "embedding_size"), 32)
    | dict.fromkeys(("hidden_dim", "intermediate_size", "ffn_dim", "d_ff", "n_inner"), 48)
    | dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "ffn_hidden_size"), 48)
    | dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 16)
    | dict.fromkeys(("num_hidden_layers", "n_layers", "n_layer", "num_layers", "depth"), 2)
    | dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers", "layers"), 2)
    | dict.fromkeys(("num_attention_heads", "n_heads", "n_head", "num_heads"), 4)
    | dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "attention_heads"), 4)
    | dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "n_mamba_heads"), 2)
    | dict.fromkeys(("num_experts_per_tok", "n_group", "topk_group", "first_k_dense_replace"), 1)
    | dict.fromkeys(("max_position_embeddings", "n_positions", "max_target_positions"), 128)
    | {"vocab_size": 99, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    | {"num_key_value_heads": 2, "head_dim": 8, "d_kv": 8, "attention_head_dim": 8}
    | {"image_size": 32, "patch_size": 8, "num_mel_bins": 16, "max_source_positions": 64}
    | {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8}
    | {"sliding_window": 16, "attention_window": 8, "q_lora_rank": 16, "kv_lora_rank": 16}
    | dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "rotary_dim"), 8)
    | {"vocab_size_per_layer_input": 99, "hidden_size_per_layer_input": 4, "laurel_rank": 4}
    | {"initializer_range": 0.1, "init_std": 0.1}  # so that tokens change each other
    | {"chunk_size": 16, "conv_dim": (32, 32), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
    | {"num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16, "projection_dim": 32}
    | {"upsample_initial_channel": 32, "latent_query_num": 8, "max_num_patches": 64}
)
LENGTH, FIRST = 40, 31  # tokens of a text, and those before a cache
EXACT = register_clustered(keys=4096, groups=64, size=4, segment=8, dense_below=0)
READING: dict[str, Any] = {"keys": 2, "groups": 1, "size": 2, "segment": 8, "window": 1}
READING |= {"dense_below": 0}
WATCHED = "clustered:watched"
MOST = 20_000_000  # parameters of what counts as small


class Row(NamedTuple):
    """A line of the table: what a class does by name; a dash where its base cannot show it."""

    model: str
    layers: str  # what its attention modules do, and why
    exact: str  # whether with every key exact it gives what it gives on SDPA
    causal: str  # whether later tokens change nothing
    cached: str  # whether a cache changes nothing
    padded: str  # whether padding changes nothing


def model_classes() -> dict[str, str]:
    """Return the class of transformers for each type of model that Auto classes know."""
    named = {**MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, **MODEL_MAPPING_NAMES}
    first = {key: name if isinstance(name, str) else name[0] for key, name in named.items()}
    return {key: first[key] for key in CONFIG_MAPPING if key in first}


def small_config(kind: Any) -> Any:
    """Return a configuration of two short layers, its parts' ones as well."""
    default = kind()
    fields: dict[str, Any] = {}
    for name, value in SMALL.items():
        own = vars(default).get(name)
        if isinstance(own, list | tuple):
            fields[name] = type(own)(value if isinstance(value, tuple) else (value,) * 2)
        elif isinstance(own, type(value)) or (name == "vocab_size" and name in vars(default)):
            fields[name] = value
    for name, part in default.sub_configs.items():
        own = getattr(default, name, None)
        if own is not None:
            fields[name] = small_config(type(own) if part is AutoConfig else part)
    if "kv_lora_rank" in vars(default):  # which all heads share
        fields["num_key_value_heads"] = SMALL["num_attention_heads"]
    types = vars(default).get("layer_types")
    if types:
        fields["layer_types"] = [types[0], next((x for x in types if x != types[0]), types[0])]
    made = kind(**fields)
    made._experts_implementation = "eager"  # others are of no float64
    return made


def inputs_of(model: Any) -> dict[str, Tensor]:
    """Return two texts, pictures or sounds."""
    draw = torch.Generator().manual_seed(0)
    config = model.config
    ids = torch.randint(3, 90, (2, LENGTH), generator=draw)
    name = model.main_input_name
    if name == "pixel_values":
        size = getattr(config, "image_size", 32)
        sides = size if isinstance(size, (list, tuple)) else (size, size)
        found = {name: torch.randn(2, 3, *sides, generator=draw, dtype=torch.double)}
    elif name == "input_values":
        found = {name: torch.randn(2, 1600, generator=draw, dtype=torch.double)}
    elif name == "input_features":
        width = getattr(config, "feature_projection_input_dim", None)
        shape = (128, width) if width else (getattr(config, "num_mel_bins", 16), 128)
        found = {name: torch.randn(2, *shape, generator=draw, dtype=torch.double)}
    else:
        found = {"input_ids": ids}
    if "decoder_input_ids" in inspect.signature(model.forward).parameters:
        found["decoder_input_ids"] = ids.flip(0)
    return found


def states(model: Any, **inputs: Any) -> Tensor:
    """Return the first output of a model, whose draws are the same each time: states or logits."""
    torch.manual_seed(0)
    with torch.no_grad():
        output = model(**inputs)
    return next(x for x in output.to_tuple() if isinstance(x, Tensor))


def alike(one: Tensor, other: Tensor) -> bool:
    """Tell whether two outputs differ by no more than rounding in float32."""
    return bool((one - other).abs().max() <= 2e-4 * other.abs().max())


def later_tokens_change_nothing(model: Any, inputs: dict[str, Any], want: Tensor) -> bool:
    name = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"
    changed = inputs[name].clone()
    changed[:, FIRST:] = 5
    others = states(model, **inputs | {name: changed})
    return alike(others[:, :FIRST], want[:, :FIRST])


def cache_changes_nothing(model: Any, inputs: dict[str, Any], want: Tensor) -> bool:
    name = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"
    ids = inputs[name]
    with torch.no_grad():
        first = model(**inputs | {name: ids[:, :FIRST]}, use_cache=True)
        more = {"past_key_values": first.past_key_values, "use_cache": True}
        last = states(model, **inputs | {name: ids[:, FIRST:]}, **more)
    return alike(last, want[:, FIRST:])


def padding_changes_nothing(model: Any, inputs: dict[str, Any], _: Tensor) -> bool:
    mask = torch.ones_like(inputs["input_ids"])
    mask[0, FIRST:] = 0
    ids = inputs["input_ids"].masked_fill(mask == 0, SMALL["pad_token_id"])
    whole = inputs | {"input_ids": ids, "attention_mask": mask}
    alone = {name: value[:1] for name, value in inputs.items()}
    alone["input_ids"] = ids[:1, :FIRST]
    first = states(model, **whole)[:1]
    number = FIRST if "decoder_input_ids" not in inputs else LENGTH
    return alike(first[:, :number], states(model, **alone))


CHECKS = (later_tokens_change_nothing, cache_changes_nothing, padding_changes_nothing)


def holds(check: Any, model: Any, inputs: dict[str, Any], want: Tensor) -> bool:
    """Tell whether a base shows a property; what cannot be asked it does not have."""
    try:
        return bool(check(model, inputs, want))
    except Exception:  # of any kind, as it is its own
        return False


def watch(called: dict[Any, bool], module: Any, *args: Any, **kwargs: Any) -> Any:
    """Note of a module whether what it reads by name is not what SDPA reads."""
    inner: Any = AttentionInterface()["clustered"]
    output = partial(inner.func, READING)(module, *args, **kwargs)
    plain = sdpa_attention_forward(module, *args, **kwargs)
    if args[1].size(2) >= LENGTH // 2:  # of fewer keys all are exact
        called[module] = called.get(module, False) or not torch.equal(output[0], plain[0])
    return output


def row_of(key: str) -> tuple[Row | None, list[LayerSupport], dict[str, bool]]:
    """Return a class's row, what supports says, and which modules then read by clusters.

    The row is None for what cannot be built small, or runs on no text, picture or sound of ours.
    """
    name = model_classes()[key]
    try:
        torch.manual_seed(0)
        base = getattr(hf, name)(small_config(CONFIG_MAPPING[key])).double().eval()
        inputs = inputs_of(base)
        want = states(base, **inputs)
    except Exception:  # of any kind, as it is the class's own
        return None, [], {}
    if sum(weight.numel() for weight in base.parameters()) > MOST or not want.isfinite().all():
        return None, [], {}
    text = "input_ids" in inputs
    shown = [text or "decoder_input_ids" in inputs] * 2 + [text]
    own = base, inputs, want
    shown = [can and holds(check, *own) for can, check in zip(shown, CHECKS, strict=True)]
    rows = supports(base)
    reads = dict.fromkeys(f"{row.reads}{(row.why and f': {row.why}') or ''}" for row in rows)
    told = "; ".join(reads) or "no attention"
    try:
        model = getattr(hf, name)._from_config(base.config, attn_implementation=EXACT)
        model.load_state_dict(base.state_dict())
        model = model.double().eval()
        exact = alike(states(model, **inputs), want)
    except (KeyError, ValueError) as error:  # KeyErrors are transformers' own, of tables of names
        assert "clustered:" in str(error), error
        return Row(name, told, "refused", *["–"] * len(CHECKS)), rows, {}
    called: dict[Any, bool] = {}
    AttentionInterface.register(WATCHED, partial(watch, called))
    AttentionMaskInterface.register(WATCHED, AttentionMaskInterface()["clustered"])
    model.set_attn_implementation(WATCHED)
    states(model, **inputs)
    model.set_attn_implementation(register_clustered(**READING))
    own = model, inputs, states(model, **inputs)
    pairs = zip(CHECKS, shown, strict=True)
    found = [("yes" if check(*own) else "NO") if there else "–" for check, there in pairs]
    paths = {module: path for path, module in model.named_modules()}
    row = Row(name, told, "yes" if exact else "NO", *found)
    return row, rows, {paths[module]: read for module, read in called.items()}
