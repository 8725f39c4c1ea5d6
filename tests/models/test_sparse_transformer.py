import pytest
import torch
from torch.testing import assert_close

from jat_graph.patterns import parse_pattern
from models.sparse_transformer import SparseTransformer, next_token_losses

SPECS = ("strided:5", "fixed:6:2", "causal", "window:4")


def make(spec: str, layers: int = 2) -> SparseTransformer:
    torch.manual_seed(0)
    model = SparseTransformer(11, parse_pattern(spec), 40, channels=16, heads=4, layers=layers)
    torch.nn.init.normal_(model.logits.weight)  # they start at 0
    return model.eval()


def tokens(length: int = 30) -> torch.Tensor:
    return torch.randint(11, (3, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("spec", SPECS)
def test_later_tokens_change_nothing(spec: str) -> None:
    model, before = make(spec), tokens()
    after = before.clone()
    after[:, 13:] = (after[:, 13:] + 5) % 11
    changed = (model(before) != model(after)).any(-1)  # [B, L]
    assert not changed[:, :13].any()
    assert changed[:, 13].all()
    assert_close(model(before[:, :13]), model(before)[:, :13], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec", SPECS)
def test_two_layers_of_factorised_heads_carry_the_first_token_everywhere(spec: str) -> None:
    model, before = make(spec), tokens()
    after = before.clone()
    after[:, 0] = (after[:, 0] + 1) % 11
    reached = (model(before) != model(after)).any(-1).all(0)
    assert reached[:7].all()
    # A window of 4 carries three tokens a layer.
    assert reached.all() == (spec != "window:4")


def test_it_starts_with_all_tokens_alike() -> None:
    model = SparseTransformer(11, parse_pattern("strided:5"), 40, channels=16)
    assert_close(model(tokens()).softmax(-1), torch.full((3, 30, 11), 1 / 11), rtol=0.3, atol=0)
    assert next_token_losses(model, tokens()).shape == (3, 29)
