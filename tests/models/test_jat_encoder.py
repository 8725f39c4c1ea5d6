import pytest
import torch

from jat_graph import JatConfig, PairGraph
from models.jat_encoder import JatEncoder
from tests.support import assert_equal

JUMPS = JatConfig(PairGraph(threshold=0.02), hop_weights=(0.0, 1.0), heads=2)
LAYERS = [
    JatConfig(PairGraph(standardize=True, threshold=1.0), heads="all", conv="GATv2Conv"),
    JatConfig.stones(conv="StoneConv"),
]


def make(config: JatConfig | None, strength: float = 0.5) -> JatEncoder:
    torch.manual_seed(0)
    model = JatEncoder(11, 5, config, channels=16, heads=4, layers=2).eval()
    for theta in (p for name, p in model.named_parameters() if name.endswith("strength.theta")):
        torch.nn.init.constant_(theta, strength)
    return model


def tokens() -> torch.Tensor:
    return torch.randint(11, (3, 24), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("config", [None, JUMPS, *LAYERS])
def test_every_token_counts_and_padding_does_not(config):
    model = make(config).double()
    mask = torch.arange(24) < torch.tensor([[24], [9], [17]])
    together = model(tokens(), mask)  # [B, classes]
    assert together.shape == (3, 5)
    for row, count in enumerate(mask.sum(-1).tolist()):
        alone = model(tokens()[row : row + 1, :count])
        assert_equal(together[row : row + 1], alone)
        changed = tokens()[row : row + 1, :count]
        changed[:, -1] = (changed[:, -1] + 1) % 11
        assert not torch.allclose(model(changed), alone, atol=1e-6)


@pytest.mark.parametrize("config", LAYERS)
def test_layers_in_the_heads_begin_at_nothing_and_learn(config):
    base, model = make(None), make(config, strength=0.0)
    model.load_state_dict(base.state_dict(), strict=False)
    with torch.no_grad():
        assert torch.equal(model(tokens()), base(tokens()))
    model.layers[0].attention.strength.theta.data += 0.5
    out = model(tokens())
    assert not torch.allclose(out, base(tokens()), atol=1e-4)
    out.square().sum().backward()
    found = [p.grad for p in model.layers[0].attention.jump_conv.parameters()]
    assert found and any(grad is not None and grad.abs().max() > 0 for grad in found)
