"""What one layer of stones tells of partners with weights set by hand: what a partner carries."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from examples.tasks.recall import PartnersTask
from jat_graph import JatConfig, jump_attention


def share_of_right_answers(
    pairs: int, seed: int, names: Tensor, config: JatConfig, walked: float = 1.0
) -> float:
    """Of 20 sequences; names are rows of a table, and what hubs hold is the sum of two."""
    task = PartnersTask(pairs=pairs)
    drawn = task.draw(np.full(20, pairs), np.random.default_rng(seed))
    first, second, value, answer = map(
        torch.tensor, (drawn.first, drawn.second, drawn.value, drawn.answer)
    )
    is_hub = (second > 0)[..., None].float()
    held = torch.cat([torch.zeros(1, names.size(1)), names])
    query, key = held[first] * (1 - is_hub), (held[first] + held[second]) * is_hub
    carried = one_hot(value, task.values + 1).float()[..., 1:]
    heads = (x[:, None] for x in (query, key, carried))
    over_stones = torch.tensor([0.0, 0.0, walked]).view(3, 1, 1)
    out = jump_attention(*heads, config=config, scale=100.0, strength=over_stones)[:, 0]
    said = (2 * out - carried).argmax(-1) + 1
    return float((said == answer)[answer > 0].double().mean())


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 48), st.integers(0, 2**32 - 1))
def test_any_number_of_pairs_is_told(pairs: int, seed: int) -> None:
    names = torch.eye(4 * pairs)
    assert share_of_right_answers(pairs, seed, names, JatConfig.stones()) == 1


@settings(deadline=None, max_examples=20)
@given(st.integers(8, 32), st.integers(0, 2**32 - 1))
def test_names_need_few_dimensions(pairs: int, seed: int) -> None:
    """Directions of 64 dimensions are nearly at right angles, 128 of them as well."""
    draw = torch.Generator().manual_seed(seed)
    names = normalize(torch.randn(4 * pairs, 64, generator=draw), dim=-1)
    assert share_of_right_answers(pairs, seed, names, JatConfig.stones(threshold=3.0)) > 0.97


def test_without_the_walk_nothing_is_told() -> None:
    assert share_of_right_answers(8, 0, torch.eye(32), JatConfig.stones(), walked=0.0) < 0.3
