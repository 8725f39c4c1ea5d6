"""The contract of operators made of votes."""

from typing import Any, ClassVar

from jat_graph.core.masks import TokenMask
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import QueryKeyScores
from jat_graph.jumps.config import JatConfig
from jat_graph.testing import OperatorContract
from tests.inputs import random_heads
from tests.oracles import reference_graph


class PairsContract(OperatorContract):
    """A, as ``create`` makes an operator of votes by some settings under some mask."""

    settings: ClassVar[dict[str, Any]] = {}
    causal = False

    def create_inputs(self):
        return random_heads(2, 3, 12, 8, is_causal=self.causal)[:2]

    def create(self, adjacency):
        raise NotImplementedError

    def create_operator(self, query, key):
        config, source = JatConfig.paper(**self.settings), QueryKeyScores(query, key, 8**-0.5)
        mask = TokenMask(causal=self.causal)
        return self.create(PairAdjacency.of_scores(config, source, mask))

    def dense_truth(self, query, key):
        return reference_graph(query, key, is_causal=self.causal, **self.settings).adjacency


# Gradients reach queries and keys; the sign gate keeps the graph from being complete.
SOFT = {"soft_temperature": 0.7, "same_sign_only": True, "key_selection": "strided", "num_keys": 1}
