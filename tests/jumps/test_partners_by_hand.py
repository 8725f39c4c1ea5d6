"""What one layer tells of partners with weights set by hand.

Stones tell what a partner carries. Plain heads keep a table of all names and values for that, which
has to grow with the number of pairs.
"""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize, one_hot, scaled_dot_product_attention
from torch.testing import assert_close

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


def share_by_table(pairs: int, seed: int, codes: Tensor) -> float:
    """Right answers of plain heads; codes of a name with a value are ``[names, values, width]``.

    One head reads who the partner is, off the hub. The other adds up the codes of all names with
    their values, whoever asks. The layers of the token alone look the partner up in that sum.
    """
    task = PartnersTask(pairs=pairs)
    drawn = task.draw(np.full(20, pairs), np.random.default_rng(seed))
    first, second, value, answer = map(
        torch.tensor, (drawn.first, drawn.second, drawn.value, drawn.answer)
    )
    is_name = (second == 0)[..., None].float()
    names = one_hot(torch.arange(task.num_names + 1)).float()
    names[0] = 0
    own, held = names[first] * is_name, (names[first] + names[second]) * (1 - is_name)
    partner = (scaled_dot_product_attention(own, held, held, scale=100.0) - own).argmax(-1)
    carried = codes[first - 1, value - 1] * is_name
    table = scaled_dot_product_attention(0 * own, 0 * held, carried)
    said = torch.einsum("bld, blvd -> blv", table, codes[partner - 1]).argmax(-1) + 1
    return float((said == answer)[answer > 0].double().mean())


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 24), st.integers(0, 2**32 - 1))
def test_plain_heads_tell_any_number_of_pairs_with_a_place_for_each_name_and_value(
    pairs: int, seed: int
) -> None:
    places = torch.eye(4 * pairs * 8).view(4 * pairs, 8, -1)
    assert share_by_table(pairs, seed, places) == 1


def test_with_fewer_places_the_table_has_to_grow_with_the_number_of_pairs() -> None:
    def share(pairs: int, width: int) -> float:
        draw = torch.Generator().manual_seed(0)
        codes = normalize(torch.randn(4 * pairs, 8, width, generator=draw), dim=-1)
        return share_by_table(pairs, 0, codes)

    by_width = [share(8, width) for width in (16, 32, 64, 128, 256)]
    assert by_width == sorted(by_width) and by_width[0] < 0.5 and by_width[-1] > 0.95
    by_pairs = [share(pairs, 64) for pairs in (2, 4, 8, 16)]
    assert by_pairs == sorted(by_pairs, reverse=True) and by_pairs[-1] < 0.6
    assert abs(share(8, 64) - share(32, 256)) < 0.1  # twice the pairs, twice the width


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 8), st.integers(0, 2**32 - 1))
def test_what_a_plain_head_adds_up_over_names_does_not_know_who_is_whose_partner(
    pairs: int, seed: int
) -> None:
    """Whatever the weights: other hubs change how much a name reads of names, not their shares."""
    draw = torch.Generator().manual_seed(seed)
    names, first_hubs, other_hubs = (torch.randn(n, 16, generator=draw) for n in (2 * pairs, 8, 8))
    weights = torch.randn(3, 16, 16, generator=draw, dtype=torch.float64)

    def read_of_names(hubs: Tensor) -> Tensor:
        x = torch.cat([names, hubs]).double()
        query, key, value = x @ weights
        shares = (query @ key.T / 4).softmax(-1)[: 2 * pairs, : 2 * pairs]
        return shares @ value[: 2 * pairs] / shares.sum(-1, keepdim=True)

    assert_close(read_of_names(first_hubs), read_of_names(other_hubs), rtol=1e-8, atol=1e-8)
