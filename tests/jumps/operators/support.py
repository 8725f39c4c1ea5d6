"""The contract of operators made of votes."""

from typing import Any, ClassVar

from jat_graph.core.masks import resolve_mask
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import QueryKeyScores
from jat_graph.jumps.config import JatConfig
from jat_graph.testing import OperatorContract
from tests.inputs import random_heads, random_padding_mask
from tests.oracles import reference_graph


class PairsContract(OperatorContract):
    """A, as ``create`` makes an operator of votes by some settings under some mask."""

    settings: ClassVar[dict[str, Any]] = {}
    causal = False
    side: str | None = None  # of padding

    def create_inputs(self):
        mask = None
        if self.side is not None:
            mask = random_padding_mask(2, 12, side=self.side, min_valid=9)
        heads = random_heads(2, 3, 12, 8, attention_mask=mask, is_causal=self.causal)
        return (heads.query, heads.key) if mask is None else (heads.query, heads.key, mask)

    def create(self, adjacency):
        raise NotImplementedError

    def create_operator(self, query, key, mask=None):
        config, source = JatConfig.paper(**self.settings), QueryKeyScores(query, key, 8**-0.5)
        mask = resolve_mask(mask, self.causal, query)
        return self.create(PairAdjacency.of_scores(config, source, mask))

    def dense_truth(self, query, key, mask=None):
        options = {"attention_mask": mask, "is_causal": self.causal, **self.settings}
        return reference_graph(query, key, **options).adjacency


# Gradients reach queries and keys; the sign gate keeps the graph from being complete.
SOFT = {
    "soft_temperature": 0.7,
    "same_sign_only": True,
    "key_selection": "strided",
    "num_keys": 1,
}
