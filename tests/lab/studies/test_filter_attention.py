"""Filter heads in small models, and as arms of grids."""

import pytest
import torch

from jat_graph.filter_config import FilterConfig
from jat_graph.lab.studies import GridArm
from jat_graph.lab.studies.arms import arm_of, build_heads, check_arm
from jat_graph.lab.studies.filter_attention import FilterSelfAttention
from jat_graph.lab.studies.small_reader import (
    ReaderHeads,
    ReaderTraining,
    SmallReader,
    learning_curve,
)
from jat_graph.reference import reference_ppr
from jat_graph.tasks import PartnersTask
from jat_graph.training import parameter_groups


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


@pytest.mark.parametrize("rule", ["gfsa", "ppr"])
def test_small_models_learn_with_them(rule: str) -> None:
    training = ReaderTraining(steps=4, every=2, batch_size=4)
    curve = list(learning_curve(PartnersTask(pairs=2), FilterConfig(rule), training=training))
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
