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
from tests.oracles.areas import (
    reference_area_attention,
    reference_areas,
)
from tests.oracles.blocks import (
    reference_block_attention,
    reference_block_length,
    reference_feature_attention,
    reference_source_to_token,
)
from tests.oracles.filters import reference_gfsa
from tests.oracles.jump import (
    ReferenceGraph,
    masked_softmax,
    reference_graph,
    reference_jump_attention,
)
from tests.oracles.keys import (
    reference_num_keys,
    reference_num_samples,
    reference_quantile_threshold,
    reference_voting_keys,
)
from tests.oracles.masks import ReferenceMask, reference_mask
from tests.oracles.nexus import reference_nexus
from tests.oracles.paper import (
    paper_adjacency,
    paper_factored_scores,
    paper_head,
    paper_key_significance,
    paper_normalized_adjacency,
    paper_order_scores,
    paper_propagate,
    paper_propagated_scores,
    paper_vote,
)
from tests.oracles.patterns import (
    reference_causal,
    reference_dilated_window,
    reference_documents,
    reference_fixed,
    reference_global_mask,
    reference_global_tokens,
    reference_local_blocks,
    reference_pairs,
    reference_pattern_attention,
    reference_strided,
    reference_window,
)
from tests.oracles.released_code import (
    released_adjacency,
    released_attention,
    released_efficient_scores,
    released_heads,
    released_normalize,
    released_propagated_scores,
    released_scores,
    released_top_queries,
)
from tests.oracles.sequences import (
    reference_attention,
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
    stone_pairs,
    stone_propagation,
)
from tests.oracles.trees import (
    reference_tree_attention,
    tree_descent,
    tree_levels,
    tree_means,
    tree_met,
    tree_output,
    tree_parts,
)
from tests.oracles.triplets import reference_triplet_attention, reference_triplet_partner
