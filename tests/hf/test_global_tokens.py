"""Global tokens of a call: all tokens see them, and they see all, by clusters and in windows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from jat_graph import (
    ClusterGraph,
    JatConfig,
    attach,
    clustered_attention,
    disabled,
    using_global_tokens,
)
from jat_graph.hf import capture_scores, register_clustered
from tests.hf.encoders import FAMILIES, LENGTHS, SETTINGS
from tests.hf.models import (
    heads_read,
    main_output,
    place,
    run,
    tiny_config,
    tiny_inputs,
    tiny_model,
)
from tests.oracles import masked_softmax
from tests.oracles.patterns import reference_global_mask, reference_pairs, reference_window

CONFIGS = {
    "clusters": JatConfig.clustered(**SETTINGS),
    "window": JatConfig(pattern="window:2+global", hop_weights=(1,)),
}
WAYS = (*CONFIGS, "name")
GLOBAL = ([2, 5, 8], [], [0])  # tokens of each sequence


def everywhere(lengths: tuple[int, ...] = LENGTHS, side: str = "right") -> Tensor:
    """Return which tokens are global, and all padding, which must not count."""
    mask = torch.ones(len(lengths), max(lengths), dtype=torch.bool)
    for row, (length, own) in enumerate(zip(lengths, GLOBAL, strict=True)):
        inside = torch.zeros(length, dtype=torch.bool)
        inside[own] = True
        mask[row, place(length, max(lengths), side)] = inside
    return mask


def model_with(way: str, name: str = "bert") -> Any:
    model = FAMILIES[name].build()
    if way in CONFIGS:
        return attach(model, CONFIGS[way])
    model.set_attn_implementation(register_clustered(**SETTINGS))
    return model


def globally(model: nn.Module, inputs: dict[str, Tensor], mask: Tensor) -> Tensor:
    with using_global_tokens(model, mask):
        return run(model, inputs)


def refused(what: str) -> Any:
    return pytest.raises(ValueError, match=f"^{what}")


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("way", WAYS)
def test_heads_read_global_tokens_and_these_read_all(way, side):
    inputs, mask = tiny_inputs("bert", LENGTHS, side=side), everywhere(side=side)
    valid, model = inputs["attention_mask"].bool(), model_with(way)
    with using_global_tokens(model, mask):
        parts, got = heads_read(model, inputs)
    if way == "window":
        scores = parts[0] @ parts[1].mT * parts[0].size(-1) ** -0.5
        pairs = torch.zeros(scores.shape, dtype=torch.bool)
        for row, kept in enumerate(x.nonzero().squeeze(-1) for x in valid):
            rules = reference_window(2), reference_global_mask(mask[row, kept].tolist())
            own = [reference_pairs(rule, 1, len(kept)) for rule in rules]
            pairs[row][:, kept[:, None], kept] = own[0] | own[1]
        want = masked_softmax(scores, pairs) @ parts[2]
    else:
        options = {"attention_mask": valid, "global_attention_mask": mask}
        want = clustered_attention(*parts, **options, **SETTINGS)
    assert_close(got.transpose(1, 2)[valid], want.transpose(1, 2)[valid])
    _, none = heads_read(model, inputs | {"global_attention_mask": torch.zeros_like(mask)})
    assert not torch.allclose(got[0], none[0], atol=1e-3)
    assert torch.equal(got[1], none[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "albert", "electra"])
@pytest.mark.parametrize("way", WAYS)
def test_models_take_them_as_an_argument_too(way, name):
    inputs, mask, model = tiny_inputs(name, LENGTHS), everywhere(), model_with(way, name)
    none = globally(model, inputs, torch.zeros_like(mask))
    got = globally(model, inputs, mask)
    assert torch.equal(run(model, inputs, global_attention_mask=mask.int()), got)
    assert not torch.allclose(got[0], none[0], atol=1e-3)
    if way != "window":
        assert torch.equal(run(model, inputs), none)


@pytest.mark.parametrize("way", WAYS)
def test_backward_may_come_later_with_checkpointing(way):
    inputs, found = tiny_inputs("bert", LENGTHS), []
    for checkpointing in (False, True):
        model = model_with(way).train()
        for part in model.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        if checkpointing:
            model.activation_checkpointing_enable()
        with using_global_tokens(model, everywhere()):
            output = main_output(model(**inputs))
        output.sin().sum().backward()
        found.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        assert_close(found[1][name], gradient)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["clusters", "name"])
def test_a_compiled_model_reads_them(way):
    inputs = tiny_inputs("bert", LENGTHS) | {"global_attention_mask": everywhere()}
    model = model_with(way)
    want = run(model, inputs)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert_close(run(compiled, inputs), want, rtol=0, atol=1e-5)


def test_disabled_heads_and_inner_masks():
    model, inputs, mask = model_with("clusters"), tiny_inputs("bert", LENGTHS), everywhere()
    base = run(FAMILIES["bert"].build(), inputs)
    with using_global_tokens(model, ~mask):
        assert torch.equal(globally(model, inputs, mask), globally(model, inputs, mask.int()))
        with disabled(model):
            assert torch.equal(run(model, inputs), base)
    wrapped = nn.Sequential(model)
    with using_global_tokens(wrapped, mask):
        inside = run(model, inputs)
    assert torch.equal(inside, globally(model, inputs, mask))


def test_what_cannot_use_them_is_one_line():
    bert, inputs, mask = tiny_model("bert"), tiny_inputs("bert", LENGTHS), everywhere()
    jumping = attach(tiny_model("bert"), tiny_config())
    for model, got in (
        (bert, "a BertModel with neither"),
        (jumping, "a BertModel with neither"),
        (nn.ModuleList([bert, tiny_model("bert")]), "BertModel, BertModel"),
        (attach(tiny_model("llama"), JatConfig.clustered()), "causal ones"),
    ):
        with refused(f"model must .* got {got}$"):
            globally(model, inputs, mask)
    with refused("global_attention_mask needs cluster heads or a pattern with 'global'"):
        run(jumping, inputs, global_attention_mask=mask)
    attach(bert, CONFIGS["clusters"])
    with capture_scores(bert, ClusterGraph), refused("captured cluster heads must have no global"):
        globally(bert, inputs, mask)
    for wrong in (mask[:, 1:], mask[:1]):
        with refused(r"global_attention_mask must be bool or 0/1 \[3, "):
            globally(bert, inputs, wrong)
    with refused(r"global_attention_mask must be bool or 0/1 \[3, \d+\], got other numbers"):
        run(bert, inputs, global_attention_mask=mask.int() * 2)
    for other in (mask.float(), mask[0], mask.int() * 2, mask.tolist()):
        with refused(r"mask must be bool, or 0 and 1, \[B, L\], got "):
            globally(bert, inputs, other)
    with refused("pattern 'global' must be given its tokens, by "):
        run(model_with("window"), inputs)
    kinds = {"gpt2": "GPT2Attention", "llama": "LlamaAttention", "bart": "BartAttention"}
    for name, kind in kinds.items():
        with refused(f"{kind} is causal: pattern must have no 'global'"):
            attach(tiny_model(name), CONFIGS["window"])


@pytest.mark.filterwarnings("ignore:BartAttention runs on SDPA:UserWarning")
@pytest.mark.parametrize("way", ["clusters", "name"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "bart"])
def test_decoders_have_none(name, way):
    model, inputs = tiny_model(name), tiny_inputs(name, LENGTHS)
    if way == "name":
        model.set_attn_implementation(register_clustered(**SETTINGS))
    else:
        attach(model, JatConfig.clustered(**SETTINGS))
    with refused(r"\w+Attention is causal, so that none of its tokens can be global"):
        run(model, inputs, global_attention_mask=everywhere())
    if name == "bart":
        both = [globally(part, inputs, everywhere()) for part in (model, model.get_encoder())]
        none = [run(part, inputs) for part in (model, model.get_encoder())]
        assert not torch.equal(both[0], none[0])
        assert not torch.allclose(both[1], none[1], atol=1e-3)
