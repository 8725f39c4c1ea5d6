"""Stepping stones in pretrained models: learned strengths, excluded tokens, and what they leave."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch.testing import assert_close

from jat_graph.hf import attach, capture_scores, detach, disabled, from_pretrained, save_pretrained
from jat_graph.jumps.config import JatConfig, PairGraph
from tests.hf.models import (
    ARCHITECTURES,
    DECODERS,
    LENGTH,
    TEXT,
    assert_padding_changes_nothing,
    main_output,
    run,
    tiny_inputs,
    tiny_model,
)
from tests.hf.test_interface_training import gradients, weighted
from tests.oracles import stone_attention
from tests.oracles.jump import masked_softmax
from tests.oracles.stones import incidence, jump_features, standard_scores, stone_propagation
from tests.support import count_operations

EXCLUDED = (17, 29, 38, 41)
# ModernBERT's local layers see a window, in which there are no standard scores.
GLOBAL = {"modernbert": (0,)}
FOLLOWED = [name for name in ARCHITECTURES if name != "modernbert"]


def stones(name: str = "bert", **settings: Any) -> JatConfig:
    return JatConfig.stones(**{"layers": GLOBAL.get(name)} | settings)


def tiny_stones(name: str, tokens: Any = EXCLUDED, **settings: Any) -> hf.PreTrainedModel:
    """Return a tiny model with stones that it jumps along strongly."""
    config = stones(name, excluded_token_ids=tokens, **settings)
    return strengthened(attach(tiny_model(name), config))


def strengthened(model: nn.Module) -> Any:
    """Give all strengths of a model numbers other than 0, each another."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for theta in strengths(model):
            theta.copy_(torch.rand(theta.shape, generator=generator) + 0.3)
    return model


def strengths(model: nn.Module) -> list[nn.Parameter]:
    return [weight for name, weight in model.named_parameters() if name.endswith(".theta")]


def heavy(seen: Counter[str]) -> dict[str, int]:
    """Return how often a model multiplied, attended and took sums."""
    words = ("mm", "attention", "sum", "softmax")
    return {name: count for name, count in seen.items() if any(word in name for word in words)}


def stones_inputs(name: str, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
    inputs = tiny_inputs(name, *args, **kwargs)
    return inputs | {"use_cache": False} if name in DECODERS else inputs  # type: ignore[dict-item]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_until_it_learns_a_model_is_its_base_to_the_bit(name: str) -> None:
    model, inputs = tiny_model(name), tiny_inputs(name, (LENGTH, 8))
    with count_operations() as before:
        base = run(model, inputs)
    weights = list(model.state_dict())
    attach(model, stones(name, excluded_token_ids=EXCLUDED))
    assert all(not bool(theta.any()) for theta in strengths(model)) and strengths(model)
    if name != "vit":
        assert torch.equal(main_output(model(**stones_inputs(name, (LENGTH, 8)))), base)  # learning
    with count_operations() as seen:
        assert torch.equal(run(model, inputs), base)
    assert heavy(seen) == heavy(before)  # at rest nothing of ours runs
    strengthened(model)
    moved = run(model, stones_inputs(name, (LENGTH, 8)))
    assert not torch.allclose(moved, base, atol=1e-3)
    with disabled(model):
        assert torch.equal(run(model, inputs), base)
    detach(model)
    assert list(model.state_dict()) == weights
    assert torch.equal(run(model, inputs), base)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("settings", [{}, {"hops": 2, "sides": "positive"}], ids=str)
def test_a_layer_is_the_reference_with_values_and_gradients(
    settings: dict[str, Any], side: str
) -> None:
    heads = (0, 1, 3)
    model = tiny_stones("bert", heads=heads, layers=(1,), **settings).double()
    inputs = tiny_inputs("bert", (LENGTH, 7), side=side)
    module, seen = model.encoder.layer[1].attention.self, []
    module.register_forward_hook(
        lambda _, args, kwargs, out: seen.append((args, kwargs, out[0])), with_kwargs=True
    )
    run(model, inputs)
    (args, kwargs, whole), hidden = seen[0], seen[0][0][0].detach().clone().requires_grad_()
    got = module(hidden, *args[1:], **kwargs)[0]
    assert torch.equal(got, whole)

    valid, ids = inputs["attention_mask"].bool(), inputs["input_ids"]
    excluded = torch.stack([ids == token for token in EXCLUDED]).any(0)
    assert bool(excluded.any())
    parts = [
        lin(hidden).unflatten(-1, (4, -1)).transpose(1, 2)
        for lin in (module.query, module.key, module.value)
    ]
    theta = module.strength.theta
    everyone = torch.zeros(*theta.shape[:2], 4, dtype=theta.dtype)
    everyone[:, :, list(heads)] = theta
    want = stone_attention(
        *parts,
        everyone,
        threshold=1.0,
        scale=8**-0.5,
        sides=settings.get("sides", "both"),
        stones=~excluded[:, None],
        valid=valid,
    )
    got, want = got[valid], want.transpose(1, 2).flatten(2)[valid]
    assert_close(got, want, rtol=1e-10, atol=1e-10)
    leaves = [hidden, theta, module.query.weight, module.key.weight, module.value.weight]
    for ours, theirs in zip(
        torch.autograd.grad(weighted(got), leaves),
        torch.autograd.grad(weighted(want), leaves),
        strict=True,
    ):
        assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "side"),
    [
        (name, side)
        for name in TEXT
        for side in ("left", "right")
        # BART counts padding among its positions.
        if name != "modernbert" and (name, side) != ("bart", "left")
    ],
)
def test_padding_and_the_batch_change_nothing(name: str, side: str) -> None:
    model = tiny_stones(name).double()
    lengths, width = (LENGTH, 7, 1), LENGTH + 3
    inputs = stones_inputs(name, lengths, side=side, padded_to=width)
    assert_padding_changes_nothing(model, inputs, lengths, side, 1e-10)


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_model_comes_back_with_what_it_learned(name: str, tmp_path: Path) -> None:
    model, inputs = tiny_stones(name, hops=2), stones_inputs(name, (LENGTH, 8))
    want = run(model, inputs)
    model.save_pretrained(tmp_path)
    kwargs = {"add_pooling_layer": False} if name == "vit" else {}
    loaded = from_pretrained(type(model), tmp_path, **kwargs)
    assert type(loaded) is type(model)
    assert torch.equal(run(loaded, inputs), want)
    with disabled(model):
        base = run(model, inputs)
    assert torch.equal(run(detach(loaded), inputs), base)


def test_what_a_folder_lacks_begins_at_no_jump(tmp_path: Path) -> None:
    model, inputs = tiny_model("bert"), tiny_inputs("bert")
    base = run(model, inputs)
    model.save_pretrained(tmp_path)
    config = model.config
    config.jat = stones().to_dict()
    loaded, report = from_pretrained(
        hf.BertModel, tmp_path, config=config, output_loading_info=True
    )
    assert all("strength" in key for key in report["missing_keys"])
    assert len(strengths(loaded)) == 3
    assert torch.equal(run(loaded, inputs), base)
    assert all(not bool(theta.any()) for theta in strengths(loaded))


def test_pairs_learn_strengths_too(tmp_path: Path) -> None:
    model, inputs = tiny_model("bert"), tiny_inputs("bert", (LENGTH, 8))
    base = run(model, inputs)
    attach(
        model, JatConfig(PairGraph(threshold=1.0), strength=("learned", 0.0, "learned"), heads=2)
    )
    assert torch.equal(run(model, inputs), base)
    found = gradients(model, inputs)
    theta = [grad for name, grad in found.items() if "strength" in name]
    assert [grad.any((1, 2)).tolist() for grad in theta] == [[True, False, True]] * 3
    moved = run(strengthened(model), inputs)
    assert not torch.allclose(moved, base, atol=1e-3)
    model.save_pretrained(tmp_path)
    assert torch.equal(run(from_pretrained(hf.AutoModel, tmp_path), inputs), moved)


def test_fixed_strengths_bring_no_parameters() -> None:
    model, inputs = tiny_model("bert"), tiny_inputs("bert", (LENGTH, 8))
    base = run(model, inputs)
    attach(model, stones(strength=0.0))
    assert torch.equal(run(model, inputs), base)
    detach(model)
    learned = attach(tiny_model("bert"), stones())
    with torch.no_grad():
        for theta in strengths(learned):
            theta.fill_(0.5)
    attach(model, stones(strength=0.5))
    assert not strengths(model)
    assert torch.equal(run(model, inputs), run(learned, inputs))


# Dynamo makes an instance of each autograd function that it traces.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_compiled_model_is_the_eager_one() -> None:
    torch._dynamo.reset()
    config = stones(excluded_token_ids=EXCLUDED)
    model = strengthened(attach(tiny_model("bert", num_hidden_layers=1), config))
    inputs = tiny_inputs("bert", (LENGTH, 7))
    wanted, output = gradients(model, inputs), run(model, inputs)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    model.zero_grad()
    got = main_output(compiled(**inputs))
    weighted(got).backward()
    assert_close(got, output, rtol=0, atol=1e-5)
    for name, grad in wanted.items():
        assert_close(model.get_parameter(name).grad, grad, rtol=1e-4, atol=1e-5)


def excluded_masks(model: nn.Module, inputs: dict[str, Any]) -> list[Tensor | None]:
    with capture_scores(model) as layers:
        run(model, inputs)
    return [layer.mask.excluded for layer in layers]


@pytest.mark.parametrize("name", [name for name in TEXT if name not in ("bart", "modernbert")])
def test_every_layer_knows_the_excluded_tokens(name: str) -> None:
    model, inputs = tiny_stones(name), stones_inputs(name, (LENGTH, 8))
    want = torch.isin(inputs["input_ids"], torch.tensor(EXCLUDED))[:, None]
    assert 0 < int(want.sum()) < want.numel()
    masks = excluded_masks(model, inputs)
    rounds = 3 if name == "albert" else 1  # its one module serves all layers, joined by rows
    assert masks and all(torch.equal(mask, want.repeat(rounds, 1, 1)) for mask in masks)
    ids = inputs.pop("input_ids")
    embedded = inputs | {"inputs_embeds": model.get_input_embeddings()(ids)}
    assert excluded_masks(model, embedded) == [None] * len(masks)


def test_encoder_and_decoder_have_excluded_tokens_of_their_own() -> None:
    torch.manual_seed(0)
    model = hf.BartForConditionalGeneration(tiny_model("bart").config).eval()
    strengthened(attach(model, stones(excluded_token_ids=EXCLUDED)))
    inputs = stones_inputs("bart", (LENGTH, 8))
    inputs["decoder_input_ids"] = inputs["decoder_input_ids"].flip(1)
    masks = excluded_masks(model, inputs)
    sides = [inputs["input_ids"], inputs["decoder_input_ids"]]
    wanted = [torch.isin(ids, torch.tensor(EXCLUDED))[:, None] for ids in sides for _ in range(2)]
    assert not torch.equal(wanted[0], wanted[2])
    assert all(torch.equal(mask, want) for mask, want in zip(masks, wanted, strict=True))


def test_choices_are_sequences_of_the_batch() -> None:
    torch.manual_seed(0)
    model = hf.BertForMultipleChoice(tiny_model("bert").config).eval()
    strengthened(attach(model, stones(excluded_token_ids=EXCLUDED, layers=(0,))))
    ids = tiny_inputs("bert", (LENGTH, LENGTH, 9, 9))["input_ids"]
    (mask,) = excluded_masks(model, {"input_ids": ids.view(2, 2, LENGTH)})
    assert torch.equal(mask, torch.isin(ids, torch.tensor(EXCLUDED))[:, None])


class Marks:
    """What a tokenizer says of its marks."""

    cls_token_id, sep_token_id, pad_token_id = 2, 5, 0
    bos_token_id = eos_token_id = None
    unk_token_id, mask_token_id = 3, 4


def test_a_tokenizer_says_what_is_excluded(tmp_path: Path) -> None:
    model = attach(tiny_model("bert"), stones(), tokenizer=Marks())
    assert model.config.jat["excluded_token_ids"] == [0, 2, 5]
    model.save_pretrained(tmp_path)
    loaded = from_pretrained(hf.BertModel, tmp_path)
    assert loaded.config.jat["excluded_token_ids"] == [0, 2, 5]
    inputs = {"input_ids": torch.tensor([[2, 8, 9, 5, 0]])}
    want = torch.tensor([[[True, False, False, True, True]]])
    assert all(torch.equal(mask, want) for mask in excluded_masks(loaded, inputs))


def test_ids_go_to_pairs_too_and_a_tokenizer_does_not() -> None:
    def tokens(config: Any, tokenizer: Any) -> Any:
        return attach(tiny_model("bert"), config, tokenizer).config.jat["excluded_token_ids"]

    assert tokens(JatConfig(), Marks()) == []
    assert tokens(JatConfig(), [5, 2]) == [2, 5]
    assert tokens(stones(excluded_token_ids=(9,)), Marks()) == [9]


def heads_of(model: Any, inputs: dict[str, Any]) -> Tensor:
    """Return what the first layer's heads give, [B, L, H · D]."""
    outputs: list[Tensor] = []
    module = model.encoder.layer[0].attention.self
    handle = module.register_forward_hook(lambda _, args, out: outputs.append(out[0]))
    run(model, inputs)
    handle.remove()
    return outputs[0]


@pytest.mark.parametrize("by_value", [0.0, 0.5])
def test_values_come_from_beyond_the_pattern(by_value: float) -> None:
    """Scores are read within it, features and values have gone along stones from everywhere."""
    near = 2
    config = JatConfig.stones(
        layers=(0,), strength=(0.4, 0.3, by_value), pattern=f"window:{near}+global:1"
    )
    model = attach(tiny_model("bert"), config).double()
    inputs, module = tiny_inputs("bert", (LENGTH,)), model.encoder.layer[0].attention.self
    hidden: list[Tensor] = []
    handle = module.register_forward_pre_hook(lambda _, args: hidden.append(args[0]))
    got = heads_of(model, inputs)
    handle.remove()
    with torch.no_grad():
        query, key, value = (
            lin(hidden[0]).unflatten(-1, (4, -1)).transpose(1, 2)
            for lin in (module.query, module.key, module.value)
        )
    walk = stone_propagation(incidence(standard_scores(query, key, 8**-0.5), 1.0), 0.1)
    theta = torch.tensor([[0.4], [0.3], [by_value]], dtype=torch.float64)[..., None].expand(
        -1, -1, 4
    )
    queries, keys = jump_features(walk, query, theta[0]), jump_features(walk, key, theta[1])
    tokens = torch.arange(LENGTH)
    seen = (tokens[:, None] - tokens).abs() < near
    seen[0], seen[:, 0] = True, True
    rows = masked_softmax(8**-0.5 * queries @ keys.mT, seen)
    want = rows @ value + by_value * walk @ value
    assert_close(got, want.transpose(1, 2).flatten(2), rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_strengths_are_saved_with_a_lora_adapter(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    inputs, config = tiny_inputs("bert", (LENGTH, 8)), stones(excluded_token_ids=EXCLUDED)
    base = run(tiny_model("bert"), inputs)

    def attached() -> hf.PreTrainedModel:
        return attach(tiny_model("bert"), config)

    settings = peft.LoraConfig(target_modules=["query"], modules_to_save=["strength"])
    model = peft.get_peft_model(attached(), settings)
    assert torch.equal(run(model.eval(), inputs), base)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert sum("strength" in name for name in trained) == 3
    assert all("lora" in name or "strength" in name for name in trained)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):  # LoRA's B begins at 0, so that A has no gradient at first
        optimizer.zero_grad()
        weighted(main_output(model(**inputs))).backward()
        optimizer.step()
    want = run(model, inputs)
    assert not torch.allclose(want, base, atol=1e-5)
    assert all(bool(theta.any()) for theta in strengths(model) if theta.requires_grad)
    assert all(torch.equal(mask, excluded_in(inputs)) for mask in excluded_masks(model, inputs))
    save_pretrained(model, tmp_path)
    again = from_pretrained(tiny_model("bert"), tmp_path).eval()
    assert torch.equal(run(again, inputs), want)
    with model.disable_adapter():
        assert torch.equal(run(model, inputs), base)
    assert not strengths(detach(again))


def excluded_in(inputs: dict[str, Any]) -> Tensor:
    return torch.isin(inputs["input_ids"], torch.tensor(EXCLUDED))[:, None]
