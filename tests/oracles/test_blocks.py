"""The oracle of block self-attention, on cases whose answer is known."""

import pytest
import torch
from torch.testing import assert_close

from tests.oracles.blocks import reference_block_attention, reference_block_length

WIDTH = 3


def zeros(*names: str, inputs: int = WIDTH, outputs: int = WIDTH) -> dict[str, torch.Tensor]:
    """Return linear layers that give 0."""
    weights = {}
    for name in names:
        weights[f"{name}.weight"] = torch.zeros(outputs, inputs, dtype=torch.float64)
        weights[f"{name}.bias"] = torch.zeros(outputs, dtype=torch.float64)
    return weights


@pytest.mark.parametrize(("length", "want"), [(1, 2), (4, 2), (5, 3), (13, 3), (14, 4), (500, 10)])
def test_the_block_length_is_the_root_of_twice_the_length_rounded_up(
    length: int, want: int
) -> None:
    assert reference_block_length(length) == want


def test_a_closed_gate_leaves_the_tokens_and_an_open_one_the_contexts() -> None:
    x = torch.rand(4, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weights = zeros("pool", "block_hidden", "tokens.source", "tokens.target")
    weights |= zeros("blocks.source", "blocks.target")
    weights |= zeros("gate", inputs=2 * WIDTH)
    weights |= zeros("fusion", inputs=3 * WIDTH, outputs=2 * WIDTH)
    weights |= zeros("hidden")
    weights["hidden.weight"] = torch.eye(WIDTH, dtype=torch.float64)  # h = x, which is positive
    weights["fusion.bias"][WIDTH:] = -1e3
    assert_close(reference_block_attention(x, weights, block_length=2), x)
    weights["fusion.bias"][WIDTH:] = 1e3
    weights["fusion.weight"][:WIDTH, WIDTH : 2 * WIDTH] = torch.eye(WIDTH)  # what was read nearby
    got = reference_block_attention(x, weights, block_length=2)
    nothing = torch.zeros(WIDTH).double()
    assert_close(got, torch.stack([nothing, x[0], nothing, x[2]]))
