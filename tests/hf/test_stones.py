"""Stepping stones in pretrained models: learned strengths, excluded tokens, and what they leave."""

from collections import Counter
from threading import Thread
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch.testing import assert_close

from jat_graph import JatConfig, PairGraph
from jat_graph.hf import attach, capture_scores, detach, disabled, from_pretrained, save_pretrained
from tests.hf.models import (
    ARCHITECTURES,
    DECODERS,
    LENGTH,
    TEXT,
    heads_read,
    main_output,
    run,
    strengthened,
    strengths,
    tiny_config,
    tiny_inputs,
    tiny_model,
)
from tests.hf.test_interface_training import gradients, weighted
from tests.oracles.jump import masked_softmax
from tests.oracles.stones import incidence, jump_features, standard_scores, stone_propagation
from tests.support import count_operations

EXCLUDED = (17, 29, 38, 41)
# ModernBERT's local layers see a window, in which there are no standard scores.
GLOBAL = {"modernbert": (0,)}


def stones(name: str = "bert", **settings: Any) -> JatConfig:
    return JatConfig.stones(**{"layers": GLOBAL.get(name)} | settings)


def tiny_stones(name: str, tokens: Any = EXCLUDED, **settings: Any) -> hf.PreTrainedModel:
    """Return a tiny model with stones that it jumps along strongly."""
    config = stones(name, excluded_token_ids=tokens, **settings)
    return strengthened(attach(tiny_model(name), config))


def heavy(seen: Counter[str]) -> dict[str, int]:
    """Return how often a model multiplied, attended and took sums."""
    words = ("mm", "attention", "sum", "softmax")
    return {name: count for name, count in seen.items() if any(word in name for word in words)}


def stones_inputs(name: str, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
    inputs = tiny_inputs(name, *args, **kwargs)
    return inputs | {"use_cache": False} if name in DECODERS else inputs  # type: ignore[dict-item]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_until_it_learns_a_model_is_its_base_to_the_bit(name):
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


def test_what_a_folder_lacks_begins_at_no_jump(tmp_path):
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


def test_pairs_learn_strengths_too():
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


def test_fixed_strengths_bring_no_parameters():
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


def excluded_masks(model: nn.Module, inputs: dict[str, Any]) -> list[Tensor | None]:
    with capture_scores(model) as layers:
        run(model, inputs)
    return [layer.mask.excluded for layer in layers]


@pytest.mark.parametrize("name", [name for name in TEXT if name not in ("bart", "modernbert")])
def test_every_layer_knows_the_excluded_tokens(name):
    model, inputs = tiny_stones(name), stones_inputs(name, (LENGTH, 8))
    want = torch.isin(inputs["input_ids"], torch.tensor(EXCLUDED))[:, None]
    assert 0 < int(want.sum()) < want.numel()
    masks = excluded_masks(model, inputs)
    rounds = 3 if name == "albert" else 1  # its one module serves all layers, joined by rows
    assert masks and all(torch.equal(mask, want.repeat(rounds, 1, 1)) for mask in masks)
    ids = inputs.pop("input_ids")
    embedded = inputs | {"inputs_embeds": model.get_input_embeddings()(ids)}
    assert excluded_masks(model, embedded) == [None] * len(masks)


def test_encoder_and_decoder_have_excluded_tokens_of_their_own():
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


def test_choices_are_sequences_of_the_batch():
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


def test_a_tokenizer_says_what_is_excluded(tmp_path):
    model = attach(tiny_model("bert"), stones(), tokenizer=Marks())
    assert model.config.jat["excluded_token_ids"] == [0, 2, 5]
    model.save_pretrained(tmp_path)
    loaded = from_pretrained(hf.BertModel, tmp_path)
    assert loaded.config.jat["excluded_token_ids"] == [0, 2, 5]
    inputs = {"input_ids": torch.tensor([[2, 8, 9, 5, 0]])}
    want = torch.tensor([[[True, False, False, True, True]]])
    assert all(torch.equal(mask, want) for mask in excluded_masks(loaded, inputs))
    attach(tiny_model("bert"), JatConfig.clustered(), Marks())  # is no harm
    for config, given, wanted in (
        (JatConfig(), Marks(), []),
        (JatConfig(), [5, 2], [2, 5]),
        (stones(excluded_token_ids=(9,)), Marks(), [9]),
    ):
        model = attach(tiny_model("bert"), config, given)
        assert model.config.jat["excluded_token_ids"] == wanted


@pytest.mark.parametrize("by_value", [0.0, 0.5])
def test_values_come_from_beyond_the_pattern(by_value):
    """Scores are read within it, features and values have gone along stones from everywhere."""
    near = 2
    config = JatConfig.stones(
        layers=(0,), strength=(0.4, 0.3, by_value), pattern=f"window:{near}+global:1"
    )
    model = attach(tiny_model("bert"), config).double()
    (query, key, value), got = heads_read(model, tiny_inputs("bert", (LENGTH,)))
    walk = stone_propagation(incidence(standard_scores(query, key, 8**-0.5), 1.0), 0.1)
    queries = jump_features(walk, query, query.new_full((1, 4), 0.4))
    keys = jump_features(walk, key, key.new_full((1, 4), 0.3))
    tokens = torch.arange(LENGTH)
    seen = (tokens[:, None] - tokens).abs() < near
    seen[0], seen[:, 0] = True, True
    rows = masked_softmax(8**-0.5 * queries @ keys.mT, seen)
    assert_close(got, rows @ value + by_value * walk @ value, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_strengths_are_saved_with_a_lora_adapter(tmp_path):
    peft = pytest.importorskip("peft")
    base, inputs = tiny_model("bert"), tiny_inputs("bert", (LENGTH, 8))
    plain = run(base, inputs)
    attach(base, stones(excluded_token_ids=EXCLUDED))
    settings = peft.LoraConfig(target_modules=["query"], modules_to_save=["strength"])
    model = peft.get_peft_model(base, settings)
    assert torch.equal(run(model.eval(), inputs), plain)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert sum("strength" in name for name in trained) == 3
    assert all("lora" in name or "strength" in name for name in trained)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):  # LoRA's B begins at 0, so that A has no gradient at first
        optimizer.zero_grad()
        weighted(main_output(model(**inputs))).backward()
        optimizer.step()
    want = run(model, inputs)
    assert not torch.allclose(want, plain, atol=1e-5)
    assert all(bool(theta.any()) for theta in strengths(model) if theta.requires_grad)
    excluded = torch.isin(inputs["input_ids"], torch.tensor(EXCLUDED))[:, None]
    assert all(torch.equal(mask, excluded) for mask in excluded_masks(model, inputs))
    save_pretrained(model, tmp_path)
    again = from_pretrained(tiny_model("bert"), tmp_path).eval()
    assert torch.equal(run(again, inputs), want)
    with model.disable_adapter():
        assert torch.equal(run(model, inputs), plain)
    assert not strengths(detach(again))


def forward(model: Any, inputs: dict[str, Any]) -> Tensor:
    """Call a model as sentence-transformers does: hooks of the model itself do not run."""
    with torch.no_grad():
        return main_output(model.forward(**inputs))


@pytest.mark.parametrize("name", TEXT)
def test_forward_alone_knows_the_excluded_tokens(name):
    model, inputs = tiny_stones(name), stones_inputs(name, (LENGTH, 8))
    want = run(model, inputs)
    assert not torch.equal(run(tiny_stones(name, tokens=()), inputs), want)
    parts = {"gpt2": "transformer", "llama": "model"}
    inner = getattr(model, parts[name]) if name in parts else model
    wanted = want if inner is model else run(inner, inputs)
    for _ in range(2):
        assert torch.equal(forward(inner, inputs), wanted)
        assert torch.equal(run(model, inputs), want)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_checkpointing_remembers_the_tokens_of_each_forward(name, reentrant):
    model = tiny_stones(name).train()
    first = stones_inputs(name, (LENGTH, LENGTH))
    second = first | {"input_ids": first["input_ids"].flip(1)}
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0

    def learn() -> dict[str, Tensor]:
        """Two forwards before one backward, as a contrastive loss has them."""
        model.zero_grad()
        left, right = (main_output(model(**batch)) for batch in (first, second))
        weighted(left * right).backward()
        return {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}

    wanted = learn()
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    got = learn()
    assert sum("strength" in key for key in wanted) == 3
    assert all(torch.equal(got[key], grad) for key, grad in wanted.items())


@pytest.mark.parametrize("name", [name for name in TEXT if name not in DECODERS])
def test_of_embeddings_nobody_knows_the_excluded_tokens(name):
    model, inputs = tiny_stones(name), stones_inputs(name, (LENGTH, 8))
    forward(model, inputs)
    embeddings = model.get_input_embeddings()
    run(model, inputs)
    ids = inputs.pop("input_ids")
    embedded = inputs | {"inputs_embeds": embeddings.weight[ids]}
    run(model, embedded)
    with pytest.raises(ValueError, match="does not know which tokens are excluded"):
        forward(model, embedded)


@pytest.mark.parametrize("name", ["gpt2", "bert", "stones"])
def test_another_thread_takes_nothing(name):
    """Run a second forward in a thread, just before the first one's attention runs."""
    if name == "stones":  # which exclude tokens
        model = tiny_stones("bert")
    else:
        model = attach(tiny_model(name), tiny_config())
    ids = tiny_inputs("bert" if name == "stones" else name)["input_ids"]
    wanted = [run(model, {"input_ids": row[None]}) for row in ids[:2]]
    got: list[Tensor] = []

    def read(row: int) -> None:
        if name == "gpt2":
            cache, parts = hf.DynamicCache(), ids[row : row + 1].split([7, 5], dim=1)
            outputs = [run(model, {"input_ids": x}, past_key_values=cache) for x in parts]
            got.append(torch.cat(outputs, dim=1))
        else:
            got.append(run(model, {"input_ids": ids[row : row + 1]}))

    def interrupt(*_: Any) -> None:
        hook.remove()
        thread = Thread(target=read, args=(1,))
        thread.start()
        thread.join()

    attention = next(m for m in model.modules() if type(m).__name__.endswith("Attention"))
    attention = attention.self if hasattr(attention, "self") else attention
    hook = attention.register_forward_pre_hook(interrupt)
    read(0)
    assert len(got) == 2
    assert_close(got[::-1], wanted, rtol=0, atol=1e-5)
