"""The strongest links, against their definition, and the room that a file has."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.viewer.content import (
    FILE_BYTES,
    JUMP_BYTES,
    LINK_BYTES,
    links_with_room,
    strongest_links,
)


def slow_links(
    matrix: torch.Tensor, most: int, shown: int
) -> tuple[set[tuple[int, int]], float, float]:
    """Return what is kept, and the shares of what is not: too weak, and hidden."""
    entries = {
        (i, k): abs(float(matrix[i, k])) for i in range(len(matrix)) for k in range(matrix.size(1))
    }
    total = sum(entries.values())
    visible = {pair: value for pair, value in entries.items() if pair[1] < shown and value}
    first = set()
    for i in range(len(matrix)):
        row = {pair: value for pair, value in visible.items() if pair[0] == i}
        first |= {max(row, key=row.__getitem__)} if row else set()
    rest = sorted(set(visible) - first, key=lambda pair: -visible[pair])
    kept = first | set(rest[: max(0, most - len(first))])
    weak = sum(visible[pair] for pair in set(visible) - kept)
    hidden = total - sum(visible.values())
    return kept, weak / total if total else 0.0, hidden / total if total else 0.0


@given(
    rows=st.integers(1, 7),
    others=st.integers(0, 3),
    extra=st.integers(0, 60),
    kind=st.sampled_from(["attention", "difference", "causal", "nothing"]),
    seed=st.integers(0, 1000),
)
def test_the_strongest_of_each_row_and_of_all_are_kept(
    rows: int, others: int, extra: int, kind: str, seed: int
) -> None:
    torch.manual_seed(seed)
    matrix = torch.randn(rows, rows + others).softmax(-1)
    if kind == "difference":
        matrix = matrix - torch.randn(rows, rows + others).softmax(-1)
    elif kind != "attention":
        matrix = matrix.tril() if kind == "causal" else torch.zeros_like(matrix)
    links = strongest_links(matrix, rows + extra, rows)
    kept, weak, hidden = slow_links(matrix, rows + extra, rows)
    pairs = list(zip(links.queries.tolist(), links.keys.tolist(), strict=True))
    assert pairs == sorted(kept)
    assert links.values.tolist() == [float(matrix[pair]) for pair in pairs]
    assert links.left_out == pytest.approx(weak, abs=1e-6)
    assert links.hidden == pytest.approx(hidden, abs=1e-6)


def test_what_fits_is_kept_and_what_does_not_is_refused() -> None:
    assert links_with_room(576 * 512, 576) == 4096  # 12 × 12 heads that jump, on 512 tokens
    assert 512 <= links_with_room(4 * 576 * 512, 4 * 576) < 4096
    with pytest.raises(ValueError, match="below 20 MB"):
        links_with_room(57600 * 512, 57600)
    assert LINK_BYTES + JUMP_BYTES < FILE_BYTES
