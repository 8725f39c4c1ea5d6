"""Where paper and released code differ: pins that no other test has, and the page of all pins."""

import re
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from torch import Tensor
from torch.testing import assert_close
from transformers import TrainingArguments

from examples.arguments import DataArguments
from examples.data import load_splits
from examples.sweeps.definition import read_sweep
from examples.tasks import Task
from jat_graph import JatConfig, PairGraph, jump_attention, jump_operator
from jat_graph.hf import attach
from tests.hf.models import tiny_model
from tests.inputs import random_heads, random_padding_mask
from tests.jumps.adjacency.support import sampled_ranks
from tests.oracles import (
    paper_adjacency,
    paper_head,
    paper_order_scores,
    paper_vote,
    reference_graph,
    reference_normalize,
    released_adjacency,
    released_attention,
    released_efficient_scores,
    released_scores,
)

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "faithfulness.md"

LENGTH, HEAD_DIM = 12, 4


def some_heads(threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return heads, some of whose pairs are joined; keys are longer than 1."""
    query, key, value, _ = random_heads(2, 2, LENGTH, HEAD_DIM, threshold=threshold)
    assert (key.norm(dim=-1) > 1).any()
    return 1.5 * query, key, value


def one_feature(*scores: float) -> tuple[Tensor, Tensor]:
    """Return queries and keys of one feature: token i scores every key ``scores[i]``, exactly."""
    query = torch.tensor(scores, dtype=torch.float64)[None, None, :, None]
    return query, torch.ones_like(query)


# --- the presets are what they are called --------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_papers_order_is_one_hop_less(order: int) -> None:
    query, key, value = some_heads(6.0)
    config = JatConfig.paper(hop_weights=(0.0,) * (order - 1) + (1.0,))
    if order == 2:
        assert config == JatConfig.paper()
    output = jump_attention(query, key, value, config=config)
    for b in range(2):
        for h in range(2):
            q, k, v = query[b, h], key[b, h], value[b, h]
            adjacency = paper_adjacency(paper_vote(q, k, 6.0))
            assert 0 < adjacency.count_nonzero() < LENGTH * (LENGTH - 1)
            adj_norm = reference_normalize(adjacency)
            want = paper_head(paper_order_scores(q @ k.T, adj_norm, order), v, HEAD_DIM)
            assert_close(output[b, h], want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("order", "coefficient"), [(1, 0.5), (2, 0.5), (3, 0.25)])
def test_the_released_order_is_a_sum_of_hops(order: int, coefficient: float, padded: bool) -> None:
    query, key, value = some_heads(3.0)
    valid = random_padding_mask(2, LENGTH, min_valid=5) if padded else None
    weights = (1 - coefficient, *[coefficient] * order)
    config = JatConfig.released(hop_weights=weights)
    if order == 1:
        assert config == JatConfig.released()
    output = jump_attention(query, key, value, config=config, attention_mask=valid)
    scores = released_scores(query, key, order=order, coefficient=coefficient, valid=valid)
    want = released_attention(scores, value, HEAD_DIM, valid)
    shown = torch.ones(2, LENGTH).bool() if valid is None else valid
    here = shown[:, None, :, None].expand_as(want)
    assert_close(output[here], want[here], rtol=0, atol=1e-10)
    plain = released_attention(query @ key.mT, value, HEAD_DIM, valid)
    assert not torch.allclose(plain[here], want[here], atol=1e-3)


@pytest.mark.parametrize("order", [1, 2])
def test_the_efficient_preset_is_the_released_one_and_counts_each_hop_once(order: int) -> None:
    query, key, value = some_heads(3.0)
    config = JatConfig.released(efficient=True, hop_weights=(0.5,) * (order + 1))
    scores = released_efficient_scores(query, key, sampled_ranks(config, LENGTH), order=order)
    want = released_attention(scores, value, HEAD_DIM)
    assert_close(jump_attention(query, key, value, config=config), want, rtol=0, atol=1e-10)
    changed = scores != query @ key.mT
    assert 0 < changed.sum() < changed.numel() / 2


# --- the vote ------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["dense", "sparse", "threshold"])
def test_a_product_equal_to_rho_votes_in_the_released_code_only(backend: str) -> None:
    query, key = one_feature(2.0, 3.0)
    for config, weight in ((JatConfig.paper(), 0.0), (JatConfig.paper(inclusive=True), 1.0)):
        operator = jump_operator(query, key, config=config.replace(backend=backend), scale=1.0)
        want = torch.tensor([[1.0, weight], [weight, 1.0]]).double() / (1 + weight)
        assert_close(operator.to_dense()[0, 0], want, rtol=0, atol=1e-12)
    assert paper_vote(query[0, 0], key[0, 0], 6.0).sum(dim=-1).tolist() == [[0, 0], [0, 0]]
    assert paper_vote(query[0, 0], key[0, 0], 5.9).sum(dim=-1).tolist() == [[0, 2], [2, 0]]
    assert released_adjacency(query, key, threshold=6.0)[0, 0, 0, 1] == 1


def test_two_negative_scores_never_vote_under_the_sign_gate() -> None:
    query, key = one_feature(-2.0, -3.0)
    for same_sign_only, weight in ((False, 0.5), (True, 0.0)):
        config = JatConfig(PairGraph(threshold=0.0, inclusive=True, same_sign_only=same_sign_only))
        operator = jump_operator(query, key, config=config, scale=1.0)
        assert operator.to_dense()[0, 0, 0, 1].item() == pytest.approx(weight)


# --- the graph -----------------------------------------------------------------------------------


def test_a_degree_is_a_row_sum_where_rows_and_columns_differ() -> None:
    query, key, _ = some_heads(6.0)
    adjacency = reference_graph(query, key, is_causal=True).adjacency
    assert torch.equal(adjacency, adjacency.tril(-1)) and adjacency.any()
    looped = adjacency + torch.eye(LENGTH)
    got = jump_operator(query, key, config=JatConfig.paper(), is_causal=True).to_dense()
    rows, columns = looped.sum(dim=-1), looped.sum(dim=-2)
    want = looped * rows[..., None].rsqrt() * rows[..., None, :].rsqrt()
    assert_close(got, want, rtol=0, atol=1e-10)
    other = looped * columns[..., None].rsqrt() * columns[..., None, :].rsqrt()
    assert not torch.allclose(got, other, atol=1e-3)


# --- the model and its training ------------------------------------------------------------------


@pytest.mark.parametrize(
    "config", [JatConfig.paper(), JatConfig.released(layers=(1, 2))], ids=["paper", "released"]
)
def test_jump_heads_bring_no_parameters(config: JatConfig) -> None:
    model = tiny_model("bert")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    after = attach(model, config).state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_no_output_depends_on_the_programs_own_seed() -> None:
    query, key, value = some_heads(3.0)
    outputs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        config = JatConfig.released(efficient=True)
        outputs.append(jump_attention(query, key, value, config=config))
    assert torch.equal(*outputs)


@pytest.mark.parametrize("name", ["glue", "layers", "heads", "order"])
def test_the_sweeps_say_what_they_train_with(name: str) -> None:
    said = read_sweep(name).options
    assert said["per_device_train_batch_size"] == 16
    assert (said["num_train_epochs"], said["learning_rate"]) == (6, 1e-4)
    assert said["max_train_samples"] == 1000


def test_a_choice_of_rho_never_sees_the_dev_set() -> None:
    rows = Dataset.from_dict({"text": ["a"] * 20, "label": [0, 1] * 10})
    task = Task(
        "made", "classification", lambda folder, names: {"train": rows}, None, ("accuracy",)
    )
    data = DataArguments(held_out=0.1)
    splits = load_splits(data, task, TrainingArguments("run", do_train=True, use_cpu=True), {})
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 18, "held_out": 2}


# --- the page ------------------------------------------------------------------------------------


def test_every_difference_has_a_pin_and_every_pin_is_a_test() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|", text, re.MULTILINE)
    entries = re.findall(r"^(\d+)\. ((?:.+\n)+?)(?=\d+\. |\n|\Z)", text, re.MULTILINE)
    assert len(rows) > 20
    assert rows == [number for number, _ in entries] == [str(n + 1) for n in range(len(rows))]
    for number, entry in entries:
        pins = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", entry)
        assert pins, f"no test pins difference {number}"
        for path, name in pins:
            known = f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
            assert known and name.startswith("test_"), f"{number}: no test {path}::{name}"
