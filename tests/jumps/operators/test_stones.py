import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from jat_graph import JatConfig, jump_operator
from jat_graph.operators import StoneOperator
from jat_graph.testing import OperatorContract
from tests.oracles import causal_stone_propagation, incidence, standard_scores, stone_propagation


class TestStoneOperator(OperatorContract):
    backend = "dense"
    causal = False
    sides = "positive"
    incidence = "excess"
    self_weight = 0.1
    threshold = 1.2

    def config(self):
        return JatConfig.stones(
            threshold=self.threshold,
            self_weight=self.self_weight,
            key_selection="all",
            sides=self.sides,
            incidence=self.incidence,
            backend=self.backend,
        )

    def create_operator(self, query, key):
        return jump_operator(query, key, config=self.config(), is_causal=self.causal)

    def dense_truth(self, query, key):
        scores = standard_scores(query, key, query.size(-1) ** -0.5, causal=self.causal)
        links = incidence(
            scores, self.threshold, self.incidence, self.sides, 0.5, causal=self.causal
        )
        walk = causal_stone_propagation if self.causal else stone_propagation
        return walk(links, self.self_weight)


class TestBothSides(TestStoneOperator):
    sides = "both"
    self_weight = 0.0


class TestCausalStones(TestStoneOperator):
    causal = True
    sides = "both"
    threshold = 0.5


class TestHardLinks(TestStoneOperator):
    incidence = "hard"


@st.composite
def drawn_links(draw, longest=90):
    """Draw links, some tokens and stones without any."""
    length, stones = draw(st.integers(1, longest)), draw(st.integers(1, 9))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    links = torch.randn(1, 2, length, stones, generator=generator).double().relu()
    links = links * (torch.rand(length, 1, generator=generator) < 0.8)
    return links * (torch.rand(stones, generator=generator) < 0.8)


@given(links=drawn_links(), self_weight=st.sampled_from((0.0, 0.1, 3.0)), causal=st.booleans())
def test_it_is_the_oracles_walk(links, self_weight, causal):
    truth = (causal_stone_propagation if causal else stone_propagation)(links, self_weight)
    operator = StoneOperator(links, self_weight, causal)
    assert_close(operator.to_dense(), truth, atol=1e-10, rtol=0)
    assert_close(operator.degree, torch.ones(links.shape[:3]).double(), atol=1e-10, rtol=0)


@pytest.mark.parametrize("causal", [False, True])
def test_second_derivatives_are_refused(causal):
    links, x = torch.rand(1, 1, 5, 2).requires_grad_(), torch.randn(1, 1, 5, 3)
    product = StoneOperator(links, 0.1, causal).matmul(x)
    with pytest.raises(RuntimeError, match="first derivatives only, got create_graph=True"):
        torch.autograd.grad(product.sum(), links, create_graph=True)
