import dataclasses

import pytest
import torch
from torch.testing import assert_close

from jat_graph import JatConfig, PairGraph
from models.jat_decoder import JatDecoder

JUMPS = JatConfig(
    PairGraph(threshold=0.02, key_selection="strided", key_step=2), hop_weights=(0.0, 1.0), heads=2
)


def make(config: JatConfig | None) -> JatDecoder:
    torch.manual_seed(0)
    return JatDecoder(11, config, channels=16, heads=4, layers=2).eval()


def tokens() -> torch.Tensor:
    return torch.randint(11, (3, 24), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("config", [None, JUMPS])
def test_later_tokens_change_nothing(config: JatConfig | None) -> None:
    model, before = make(config), tokens()
    after = before.clone()
    after[:, 13:] = (after[:, 13:] + 5) % 11
    changed = (model(before) != model(after)).any(-1)  # [B, L]
    assert not changed[:, :13].any()
    assert changed[:, 13].all()


def test_jump_heads_read_otherwise_and_without_hops_do_not() -> None:
    base, jump = make(None), make(JUMPS)
    assert jump.state_dict().keys() == base.state_dict().keys()  # no new parameters
    assert not torch.allclose(jump(tokens()), base(tokens()), atol=1e-3)
    stays = make(dataclasses.replace(JUMPS, hop_weights=(1.0,)))
    assert torch.equal(stays(tokens()), base(tokens()))


@pytest.mark.parametrize("config", [None, JUMPS])
def test_padding_after_the_end_changes_nothing(config: JatConfig | None) -> None:
    model = make(config).double()
    mask = torch.arange(24) < torch.tensor([[24], [9], [17]])
    together = model(tokens(), mask)
    for row, count in enumerate(mask.sum(-1).tolist()):
        alone = model(tokens()[row : row + 1, :count])
        assert_close(together[row, :count], alone[0], rtol=1e-10, atol=1e-10)


def test_a_config_that_looks_ahead_is_refused() -> None:
    with pytest.raises(ValueError, match="vote_rate"):
        make(dataclasses.replace(JUMPS, vote_rate=0.1))(tokens())
