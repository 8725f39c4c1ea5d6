"""The oracles: one slow function per equation, the library's rule in full, and the released code's.

Everything here is written to be read. It stores [B, H, L, L, U] on purpose, imports only torch and
math, works in float32 and float64, and carries gradients. Fast code never imports it; tests do.

- :mod:`~jat_graph.reference.paper` has the paper's equations 2 to 9, for one head.
- :mod:`~jat_graph.reference.masks`, :mod:`~jat_graph.reference.keys`,
  :mod:`~jat_graph.reference.adjacency` and :mod:`~jat_graph.reference.jump` are what the library
  promises, with every variant and mask.
- :mod:`~jat_graph.reference.stones` has the jumps over stepping stones.
- :mod:`~jat_graph.reference.released_code` has the rules of the authors' released code.
"""

from jat_graph.reference.adjacency import (
    reference_adjacency,
    reference_normalize,
    reference_prune,
    reference_scores,
    reference_scores_propagated,
)
from jat_graph.reference.areas import (
    ReferenceArea,
    reference_area_attention,
    reference_area_mask,
    reference_area_pool,
    reference_areas,
)
from jat_graph.reference.blocks import (
    reference_block_attention,
    reference_block_length,
    reference_feature_attention,
    reference_source_to_token,
)
from jat_graph.reference.filters import reference_gfsa, reference_ppr
from jat_graph.reference.incremental import reference_next_rows
from jat_graph.reference.jump import (
    ReferenceGraph,
    masked_softmax,
    reference_graph,
    reference_jump_attention,
)
from jat_graph.reference.keys import (
    reference_num_keys,
    reference_num_samples,
    reference_quantile_threshold,
    reference_voting_keys,
)
from jat_graph.reference.masks import ReferenceMask, reference_mask
from jat_graph.reference.nexus import reference_nexus
from jat_graph.reference.paper import (
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
from jat_graph.reference.patterns import (
    reference_causal,
    reference_dilated_window,
    reference_documents,
    reference_fixed,
    reference_global_tokens,
    reference_local_blocks,
    reference_pairs,
    reference_pattern_attention,
    reference_strided,
    reference_window,
)
from jat_graph.reference.released_code import (
    released_adjacency,
    released_attention,
    released_efficient_scores,
    released_heads,
    released_normalize,
    released_propagated_scores,
    released_scores,
    released_top_queries,
)
from jat_graph.reference.sequences import (
    reference_attention,
    reference_compressed_memory,
    reference_compressed_visible,
    reference_relative_attention,
    reference_relative_scores,
    reference_relative_visible,
)
from jat_graph.reference.stones import (
    causal_stone_propagation,
    incidence,
    jump_features,
    standard_scores,
    stone_attention,
    stone_pairs,
    stone_propagation,
)
from jat_graph.reference.triplets import reference_triplet_attention, reference_triplet_partner

__all__ = [
    "ReferenceArea",
    "ReferenceGraph",
    "ReferenceMask",
    "causal_stone_propagation",
    "incidence",
    "jump_features",
    "masked_softmax",
    "paper_adjacency",
    "paper_factored_scores",
    "paper_head",
    "paper_key_significance",
    "paper_normalized_adjacency",
    "paper_order_scores",
    "paper_propagate",
    "paper_propagated_scores",
    "paper_vote",
    "reference_adjacency",
    "reference_area_attention",
    "reference_area_mask",
    "reference_area_pool",
    "reference_areas",
    "reference_attention",
    "reference_block_attention",
    "reference_block_length",
    "reference_causal",
    "reference_compressed_memory",
    "reference_compressed_visible",
    "reference_dilated_window",
    "reference_documents",
    "reference_feature_attention",
    "reference_fixed",
    "reference_gfsa",
    "reference_global_tokens",
    "reference_graph",
    "reference_jump_attention",
    "reference_local_blocks",
    "reference_mask",
    "reference_next_rows",
    "reference_nexus",
    "reference_normalize",
    "reference_num_keys",
    "reference_num_samples",
    "reference_pairs",
    "reference_pattern_attention",
    "reference_ppr",
    "reference_prune",
    "reference_quantile_threshold",
    "reference_relative_attention",
    "reference_relative_scores",
    "reference_relative_visible",
    "reference_scores",
    "reference_scores_propagated",
    "reference_source_to_token",
    "reference_strided",
    "reference_triplet_attention",
    "reference_triplet_partner",
    "reference_voting_keys",
    "reference_window",
    "released_adjacency",
    "released_attention",
    "released_efficient_scores",
    "released_heads",
    "released_normalize",
    "released_propagated_scores",
    "released_scores",
    "released_top_queries",
    "standard_scores",
    "stone_attention",
    "stone_pairs",
    "stone_propagation",
]
