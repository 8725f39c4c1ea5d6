"""What sweeps of their own kinds compute: links of heads, small readers, and their tokenizers."""

from collections.abc import Sequence
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from examples.sweeps.connections import EXAMPLE, SPREADS, count_links, measure, read_scores
from examples.sweeps.scratch import counted_tokenizer
from examples.sweeps.small_reader import (
    Heads,
    NeighbourHeads,
    SmallReader,
    Training,
    learning_curve,
)
from examples.tasks.recall import FarRecallTask, PartnersTask
from jat_graph import JatConfig, attach
from tests.oracles import reference_gfsa, reference_nexus
from tests.support import assert_within_budget

KIN: list[Heads] = ["gfsa", "triplet", "nexus"]


def kinds_of(types: Sequence[str | None], i: int, j: int) -> list[str]:
    """Say what kinds of pairs words i and j are."""
    if i == j:
        return ["self"]
    entities = (types[i] is not None) + (types[j] is not None)
    two = ["different types"] if entities == 2 and types[i] != types[j] else []
    return ["all words", *two, *(["entity and other"] if entities == 1 else [])]


def counted_plainly(layers: Tensor, types: Sequence[str | None]) -> dict[str, list[int]]:
    """Count as the definitions say, pair by pair; all layers together."""
    totals: dict[str, list[int]] = {}

    def note(name: str, is_so: Tensor | bool) -> None:
        total = totals.setdefault(name, [0, 0])
        total[0] += bool(is_so)
        total[1] += 1

    heads, words = layers.double().flatten(0, 1), range(len(types))
    mean, std = heads.mean(), heads.std(correction=0)
    p = mean + std
    for head, i, j in product(heads, words, words):
        for kind, (name, spread) in product(kinds_of(types, i, j), SPREADS.items()):
            note(f"{kind} > {name}", head[i, j] > mean + spread * std)
        others = [k for k in words if k not in (i, j)] if i != j else []
        for kind, k in product(kinds_of(types, i, j), others):
            both = min(head[i, k], head[j, k]) >= p
            note(f"{'δ' if both else 'otherwise'}, {kind}", head[i, j] >= p)
        if i != j and head[i, j] <= p and head[j, i] <= p:
            for kind in kinds_of(types, i, j):
                note(f"bridged, {kind}", any(head[i, k] > p and head[j, k] > p for k in others))
    return totals


@given(
    seed=st.integers(0, 9999),
    types=st.lists(st.sampled_from(["person", "place", None]), min_size=2, max_size=7),
)
def test_links_are_counted_as_plain_loops_do(seed: int, types: list[str | None]) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (2, 3, len(types), len(types))
    rows = (2 * torch.randn(shape, generator=generator)).softmax(dim=-1)
    counts = count_links(rows, types)
    got = {name: layers.sum(dim=0).tolist() for name, layers in counts.items()}
    assert {name: both for name, both in got.items() if both[1]} == counted_plainly(rows, types)


def test_links_of_a_model_with_and_without_heads(tiny_model: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    model = AutoModel.from_pretrained(tiny_model)
    plain = measure(model, tokenizer, [EXAMPLE], 32)
    assert set(plain) == {"all layers", "layer 1", "layer 2"}
    shown = plain["all layers"]
    assert shown["different types > mean + std"] == shown["book, pencil, computer > mean + std"]
    attach(model, JatConfig.paper(threshold=0.5, layers=(1,)), tokenizer)
    jumping = measure(model, tokenizer, [EXAMPLE], 32)
    assert jumping["layer 2"] != plain["layer 2"]


@pytest.mark.parametrize("jumping", [False, True])
def test_scores_are_those_whose_softmax_a_model_takes(jumping: bool, tiny_model: str) -> None:
    model = AutoModel.from_pretrained(tiny_model, attn_implementation="sdpa").eval()
    batch = AutoTokenizer.from_pretrained(tiny_model)("a book costs more", return_tensors="pt")
    if jumping:
        attach(model, JatConfig.paper(threshold=0.5, heads=(1, 2), layers=(1,)))
    scores = read_scores(model, batch)
    if not jumping:
        model.set_attn_implementation("eager")
    with torch.no_grad():
        rows = torch.cat(model(**batch, output_attentions=True).attentions)
    assert scores.shape == rows.shape  # the order of heads in a layer may be another
    torch.testing.assert_close(scores.softmax(-1).sum(1), rows.sum(1))


def _projected(layer: NeighbourHeads, x: Tensor) -> list[Tensor]:
    parts = (layer.query(x), layer.key(x), layer.value(x))
    return [part.unflatten(-1, (4, -1)).transpose(0, 1) for part in parts]


def test_gfsa_is_the_formula_without_its_padding() -> None:
    torch.manual_seed(0)
    layer = NeighbourHeads(16, "gfsa").double()
    assert layer.theta is not None and not layer.theta.any()  # it begins as plain attention
    torch.nn.init.normal_(layer.theta)
    x, mask = torch.randn(1, 7, 16, dtype=torch.float64), torch.arange(7)[None] < 5
    query, key, value = _projected(layer, x[0, :5])
    rows = (query @ key.mT / 2).softmax(-1)
    learned = zip(rows, value, layer.theta.T, strict=True)
    heads = [reference_gfsa(p, v, (own[0], 1 + own[1], own[2]), 3) for p, v, own in learned]
    want = layer.out(torch.stack(heads).transpose(0, 1).flatten(1))
    torch.testing.assert_close(layer(x, mask)[0, :5], want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("length", [1, 7])
def test_second_order_attention_is_the_formula(length: int) -> None:
    torch.manual_seed(length)
    layer = NeighbourHeads(12, "nexus").double()
    x = torch.randn(1, length, 12, dtype=torch.float64)
    weights = [part.weight.T for part in (layer.query, layer.key, layer.value)]
    want = layer.out(reference_nexus(x[0], weights, heads=4))
    found = layer(x, torch.ones(1, length, dtype=torch.bool))[0]
    torch.testing.assert_close(found, want, rtol=1e-10, atol=1e-10)
    for dtype in (torch.float32, torch.bfloat16):
        low, rough = layer.to(dtype), x[0].to(dtype)
        plain = low.out(reference_nexus(rough, [weight.to(dtype) for weight in weights], heads=4))
        found = low(rough[None], torch.ones(1, length, dtype=torch.bool))[0]
        assert_within_budget(found, plain, want)


@pytest.mark.parametrize("heads", [None, JatConfig.stones(), *KIN])
def test_a_small_reader_is_trained_and_padding_tells_it_nothing(heads: Heads) -> None:
    task, training = PartnersTask(pairs=2, test_size=40), Training(steps=2, every=1, batch_size=4)
    curve = dict(learning_curve(task, heads, training=training))
    assert list(curve) == [1, 2] and set(curve[2]) == {"accuracy", "accuracy_1", "accuracy_2"}
    assert dict(learning_curve(task, heads, training=training)) == curve
    torch.manual_seed(0)
    model = SmallReader(task, 1, heads).eval()
    ids = [torch.tensor([row]) for row in ([1, 2, 3, 1], [0, 0, 0, 2], [1, 2, 3, 0])]
    padded = [torch.nn.functional.pad(row, (0, 2)) for row in ids]
    torch.testing.assert_close(model(*padded)[:, :4], model(*ids), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_stones_find_partners_that_a_plain_layer_does_not() -> None:
    task, training = PartnersTask(pairs=3), Training(steps=300, every=300)
    last = {
        name: dict(learning_curve(task, heads, training=training))[300]["accuracy_3"]
        for name, heads in {"plain": None, "stones": JatConfig.stones()}.items()
    }
    assert last["stones"] > last["plain"] + 0.1


def test_far_recall_is_hidden_from_a_window() -> None:
    task = FarRecallTask(filler=4, test_size=20)
    window = JatConfig.paper(heads="all", hop_weights=(1.0,), pattern="window:3")
    (found,) = dict(learning_curve(task, window, training=Training(steps=1))).values()
    assert 0 <= found["accuracy"] < 0.5


def test_tokenizers_know_the_words_of_their_task() -> None:
    few = counted_tokenizer(["a b a", "c a"], seen=2)
    ids = [few.cls_token_id, few.convert_tokens_to_ids("a"), few.unk_token_id, few.sep_token_id]
    assert few("a b")["input_ids"] == ids
