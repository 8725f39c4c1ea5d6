"""The oracle of area attention against the published vectors, and against plain attention."""

import torch
from torch import Tensor
from torch.testing import assert_close

from tests.oracles.areas import reference_area_pool, reference_areas

# The features of Tensor2Tensor's area_attention_test.py, one of its two sequences.
LINE = torch.tensor([[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]], dtype=torch.float64)
GRID = torch.tensor([[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12]], dtype=torch.float64)

LINE_MEANS = [1, 3, 5, 7, 9, 2, 4, 6, 8, 3, 5, 7]  # of the first feature; the second is 1 more
LINE_WIDTHS = [1] * 5 + [2] * 4 + [3] * 3
LINE_STD = [0.0] * 5 + [1.0] * 4 + [1.63299] * 3
GRID_MEANS = [1, 3, 5, 7, 9, 11, 2, 4, 8, 10, 3, 9, 4, 6, 8, 5, 7, 6]
GRID_HEIGHTS = [1] * 12 + [2] * 6
GRID_WIDTHS = [1] * 6 + [2] * 4 + [3] * 2 + [1] * 3 + [2] * 2 + [3]


def both_features(first: list[float]) -> Tensor:
    column = torch.tensor(first, dtype=torch.float64)
    return torch.stack([column, column + 1], dim=-1)


def test_the_published_vectors_of_a_line() -> None:
    areas = reference_areas(5, max_width=3)
    assert [area.width for area in areas] == LINE_WIDTHS
    assert {area.height for area in areas} == {1}
    means = both_features(LINE_MEANS)
    assert_close(reference_area_pool(LINE, areas, "mean"), means)
    sizes = torch.tensor(LINE_WIDTHS, dtype=torch.float64)
    assert_close(reference_area_pool(LINE, areas, "sum"), means * sizes[:, None])
    deviations = reference_area_pool(LINE, areas, "std")
    expected = torch.tensor(LINE_STD, dtype=torch.float64)[:, None].expand(-1, 2)
    assert_close(deviations, expected, atol=1e-2, rtol=0)  # the test's own tolerance


def test_the_published_vectors_of_a_grid() -> None:
    areas = reference_areas(6, max_width=3, max_height=2, height=2)
    assert [area.height for area in areas] == GRID_HEIGHTS
    assert [area.width for area in areas] == GRID_WIDTHS
    means = both_features(GRID_MEANS)
    assert_close(reference_area_pool(GRID, areas, "mean"), means)
    sizes = torch.tensor(GRID_HEIGHTS) * torch.tensor(GRID_WIDTHS)
    assert_close(reference_area_pool(GRID, areas, "sum"), means * sizes[:, None])
