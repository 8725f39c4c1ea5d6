"""The oracle of area attention against the published vectors."""

import torch

from tests.oracles.areas import reference_area_attention, reference_areas

# The features of Tensor2Tensor's area_attention_test.py, one of its two sequences.
LINE = torch.tensor([[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]], dtype=torch.float64)
LINE_MEANS = [1, 3, 5, 7, 9, 2, 4, 6, 8, 3, 5, 7]  # of the first feature; the second is 1 more
LINE_WIDTHS = [1] * 5 + [2] * 4 + [3] * 3


def test_the_published_vectors_of_a_line() -> None:
    areas = reference_areas(5, max_width=3)
    assert [len(area) for area in areas] == LINE_WIDTHS
    assert [LINE[list(area), 0].mean().item() for area in areas] == LINE_MEANS


def test_without_a_query_all_areas_weigh_the_same() -> None:
    allowed = torch.ones(1, 5, dtype=torch.bool)
    read = reference_area_attention(0 * LINE, LINE, LINE, allowed, max_width=3, scale=1.0)
    sums = torch.tensor(LINE_MEANS) * torch.tensor(LINE_WIDTHS)
    assert torch.allclose(read[:, 0], sums.double().mean())
