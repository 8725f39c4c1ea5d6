"""Putting jump heads on, taking them off, switching them off, and what is refused."""

import copy
import math
import pickle
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

from jat_graph import JatConfig, PairGraph, calibrate, fidelity
from jat_graph.hf import (
    attach,
    attached_config,
    capture_scores,
    detach,
    disabled,
    from_pretrained,
    resize_position_embeddings,
    save_pretrained,
    summary,
)
from jat_graph.inspection import inspect_text
from tests.hf.models import (
    ARCHITECTURES,
    LENGTH,
    assert_joins,
    run,
    tiny_config,
    tiny_inputs,
    tiny_jump_model,
    tiny_model,
)


def traces(model: nn.Module) -> list[Any]:
    """Return everything the adapter could have left on a model."""
    states = [name for module in model.modules() for name in vars(module) if "jat" in name]
    hooks = [hook for module in model.modules() for hook in module._forward_pre_hooks.values()]
    return states + hooks


@pytest.mark.parametrize("before", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_attach_returns_the_model_and_detach_leaves_no_trace(name, before):
    model, inputs = tiny_model(name), tiny_inputs(name, (LENGTH, 8, 5))
    model.set_attn_implementation(before)
    base, settings, weights = run(model, inputs), model.config.to_dict(), list(model.state_dict())
    assert attach(model, tiny_config()) is model
    assert_joins(model, inputs)
    jumping = run(model, inputs)
    assert not torch.allclose(jumping, base, atol=1e-3)
    with pytest.raises(RuntimeError), disabled(model) as same, disabled(model):
        assert same is model
        plain = run(model, inputs)
        raise RuntimeError
    assert torch.equal(plain, base) or before == "eager"  # it runs on SDPA
    assert torch.equal(run(model, inputs), jumping)
    assert list(model.state_dict()) == weights
    assert detach(model) is model
    assert model.config._attn_implementation == before
    assert model.config.to_dict() == settings
    assert traces(model) == []
    assert attached_config(model) is None
    assert torch.equal(run(model, inputs), base)


def test_attaching_twice_and_taking_off_nothing_are_refused():
    model = tiny_jump_model("bert")
    with pytest.raises(ValueError, match="BertModel already has jump heads; detach them first"):
        attach(model, tiny_config())
    detach(model)
    wanted = "model must have .* heads, got a plain BertModel"
    with pytest.raises(ValueError, match=wanted):
        detach(model)
    with pytest.raises(ValueError, match=wanted), disabled(model):
        pass
    attach(model, tiny_config(layers=(0,)))
    for found in (model, model.encoder.layer[1], nn.Sequential(model)):
        assert attached_config(found) == tiny_config(layers=(0,))
    assert attached_config(model.embeddings) is None


def test_a_part_cannot_be_detached_alone():
    torch.manual_seed(0)
    model = hf.BartForConditionalGeneration(tiny_model("bart").config)
    attach(model, tiny_config())
    for part in (model.model.encoder, model.model):
        with pytest.raises(ValueError, match="must be the whole model"):
            detach(part)
    detach(model)


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_copies_keep_their_jump_heads_to_themselves(way):
    model, inputs = tiny_jump_model("gpt2"), tiny_inputs("gpt2")
    assert_joins(model, inputs)
    jumping = run(model, inputs)
    twin = copy.deepcopy(model) if way == "deepcopy" else pickle.loads(pickle.dumps(model))
    assert torch.equal(run(twin, inputs), jumping)
    with disabled(model):
        base = run(model, inputs)
        assert torch.equal(run(twin, inputs), jumping)
    detach(model)
    assert torch.equal(run(twin, inputs), jumping)
    with torch.no_grad():
        assert len(twin(**inputs, output_attentions=True).attentions) == 3
    detach(twin)
    assert traces(twin) == []
    assert torch.equal(run(twin, inputs), base)


def test_a_table_goes_to_the_jump_layers_in_order():
    table = ((0.5, 1.0), (2.0, 3.0))
    model = attach(tiny_model("distilbert"), tiny_config(layers=(0, 2), threshold=table))
    with capture_scores(model) as layers:
        run(model, tiny_inputs("distilbert"))
    assert [(layer.layer, layer.heads) for layer in layers] == [(0, (0, 2)), (2, (0, 2))]
    assert [layer.config.graph.threshold for layer in layers] == [(table[0],), (table[1],)]
    with pytest.raises(ValueError, match=r"threshold"):
        attach(tiny_model("distilbert"), tiny_config(threshold=table))


def test_one_module_for_all_layers_takes_no_layers():
    with pytest.raises(ValueError, match="layers must be None, because one AlbertAttention serves"):
        attach(tiny_model("albert"), tiny_config(layers=(0,)))
    with pytest.raises(ValueError, match="threshold"):
        attach(tiny_model("albert"), tiny_config(threshold=((1.0, 1.0),) * 3))
    groups = tiny_model("albert", num_hidden_groups=3)
    attach(groups, tiny_config(layers=(1,)))


REFUSED = [
    ("bert", {"heads": 5}, r"heads=5 needs head 4, but the model has 4 heads"),
    ("gpt2", {"heads": (1, 7)}, r"needs head 7, but the model has 4 heads"),
    ("llama", {"layers": (3,)}, r"layers=\(3,\) needs layer 3, but the model has 3 layers"),
    ("bart", {"layers": (4,)}, r"the model has 4 layers"),
    ("gpt2", {"key_selection": "significance"}, "GPT2Attention is causal: .* later tokens"),
    ("llama", {"key_selection": "strided"}, "LlamaAttention is causal: .* key_step"),
    ("bart", {"vote_rate": 0.1}, "BartAttention is causal: vote_rate would use later tokens"),
    ("bert", {"hop_weights": {(0,): (0.0, 1.0)}}, "hop_weights must name each jump head once"),
]


@pytest.mark.parametrize(("name", "overrides", "message"), REFUSED)
def test_a_config_that_does_not_fit_leaves_the_model_as_it_was(name, overrides, message):
    model = tiny_model(name)
    settings = model.config.to_dict()
    with pytest.raises(ValueError, match=message):
        attach(model, tiny_config(**overrides))
    assert model.config._attn_implementation == "sdpa"
    assert model.config.to_dict() == settings
    assert traces(model) == []


def lora(model: nn.Module) -> Any:
    peft = pytest.importorskip("peft")
    torch.manual_seed(4)
    config = peft.LoraConfig(target_modules=["query", "value"], init_lora_weights=False)
    return peft.get_peft_model(model, config).eval()


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.parametrize("order", ["LoRA on jump heads", "jump heads on LoRA"])
def test_lora(order):
    inputs, base = tiny_inputs("bert"), run(tiny_model("bert"), tiny_inputs("bert"))
    if order == "LoRA on jump heads":
        model = lora(tiny_jump_model("bert"))
    else:
        model = attach(lora(tiny_model("bert")), tiny_config())
    assert attached_config(model) == tiny_config()
    assert_joins(model, inputs)
    jumping = run(model, inputs)
    with disabled(model):
        adapted = run(model, inputs)
    assert not torch.allclose(adapted, base, atol=1e-3)
    assert not torch.allclose(adapted, jumping, atol=1e-3)
    model.train()
    model(**inputs).last_hidden_state[..., 0].sum().backward()
    grads = [p.grad for name, p in model.named_parameters() if "lora" in name]
    assert all(grad is not None and bool(grad.isfinite().all()) for grad in grads)
    assert any(bool(grad.count_nonzero()) for grad in grads if grad is not None)
    model.eval()
    detach(model)
    assert torch.equal(run(model, inputs), adapted)


def test_two_towers_have_one_numbering():
    model, inputs = tiny_clip()
    base = run_clip(model, inputs)
    attach(model, JatConfig(PairGraph(threshold=0.0), heads=2, layers=(0, 3)))
    assert model.text_model.config._attn_implementation == "jat"
    assert not torch.allclose(run_clip(model, inputs), base, atol=1e-4)
    detach(model)
    assert model.vision_model.config._attn_implementation == "sdpa"
    assert torch.equal(run_clip(model, inputs), base)
    attach(model, JatConfig(PairGraph(threshold=math.inf), heads=2))
    assert torch.equal(run_clip(model, inputs), base)


def tiny_clip() -> tuple[hf.CLIPModel, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48}
    depth = {"num_hidden_layers": 2, "num_attention_heads": 4}
    text = hf.CLIPTextConfig(vocab_size=50, max_position_embeddings=32, **sizes, **depth)
    vision = hf.CLIPVisionConfig(image_size=16, patch_size=4, **sizes, **depth)
    config = hf.CLIPConfig(
        text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=16
    )
    inputs = tiny_inputs("bert", (LENGTH, 8)) | tiny_inputs("vit", (1, 1))
    return hf.CLIPModel(config).eval(), {k: v for k, v in inputs.items() if k != "position_ids"}


def run_clip(model: hf.CLIPModel, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return model(**inputs).logits_per_text


NOTICED = r"runs on '.*', but its model has heads that need 'jat'; take them off by jat_graph"
SWITCHED = pytest.mark.parametrize("name", ["bert", "gpt2", "bart"])


@SWITCHED
@pytest.mark.parametrize("wanted", ["eager", {"": "sdpa"}])
def test_another_attention_is_noticed_until_the_heads_are_off(name, wanted):
    model, inputs = tiny_jump_model(name), tiny_inputs(name)
    jumping = run(model, inputs)
    twins = (copy.deepcopy(model), pickle.loads(pickle.dumps(model)))
    for each in (model, *twins):
        each.set_attn_implementation(wanted)
        with pytest.raises(ValueError, match=NOTICED):
            run(each, inputs)
        each.set_attn_implementation("jat")
        assert torch.equal(run(each, inputs), jumping)
    assert detach(model).config._attn_implementation == "sdpa"
    model.set_attn_implementation("eager")
    run(model, inputs)


@SWITCHED
def test_a_configuration_that_was_written_to_is_noticed(name, tmp_path):
    model, inputs = tiny_jump_model(name), tiny_inputs(name)
    jumping = run(model, inputs)
    model.config._attn_implementation = "sdpa"
    with pytest.raises(ValueError, match=NOTICED):
        run(model, inputs)
    with pytest.raises(ValueError, match=NOTICED), disabled(model):
        run(model, inputs)
    inner: nn.Module = model.transformer if name == "gpt2" else model.encoder
    assert attached_config(inner) == tiny_config()
    model.save_pretrained(tmp_path)  # as what it is: a model with jump heads
    assert torch.equal(run(from_pretrained(type(model), tmp_path), inputs), jumping)
    assert detach(model).config._attn_implementation == "sdpa"


def test_the_model_inside_gets_heads_and_positions():
    model, inputs = tiny_model("bert"), tiny_inputs("bert")
    base, outer = run(model, inputs), nn.Sequential(nn.Sequential(model), nn.Identity()).eval()
    assert attach(resize_position_embeddings(outer, 100), tiny_config()) is outer
    run(model, {"input_ids": torch.arange(90)[None] % 40 + 3})
    assert torch.equal(run(model, inputs), run(tiny_jump_model("bert"), inputs))
    assert attached_config(outer) == attached_config(model) == tiny_config()
    with disabled(outer):
        assert torch.equal(run(model, inputs), base)
    assert torch.equal(run(detach(outer)[0][0], inputs), base)


def test_the_model_inside_is_calibrated_and_looked_at(plain, tokenizer):
    outer, text = nn.Sequential(plain), "Book costs more than pencil."
    batch, clusters = tokenizer(text, return_tensors="pt"), JatConfig.clustered(dense_below=0)
    assert fidelity(outer, [batch], clusters) == fidelity(plain, [batch], clusters)
    attach(outer, calibrate(outer, [batch] * 2, density=0.2, config=JatConfig(layers=(1,))))
    assert inspect_text(outer, tokenizer, text) == inspect_text(plain, tokenizer, text)
    detach(outer)


@pytest.mark.parametrize("work", [detach, attached_config, summary, calibrate, save_pretrained])
def test_what_is_no_model_is_named(work):
    given = {calibrate: [[]], save_pretrained: ["folder"]}.get(work, [])
    with pytest.raises(ValueError, match=r"^model must be a model of transformers, got str$"):
        work("abc", *given)


def test_what_holds_no_model_or_two_is_refused_and_so_is_what_is_no_config():
    with pytest.raises(ValueError, match="a model of transformers, or hold one, got Linear"):
        attach(nn.Linear(2, 2), tiny_config())
    with pytest.raises(ValueError, match="or hold one, got BertModel, GPT2LMHeadModel"):
        attach(nn.ModuleList([tiny_model("bert"), tiny_model("gpt2")]), tiny_config())
    with pytest.raises(ValueError, match="config must be a JatConfig, got dict"):
        attach(tiny_model("bert"), {"threshold": 1.0})  # type: ignore[arg-type]
