"""Pictures of layers: a token is coloured where the layer's own derivative says that it is read."""

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian

from jat_graph.checks.layers import is_layer
from jat_graph.nn import TDMCA, AreaAttention, BlockSelfAttention, MemoryCompressedAttention
from jat_graph.viz import draw_patterns
from jat_graph.viz.layers import layer_panels, parse_layer
from tests.oracles import reference_area_mask, reference_areas

LENGTH = 20


def read_tokens(layer: nn.Module, channels: int) -> Tensor:
    """Return which tokens an output depends on, its own left out: bool ``[L, L]``."""
    x = torch.randn(1, LENGTH, channels, generator=torch.Generator().manual_seed(0))
    slopes: Tensor = jacobian(layer.eval(), x)  # [1, L, C, 1, L, C]
    return (slopes.abs().amax((0, 2, 3, 5)) > 1e-12) & ~torch.eye(LENGTH, dtype=torch.bool)


def others(colours: Tensor) -> Tensor:
    return (colours > 0) & ~torch.eye(LENGTH, dtype=torch.bool)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 3), (5, 2), (4, 3), (30, 7)])
def test_compressed_memory(kernel: int, stride: int, is_causal: bool) -> None:
    torch.manual_seed(0)
    layer = MemoryCompressedAttention(4, 1, kernel, stride, is_causal)
    (panel,) = layer_panels(layer, LENGTH)
    assert torch.equal(others(panel.colours), read_tokens(layer, 4))
    assert panel.title.endswith(f"\n{LENGTH} tokens in {1 + -(-LENGTH // stride)} keys")
    for query in range(LENGTH):
        for key in range(LENGTH):
            ways = [1] * (key == 0)
            for slot, start in enumerate(range(0, LENGTH, stride)):
                is_read = not is_causal or start + kernel <= query
                ways += [2 + slot % 2] * (is_read and start <= key < start + kernel)
            wanted = 4 if len(ways) > 1 else sum(ways)
            assert int(panel.colours[query, key]) == wanted


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("width", [1, 3, 40])
def test_areas(width: int, is_causal: bool) -> None:
    made, read = layer_panels(AreaAttention(4, 1, width, is_causal=is_causal), LENGTH)
    areas = reference_areas(LENGTH, max_width=width)
    order = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    allowed = reference_area_mask(order.tril() if is_causal else order, areas)
    widths = torch.tensor([area.width for area in areas])
    assert torch.equal(read.colours, allowed * widths)
    for place, area in enumerate(areas):
        wanted = [area.width if token in area.members else 0 for token in range(LENGTH)]
        assert made.colours[:, place].tolist() == wanted
    assert len(made.names) == min(width, LENGTH)


@pytest.mark.parametrize("size", [4, 5, None])
def test_blocks(size: int | None) -> None:
    torch.manual_seed(0)
    layer = BlockSelfAttention(3, block_length=size)
    panels = layer_panels(layer, LENGTH)
    whole = read_tokens(layer, 3)
    assert torch.equal(others(panels[0].colours) | others(panels[1].colours), whole)
    length = size or 4  # ⌈40^(1/3)⌉
    block = torch.arange(LENGTH) // length
    for panel, way, order in zip(
        panels,
        (layer.forward_blocks, layer.backward_blocks),
        (torch.le, torch.ge),
        strict=True,
    ):
        assert panel.title == f"block:{length}\n" + ("backward", "forward")[order is torch.le]
        assert torch.equal(panel.colours > 0, order(block, block[:, None]))
        h = torch.randn(length, 3, generator=torch.Generator().manual_seed(0))
        mask = torch.ones(length, dtype=torch.bool)
        slopes = jacobian(lambda h, way=way, mask=mask: way.tokens(h, mask), h).abs().amax((1, 3))
        near = (slopes > 1e-12) & ~torch.eye(length, dtype=torch.bool)
        assert torch.equal(panel.colours[:length, :length] == 1, near)


def test_text_makes_the_layer() -> None:
    memory = parse_layer("memory-compressed:5:3:causal")
    assert isinstance(memory, MemoryCompressedAttention)
    assert (memory.kernel_size, memory.stride, memory.is_causal) == (5, 3, True)
    area, blocks = parse_layer("area:3"), parse_layer(" block:6")
    assert isinstance(area, AreaAttention) and isinstance(blocks, BlockSelfAttention)
    assert (area.areas.max_width, area.is_causal, blocks.block_length) == (3, False, 6)
    assert not any(is_layer(spec) for spec in ("window:3", "", "blocks:3", "local:3"))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("area", r"pattern must be area:WIDTH\[:causal\], got 'area'"),
        ("area:3:early", r"pattern must be area:WIDTH\[:causal\], got 'area:3:early'"),
        ("area:0", "max_width must be at least 1, got 0"),
        ("block:5+window:3", r"pattern must be block:LENGTH, got 'block:5\+window:3'"),
        ("block:0", "block_length must be at least 1, got 0"),
        ("memory-compressed:3", r"pattern must be memory-compressed:KERNEL:STRIDE\[:causal\], got"),
        ("memory-compressed:3:4", "stride must be at most kernel_size=3"),
    ],
)
def test_text_that_makes_none_is_one_line(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as error:
        parse_layer(spec)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("layer", "length", "message"),
    [
        (TDMCA(4, 1), 8, "patterns must be patterns or layers, got TDMCA"),
        (AreaAttention(4, 1, 2, 2, height=2), 8, "height must be 1 for areas to be drawn, got 2"),
        (AreaAttention(4, 1, 9), 1000, "areas must be at most 4096 to be drawn, got 8964"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(layer: nn.Module, length: int, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        draw_patterns([layer], length)
