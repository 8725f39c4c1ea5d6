"""Kin of jump heads in small models, and as arms of grids."""

import pytest
import torch
from torch import Tensor, nn

from jat_graph.attention.triplets import draw_shuffle
from jat_graph.filter_config import FilterConfig
from jat_graph.lab.studies import GridArm
from jat_graph.lab.studies.arms import arm_of, build_heads, check_arm
from jat_graph.lab.studies.neighbour_attention import (
    FilterSelfAttention,
    NexusConfig,
    NexusSelfAttention,
    TripletSelfAttention,
)
from jat_graph.lab.studies.small_reader import (
    ReaderHeads,
    ReaderTraining,
    SmallReader,
    learning_curve,
)
from jat_graph.nn.self_attention import SelfAttention
from jat_graph.tasks import PartnersTask
from jat_graph.training import parameter_groups
from jat_graph.triplet_config import PAIRS, TripletConfig
from tests.oracles import reference_nexus, reference_ppr, reference_triplet_attention

KIN = [FilterConfig(), FilterConfig("ppr"), TripletConfig(), NexusConfig()]


def _reader(config: ReaderHeads) -> SmallReader:
    torch.manual_seed(0)
    return SmallReader(PartnersTask(pairs=2), 1, config).eval()


def _said(model: SmallReader) -> torch.Tensor:
    first, second = torch.tensor([[1, 2, 3, 1, 0]]), torch.tensor([[0, 0, 0, 2, 0]])
    logits: torch.Tensor = model(first, second, torch.tensor([[1, 2, 3, 0, 0]]))
    return logits[:, :4]


def test_a_small_model_with_gfsa_begins_as_the_plain_one() -> None:
    plain, gfsa = _reader(None), _reader(FilterConfig())
    torch.testing.assert_close(_said(gfsa), _said(plain))
    assert [p.shape for p in parameter_groups(gfsa, lr=1.0)[2]["params"]] == [(3, 4)]
    assert not torch.allclose(_said(_reader(FilterConfig("ppr"))), _said(plain))


def test_a_small_layer_is_the_formula_without_its_padding() -> None:
    torch.manual_seed(0)
    layer = FilterSelfAttention(8, 2, FilterConfig("ppr", order=4, restart=0.2)).double()
    x = torch.randn(1, 7, 8, dtype=torch.float64)
    mask = torch.arange(7)[None] < 5
    query, key, value = layer.project(x[:, :5], x[:, :5])
    rows = (query @ key.mT / 2).softmax(-1)
    heads = [reference_ppr(rows[0, h], value[0, h], 0.2, 4) for h in range(2)]
    want = layer.merge(torch.stack(heads)[None], None)
    torch.testing.assert_close(layer(x, mask)[:, :5], want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("length", [1, 2, 7])
def test_second_order_attention_is_the_formula(length: int) -> None:
    torch.manual_seed(length)
    layer = NexusSelfAttention(12, 3).double()
    x = torch.randn(1, length, 12, dtype=torch.float64, requires_grad=True)
    weights = [part.weight.T for part in (layer.q, layer.k, layer.v)]
    want = layer.attn_out(reference_nexus(x[0], weights, heads=3))
    _assert_same(layer(x)[0], want, x, *layer.parameters())


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("length", [1, 7])
def test_a_small_layer_has_one_plain_head_and_three_triplet_heads(pairs: str, length: int) -> None:
    torch.manual_seed(length)
    layer = TripletSelfAttention(16, 4, TripletConfig(pairs=pairs)).double()
    x = torch.randn(1, length, 16, dtype=torch.float64, requires_grad=True)
    query, key, value = (part(x)[0] for part in (layer.q, layer.k, layer.v))
    plain = (query[:, :4] @ key[:, :4].T / 2).softmax(-1) @ value[:, :4]
    triplets = reference_triplet_attention(
        *(y[:, 4:] for y in (query, key, value)),
        None if layer.key2 is None else layer.key2(x[0]),
        aggregation=pairs,
        shuffled=draw_shuffle(length, 0).argsort().tolist(),
    )
    want = layer.attn_out(torch.cat([plain, triplets], 1))
    _assert_same(layer(x)[0], want, x, *layer.parameters())


def _assert_same(found: Tensor, want: Tensor, *leaves: Tensor) -> None:
    """Compare values, and the gradients of a sum with random weights."""
    torch.testing.assert_close(found, want, rtol=1e-10, atol=1e-10)
    weight = torch.randn(found.shape, dtype=found.dtype)
    one, other = (torch.autograd.grad((weight * y).sum(), leaves) for y in (found, want))
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("config", KIN, ids=["gfsa", "ppr", "triplet", "nexus"])
def test_padding_of_a_small_layer_changes_nothing(config: ReaderHeads) -> None:
    torch.manual_seed(0)
    layer: nn.Module = _reader(config).layers[0]
    attention = layer.attention
    assert isinstance(attention, SelfAttention)
    x, mask = torch.randn(2, 9, 64), torch.arange(9)[None] < torch.tensor([[9], [5]])
    alone = attention(x[1:, :5])[0]
    torch.testing.assert_close(attention(x, mask)[1, :5], alone)
    torch.testing.assert_close(attention(x.masked_fill(~mask[..., None], 7.0), mask)[1, :5], alone)


@pytest.mark.parametrize("config", KIN, ids=["gfsa", "ppr", "triplet", "nexus"])
def test_small_models_learn_with_them(config: ReaderHeads) -> None:
    training = ReaderTraining(steps=4, every=2, batch_size=4)
    curve = list(learning_curve(PartnersTask(pairs=2), config, channels=32, training=training))
    assert [step for step, _ in curve] == [2, 4]


@pytest.mark.parametrize("rule", ["gfsa", "ppr"])
def test_an_arm_has_them_on_a_model_of_any_size(rule: str) -> None:
    arm = GridArm("kin", rule, {"order": 5, "layers": "7-12/12"})  # type: ignore[arg-type]
    check_arm(arm, "grid")
    assert build_heads(arm, layers=6, heads=4) == FilterConfig(rule, 5, layers=(3, 4, 5))
    config = FilterConfig(rule, 7)
    assert build_heads(arm_of("kin", config, {}), layers=6, heads=4) == config


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tune": True}, "take no tune"),
        ({"density": 0.1}, "take no density"),
        ({"triplets": {}}, "takes no triplets"),
        ({"settings": {"threshold": 4.0}}, "threshold"),
    ],
)
def test_what_they_lack_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_arm(GridArm("kin", "gfsa", **fields), "grid")  # type: ignore[arg-type]


def test_heads_that_need_projections_are_for_small_models_alone() -> None:
    check_arm(GridArm("kin", "nexus"), "grid")
    with pytest.raises(ValueError, match="heads must not be 'nexus' here"):
        build_heads(GridArm("kin", "nexus"), layers=6, heads=4)
    with pytest.raises(ValueError, match="heads = 'nexus' takes no settings"):
        check_arm(GridArm("kin", "nexus", {"order": 2}), "grid")
