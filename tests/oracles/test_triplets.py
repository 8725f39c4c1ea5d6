"""The oracle of triplet attention, on cases whose answer is known."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.oracles import reference_triplet_attention, reference_triplet_partner

# Where the released code takes each token's second key from, for five tokens.
RELEASED = {
    "next": [4, 0, 1, 2, 3],  # np.roll by 1
    "second next": [3, 4, 0, 1, 2],  # np.roll by 2
    "mirror": [4, 3, 2, 1, 0],
    "swap": [1, 0, 3, 2, 4],
    "shuffle": [2, 0, 4, 1, 3],
}


def random_heads(length: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (4, length, 3)
    return list(torch.randn(shape, dtype=torch.float64, generator=generator).unbind())


@pytest.mark.parametrize("kind", RELEASED)
def test_partners_undo_the_released_permutations(kind: str) -> None:
    taken = RELEASED[kind]
    inverse = [taken.index(token) for token in range(5)]
    partners = [reference_triplet_partner(kind, token, 5, inverse) for token in range(5)]
    assert partners == inverse


def test_scores_are_determinants() -> None:
    query, key, value, second = random_heads(4)
    got = reference_triplet_attention(query, key, value, second, shuffled=[0, 1, 2, 3])
    rows = [
        [torch.linalg.det(torch.stack([q, k, s])) for k, s in zip(key, second, strict=True)]
        for q in query
    ]
    weights = (torch.tensor(rows, dtype=torch.float64) / 3**0.5).softmax(-1)
    assert_close(got, weights @ value)
