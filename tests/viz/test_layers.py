"""Pictures of layers: a token is coloured where the model's own derivative says that it is read."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian

from jat_graph.viz import draw_patterns
from models.biblosa import BlockSelfAttention
from models.memory_compressed import MemoryCompressedAttention
from tests.oracles import reference_area_mask, reference_areas

LENGTH = 20


def read_tokens(layer: nn.Module, channels: int) -> Tensor:
    """Return which tokens an output depends on, its own left out: bool ``[L, L]``."""
    x = torch.randn(1, LENGTH, channels, generator=torch.Generator().manual_seed(0))
    slopes: Tensor = jacobian(layer.eval(), x)  # [1, L, C, 1, L, C]
    return (slopes.abs().amax((0, 2, 3, 5)) > 1e-12) & ~torch.eye(LENGTH, dtype=torch.bool)


def drawn(spec: str) -> list[tuple[str, Tensor]]:
    """Return titles and colours of the panels that a layer is drawn in."""
    return [
        (axis.get_title(), torch.from_numpy(axis.images[0].get_array().filled()))
        for axis in draw_patterns([spec], LENGTH).axes
        if axis.axison
    ]


def others(colours: Tensor) -> Tensor:
    return (colours > 0) & ~torch.eye(LENGTH, dtype=torch.bool)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 3), (5, 2), (4, 3), (30, 7)])
def test_compressed_memory(kernel: int, stride: int, is_causal: bool) -> None:
    torch.manual_seed(0)
    layer = MemoryCompressedAttention(4, 1, kernel, stride, is_causal)
    order = ":causal" if is_causal else ""
    ((title, colours),) = drawn(f"memory-compressed:{kernel}:{stride}{order}")
    assert torch.equal(others(colours), read_tokens(layer, 4))
    assert title.endswith(f"\n{LENGTH} tokens in {1 + -(-LENGTH // stride)} keys")
    for query in range(LENGTH):
        for key in range(LENGTH):
            ways = [1] * (key == 0)
            for slot, start in enumerate(range(0, LENGTH, stride)):
                is_read = not is_causal or start + kernel <= query
                ways += [2 + slot % 2] * (is_read and start <= key < start + kernel)
            wanted = 4 if len(ways) > 1 else sum(ways)
            assert int(colours[query, key]) == wanted


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("width", [1, 3, 40])
def test_areas(width: int, is_causal: bool) -> None:
    (_, made), (_, read) = drawn(f"area:{width}" + (":causal" if is_causal else ""))
    areas = reference_areas(LENGTH, max_width=width)
    order = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    allowed = reference_area_mask(order.tril() if is_causal else order, areas)
    widths = torch.tensor([area.width for area in areas])
    assert torch.equal(read, allowed * widths)
    for place, area in enumerate(areas):
        wanted = [area.width if token in area.members else 0 for token in range(LENGTH)]
        assert made[:, place].tolist() == wanted
    assert int(made.max()) == min(width, LENGTH)


@pytest.mark.parametrize("size", [4, 5])
def test_blocks(size: int) -> None:
    torch.manual_seed(0)
    layer = BlockSelfAttention(3, 3, size)
    panels = [colours for _, colours in drawn(f" block:{size}")]
    whole = read_tokens(layer, 3)
    assert torch.equal(others(panels[0]) | others(panels[1]), whole)
    block = torch.arange(LENGTH) // size
    ways = (layer.forward_blocks, layer.backward_blocks)
    for panel, way, order in zip(panels, ways, (torch.le, torch.ge), strict=True):
        assert torch.equal(panel > 0, order(block, block[:, None]))
        h = torch.randn(size, 3, generator=torch.Generator().manual_seed(0))
        mask = torch.ones(size, dtype=torch.bool)
        slopes = jacobian(lambda h, way=way, mask=mask: way.tokens(h, mask), h).abs().amax((1, 3))
        near = (slopes > 1e-12) & ~torch.eye(size, dtype=torch.bool)
        assert torch.equal(panel[:size, :size] == 1, near)


@pytest.mark.parametrize(
    ("spec", "length"),
    [
        ("area", 8),
        ("area:3:early", 8),
        ("area:0", 8),
        ("block:5+window:3", 8),
        ("block:0", 8),
        ("memory-compressed:3", 8),
        ("memory-compressed:3:4", 8),
        ("blocks:3", 8),
        ("area:9", 1000),
    ],
)
def test_what_cannot_be_drawn_is_one_line(spec: str, length: int) -> None:
    with pytest.raises(ValueError) as error:
        draw_patterns([spec], length)
    assert "\n" not in str(error.value)
