"""The oracles: one slow function per equation, the library's rule in full, and the released code's.

Everything here is written to be read. It stores [B, H, L, L, U] on purpose, imports only torch and
math, works in float32 and float64, and carries gradients. Shapes are in the docstrings; the letters
are those of docs/symbols.md.
"""

# ruff: noqa: F401
from tests.oracles.adjacency import (
    reference_adjacency,
    reference_normalize,
    reference_prune,
    reference_scores,
    reference_scores_propagated,
)
from tests.oracles.jump import (
    masked_softmax,
    reference_attention,
    reference_graph,
    reference_jump_attention,
)
from tests.oracles.keys import (
    reference_num_keys,
    reference_num_samples,
    reference_quantile_threshold,
    reference_voting_keys,
)
from tests.oracles.masks import reference_mask
from tests.oracles.paper import paper_adjacency, paper_head, paper_order_scores, paper_vote
from tests.oracles.patterns import reference_pairs
from tests.oracles.released_code import (
    released_adjacency,
    released_attention,
    released_efficient_scores,
    released_scores,
)
from tests.oracles.sequences import (
    reference_compressed_memory,
    reference_compressed_visible,
    reference_relative_attention,
    reference_relative_scores,
)
from tests.oracles.stones import (
    causal_stone_propagation,
    incidence,
    jump_features,
    standard_scores,
    stone_attention,
    stone_propagation,
)
from tests.oracles.studies import reference_gfsa, reference_nexus
from tests.oracles.trees import (
    reference_tree_attention,
    tree_descent,
    tree_levels,
    tree_means,
    tree_met,
    tree_parts,
)
from tests.oracles.triplets import reference_triplet_attention, reference_triplet_partner
