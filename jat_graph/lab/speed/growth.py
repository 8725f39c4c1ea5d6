"""``growth``: the threshold product, against attention and explicit edges, and over the length."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from jat_graph.kernels import Ranking, rank_tokens, sum_joined
from jat_graph.lab.speed.checks import count_rows, require_close, require_product, sampled_tokens
from jat_graph.lab.speed.inputs import SDPA, open_case
from jat_graph.lab.speed.series import Benchmark, Fact, Outcome, Series, Settings
from jat_graph.lab.speed.timing import Step, Timing
from jat_graph.voting.rule import VoteRule

PRODUCT = "threshold product"
FIXED_KEYS = 50
FIXED = f"the same with U = {FIXED_KEYS}"
LENGTHS = (4096, 8192, 16384, 32768, 65536)

Multiply = Callable[[Tensor, Tensor], Callable[[], Tensor]]


def product_series() -> tuple[Series, ...]:
    """The product against attention, and against products with explicit edges."""
    explicit: dict[str, Multiply] = {
        "torch CSR, matrix ready": sum_by_csr,
        "torch_sparse, matrix ready": sum_by_torch_sparse,
        "PyG scatter, edges ready": sum_by_scatter,
    }
    return (
        Series(PRODUCT, SDPA, (2048, 8192, 32768), 131072, _against_sdpa),
        *(
            Series(PRODUCT, name, (2048,), 4096, partial(_against_edges, multiply=multiply))
            for name, multiply in explicit.items()
        ),
    )


class ThresholdProduct:
    """The product in its two steps, from ready scores."""

    def __init__(
        self,
        rule: VoteRule,
        scores: Tensor,  # [B, H, L, U]
        features: Tensor,  # [B, H, L, D], float32
    ) -> None:
        self.rule, self.scores, self.features = rule, scores, features
        self._ranking: Ranking | None = None

    def rank(self) -> Ranking:
        """Rank the tokens for every key, and remember the ranking."""
        self._ranking = None  # so that its memory can be used again
        self._ranking = rank_tokens(*self.rule.settle(self.scores))
        return self._ranking

    def multiply(self) -> Tensor:
        """The sums over joined tokens, by the last ranking."""
        return sum_joined(self.features, self._ranking or self.rank())

    def check(self, what: str) -> None:
        """Refuse to go on unless the sums are right for some sampled tokens."""
        rows = sampled_tokens(self.features.size(2), self.features.device)
        counts = count_rows(self.rule, self.scores, rows)
        require_product(what, self.multiply(), rows, counts, self.features)

    @property
    def steps(self) -> tuple[Step, Step]:
        """Both steps, in order."""
        return self.rank, self.multiply


def step_facts(timing: Timing) -> dict[str, Fact]:
    """The seconds of the two steps of a product."""
    rank, product = timing.steps
    return {"rank_seconds": rank.median, "product_seconds": product.median}


def _against_sdpa(length: int, settings: Settings) -> Outcome:
    case = open_case(PRODUCT, length, settings)
    product = ThresholdProduct(case.rule, case.few_scores(), case.heads.value.float())
    product.check(case.name)
    timing = case.time(product.steps, case.attend)
    return case.outcome(timing, step_facts(timing))


def _against_edges(length: int, settings: Settings, multiply: Multiply) -> Outcome:
    case = open_case(PRODUCT, length, settings)
    product = ThresholdProduct(case.rule, case.few_scores(), case.heads.value.float())
    counts = case.counts(product.scores)
    try:
        explicit = multiply(counts, product.features)
    except ImportError as error:
        return Outcome(note=f"not measured: {error}")
    truth = counts.double() @ product.features.double()
    require_close(case.name, product.multiply(), explicit(), truth)
    edges = int(counts.count_nonzero())
    del counts, truth
    timing = case.time(product.steps, explicit)
    return case.outcome(timing, {**step_facts(timing), "edges": edges})


def _with_fixed_keys(length: int, settings: Settings) -> Outcome:
    case = open_case(PRODUCT, length, settings)
    features = case.heads.value.float()
    scores = case.few_scores(), case.heads.key_scores(min(FIXED_KEYS, length))
    ours, theirs = (ThresholdProduct(case.rule, entry, features) for entry in scores)
    for product in (ours, theirs):
        product.check(case.name)
    timing = case.time(ours.steps, lambda: [step() for step in theirs.steps])
    return case.outcome(timing, {**step_facts(timing), "keys": ours.scores.size(-1)})


def sum_by_csr(
    counts: Tensor,  # The adjacency [1, H, L, L]
    features: Tensor,  # [1, H, L, D]
) -> Callable[[], Tensor]:
    """The product of an explicit adjacency with features, by a torch CSR matrix."""
    matrix, flat = _block_diagonal(counts), features.flatten(0, 2)
    return lambda: (matrix @ flat).view_as(features)


def sum_by_torch_sparse(
    counts: Tensor,  # The adjacency [1, H, L, L]
    features: Tensor,  # [1, H, L, D]
) -> Callable[[], Tensor]:
    """The product of an explicit adjacency with features, by torch_sparse."""
    from torch_sparse import SparseTensor

    if counts.is_cuda and torch.ops.torch_sparse.cuda_version() < 0:
        raise ImportError("torch_sparse was built without CUDA")
    csr = _block_diagonal(counts)
    matrix = SparseTensor(
        rowptr=csr.crow_indices(),
        col=csr.col_indices(),
        value=csr.values(),
        sparse_sizes=tuple(csr.shape),
        is_sorted=True,
        trust_data=True,
    )
    flat = features.flatten(0, 2)
    return lambda: (matrix @ flat).view_as(features)


def sum_by_scatter(
    counts: Tensor,  # The adjacency [1, H, L, L]
    features: Tensor,  # [1, H, L, D]
) -> Callable[[], Tensor]:
    """The product of an explicit adjacency with features, edge by edge, by PyG's scatter."""
    from torch_geometric.utils import scatter

    flat, length = features.flatten(0, 2), features.size(2)
    graph, target, source = counts.flatten(0, 1).nonzero(as_tuple=True)
    weight = counts.flatten(0, 1)[graph, target, source].unsqueeze(-1)
    target, source = graph * length + target, graph * length + source

    def multiply() -> Tensor:
        messages = flat[source].mul_(weight)
        total: Tensor = scatter(messages, target, dim=0, dim_size=len(flat), reduce="sum")
        return total.view_as(features)

    return multiply


def _block_diagonal(counts: Tensor) -> Tensor:
    """The adjacency of all heads as one CSR matrix ``[H·L, H·L]``."""
    from torch_geometric.utils import to_torch_csr_tensor

    heads, length, _ = counts.flatten(0, 1).shape
    graph, target, source = counts.flatten(0, 1).nonzero(as_tuple=True)
    weight = counts.flatten(0, 1)[graph, target, source]
    index = torch.stack([graph * length + target, graph * length + source])
    size = heads * length
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse", UserWarning)  # that CSR is in beta
        matrix: Tensor = to_torch_csr_tensor(index, weight, (size, size), is_coalesced=True)
    return matrix


GROWTH = Benchmark(
    name="growth",
    claim=(
        "The threshold product, ranking included, forward, B = 1, 4 heads, D = 64, over the "
        f"length: with U = ⌈5 ln L⌉ keys, and with U = {FIXED_KEYS}. The slope is that of the "
        "least-squares line through the logarithms of length and time."
    ),
    series=lambda settings: (Series(PRODUCT, FIXED, LENGTHS, 2**20, _with_fixed_keys),),
    growing=("ours", "theirs"),
    slope_bar=1.15,
)
