"""The strongest links, against their definition, and the room that a file has."""

import pytest
import torch

from jat_graph.viewer import head_view
from tests.viewer.conftest import links_of


def slow_links(matrix: torch.Tensor, most: int) -> tuple[list[tuple[int, int]], float]:
    """Return what is kept, and the share of what is too weak."""
    sizes = {
        (i, k): abs(value) for i, row in enumerate(matrix.tolist()) for k, value in enumerate(row)
    }
    pairs = sorted((pair for pair in sizes if sizes[pair]), key=lambda pair: -sizes[pair])
    first = {pair[0]: pair for pair in reversed(pairs)}  # the strongest of each row
    rest = [pair for pair in pairs if pair != first[pair[0]]]
    kept = {*first.values(), *rest[: most - len(first)]}
    weak = sum(sizes[pair] for pair in pairs if pair not in kept)
    return sorted(kept), weak / (sum(sizes.values()) or 1.0)


@pytest.mark.parametrize("length", [1, 7, 100])  # 4096 links are shown of a matrix, at most
@pytest.mark.parametrize("kind", ["attention", "uneven", "difference", "causal", "nothing"])
def test_the_strongest_of_each_row_and_of_all_are_kept(kind: str, length: int) -> None:
    torch.manual_seed(length)
    one, other = torch.randn(2, length, length).softmax(-1)
    matrix = {
        "attention": one,
        "uneven": one * torch.linspace(1e-3, 1, length)[:, None],  # rows that are weak throughout
        "difference": one - other,
        "causal": one.tril(),
        "nothing": 0 * one,
    }[kind]
    links = links_of(matrix)
    kept, weak = slow_links(matrix, 4096)
    pairs = list(zip(links.queries.tolist(), links.keys.tolist(), strict=True))
    assert pairs == kept
    assert links.values.tolist() == [float(matrix[pair]) for pair in pairs]
    assert links.left_out == pytest.approx(weak, abs=1e-6)
    assert links.hidden == 0


@pytest.mark.parametrize(("heads", "least", "most"), [(600, 4096, 4096), (1000, 70, 4095)])
def test_what_fits_is_kept(heads: int, least: int, most: int) -> None:
    page = head_view([torch.rand(70, 70).expand(heads, 70, 70)], ["token"] * 70)
    (number,) = {len(head.links["attention"].values) for head in page.texts[0].heads}
    assert least <= number <= most
    assert len(page.html) < 20_000_000


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="below 20 MB"):
        head_view([torch.ones(84_000, 1, 1)], ["token"])
