import pytest
import torch
from torch.testing import assert_close

from jat_graph import JatConfig, jump_attention, jump_operator
from jat_graph.operators import StoneOperator
from jat_graph.testing import OperatorContract
from tests.oracles import causal_stone_propagation, incidence, standard_scores, stone_propagation

CLOSE = {"atol": 1e-10, "rtol": 1e-10}


class TestStoneOperator(OperatorContract):
    backend = "dense"
    causal = False
    sides = "positive"
    self_weight = 0.1
    threshold = 1.2

    def create_operator(self, query, key):
        names = ("threshold", "self_weight", "sides", "backend")
        settings = {name: getattr(self, name) for name in names}
        config = JatConfig.stones(key_selection="all", **settings)
        return jump_operator(query, key, config=config, is_causal=self.causal)

    def dense_truth(self, query, key):
        scores = standard_scores(query, key, query.size(-1) ** -0.5, causal=self.causal)
        links = incidence(scores, self.threshold, "excess", self.sides, causal=self.causal)
        walk = causal_stone_propagation if self.causal else stone_propagation
        return walk(links, self.self_weight)


class TestCausalStones(TestStoneOperator):
    causal = True
    sides = "both"
    threshold = 0.5


class TestSparseStones(TestStoneOperator):
    backend = "sparse"


@pytest.mark.parametrize(
    ("backend", "causal"), [("dense", False), ("dense", True), ("sparse", False)]
)
def test_second_derivatives_are_refused(backend, causal):
    query, key, x = torch.randn(3, 1, 1, 9, 4, requires_grad=True)
    config = JatConfig.stones(backend=backend)
    product = jump_operator(query, key, config=config, is_causal=causal).matmul(x)
    with pytest.raises(RuntimeError, match="first derivatives only, got create_graph=True"):
        torch.autograd.grad(product.sum(), query, create_graph=True)


def test_what_the_sparse_one_keeps_is_small():
    """Beside Q, K and x the stones' means, whose number is that of the tokens, and nothing L×L."""
    length, kept = 256, []
    query, key, x = torch.randn(3, 1, 2, length, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda y: kept.append(y) or y, lambda y: y):
        jump_operator(query, key, config=JatConfig.stones(backend="sparse")).matmul(x)
    assert max(y.numel() for y in kept) <= 2 * x.numel()


@pytest.mark.parametrize(
    ("settings", "causal", "words"),
    [
        ({}, False, "B, 10 columns, is no wider than the 16 features"),
        ({}, True, "'sparse' cannot run: in causal order a stone has a sum for each token"),
        ({"incidence": "sigmoid"}, False, "'sparse' cannot run: a sigmoid links every token"),
        ({"conv": "HypergraphConv"}, False, "'sparse' cannot run: a layer runs on the links"),
    ],
)
def test_auto_says_why_it_is_dense(settings, causal, words):
    heads = torch.randn(1, 2, 5, 8)
    config = JatConfig.stones(**settings)
    operator, choice = jump_operator(heads, heads, config=config, is_causal=causal, explain=True)
    assert isinstance(operator, StoneOperator)
    assert str(choice).startswith("dense: ") and words in str(choice)


@pytest.mark.slow
def test_an_explicit_choice_never_falls_back():
    heads, config = torch.randn(1, 2, 5, 4), JatConfig.stones(backend="sparse", strength=1.0)
    with pytest.raises(ValueError, match=r"'sparse' cannot run: in causal order .*use 'dense'"):
        jump_operator(heads, heads, config=config, is_causal=True)
    compiled = torch.compile(lambda x: jump_attention(x, x, x, config=config), backend="eager")
    with pytest.raises(ValueError, match=r"'sparse' cannot run: torch.compile cannot trace it"):
        compiled(heads)


# Said by torch, which makes one while it compiles.
@pytest.mark.filterwarnings("ignore:.*Function.* should not be instantiated:DeprecationWarning")
def test_compiled_code_is_dense_where_plain_code_is_sparse():
    config = JatConfig.stones(threshold=3.0, strength=1.0)
    heads = torch.randn(3, 1, 1, 40, 4)
    assert jump_operator(*heads[:2], config=config, explain=True)[1].backend == "sparse"
    run = torch.compile(
        lambda q, k, v: jump_attention(q, k, v, config=config), fullgraph=True, backend="eager"
    )
    assert_close(run(*heads), jump_attention(*heads, config=config))
