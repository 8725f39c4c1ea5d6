"""P, from tokens to stones and on to other tokens: two skinny products, never L×L."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.linalg import vecdot

from jat_graph.core.compiling import in_transform, steps
from jat_graph.jumps.adjacency.standard import running_sums
from jat_graph.jumps.adjacency.stones import StoneIncidence
from jat_graph.jumps.kernels.stone_means import StoneScores, give_back, share_out
from jat_graph.jumps.operators.base import Operator

BLOCK = 64  # tokens that a causal product takes at a time
# Numbers that the blocks of some graphs may take together: what fits into the CPU's caches.
LARGEST = {"cpu": 2**20, "cuda": 2**28}


class StoneOperator(Operator):
    r"""P = (D + εI)⁻¹ (B S⁻¹ Bᵀ + εI), D and S the row and column sums of the links B.

    A token on no stone keeps its own features. In causal order a stone knows the tokens so far:
    its sum and its size are running ones.

    Args:
        links: B ``[B, H, L, U]``, at least 0, float32 or float64.
        self_weight: ε, at least 0.
        causal: Whether tokens read themselves and those before only. (default: False)
    """

    def __init__(self, links: Tensor, self_weight: float, causal: bool = False) -> None:
        batch, heads, length, _ = links.shape
        self.links, self.causal = links, causal
        self.shape = torch.Size((batch, heads, length, length))
        self.dtype, self.device = links.dtype, links.device
        degree = links.sum(-1, keepdim=True)  # [B, H, L, 1]
        alone = (degree == 0).to(self.dtype)
        self.loops = alone if self_weight == 0 else torch.full_like(alone, self_weight)
        self.weight = 1 / (degree + self.loops)

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        function: Any = _CausalProduct if self.causal else _Product
        x = x.contiguous()
        if in_transform():  # which wants operations whose derivatives torch knows
            shares, loops = self.links / _sizes(self.links.mT, self.causal).mT, self.loops * x
            parts = (shares, self.links, x)
            near = running_product(*parts) if self.causal else parts[0] @ (parts[1].mT @ x)
            return (near + loops) * self.weight + diagonal * x
        flat = (y.flatten(0, 1) for y in (self.links, x, self.weight.detach(), self.loops))
        product: Tensor = function.apply(*flat).view_as(x)
        return product + diagonal * x if diagonal else product


class _Product(torch.autograd.Function):
    """P x of weights (D + εI)⁻¹ and loops ε; backward takes each of the large tensors once."""

    # Links are `[G, L, U]`, features `[G, L, D]`, weights and loops `[G, L, 1]`.

    @staticmethod
    def forward(ctx: Any, links: Tensor, x: Tensor, weight: Tensor, loops: Tensor) -> Tensor:
        sizes = _sizes(links.mT, False)  # [G, U, 1]
        means = (links.mT @ x).div_(sizes)
        y = (links @ means).addcmul_(loops, x).mul_(weight)
        ctx.save_for_backward(links, x, weight, loops, sizes, means, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        links, x, weight, loops, sizes, means, y = ctx.saved_tensors
        grad = grad * weight
        shared = (links.mT @ grad).div_(sizes)  # [G, U, D]
        to_x = to_links = None
        if ctx.needs_input_grad[0]:
            # What a token or a stone takes more of, it shares out less of.
            rows, columns = vecdot(grad, y), vecdot(shared, means)
            to_links = -(rows.unsqueeze(-2) + columns.unsqueeze(-1))  # [G, U, L]
            to_links = to_links.baddbmm_(means, grad.mT).baddbmm_(shared, x.mT).mT
        if ctx.needs_input_grad[1]:
            to_x = grad.mul_(loops).baddbmm_(links, shared)
        return to_links, to_x, None, None


class _CausalProduct(torch.autograd.Function):
    """The same in causal order, a block of tokens at a time; backward computes the blocks again."""

    # Within a block by its square of weights; what came before it stands in one sum for each stone.

    @staticmethod
    def forward(ctx: Any, links: Tensor, x: Tensor, weight: Tensor, loops: Tensor) -> Tensor:
        y = loops * x
        for some in _graphs(links, x):
            shares = links[some] / _sizes(links[some].mT, True).mT
            y[some] += running_product(shares, links[some], x[some])
        y *= weight
        ctx.save_for_backward(links, x, weight, loops, y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        links, x, weight, loops, y = ctx.saved_tensors
        grad = grad * weight
        to_x, rows = loops * grad, vecdot(grad, y).unsqueeze(-1)
        to_links = torch.empty_like(links)
        for some in _graphs(links, x):
            found = _causal_gradients(links[some], x[some], grad[some])
            to_x[some] += found[0]
            to_links[some] = found[1].sub_(rows[some])
        return to_links, to_x, None, None


def refuse_second_derivatives() -> None:
    """Refuse them as torch's ``once_differentiable`` does, which cannot be compiled."""
    if not torch.compiler.is_compiling() and torch.is_grad_enabled():
        raise RuntimeError("stones have first derivatives only, got create_graph=True")


def _causal_gradients(links: Tensor, x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of Σ_j b_ij / s_ij Σ_{k ≤ i} b_kj x_k, s the running sizes."""
    # The links of a stone lie together, and so do what is made of them here.
    length, columns = links.size(-2), links.mT
    sizes = _sizes(columns, True)
    shares = columns / sizes
    parts = (_in_blocks(y) for y in (links, shares.mT, x, grad))
    right, left, x, grad = (y.view(len(links), -1, *y.shape[1:]) for y in parts)
    inside = (grad @ x.mT).tril_()
    to_shares, to_links = right.mT @ inside.mT, left.mT @ inside  # [G, blocks, U, BLOCK]
    to_shares[:, 1:] += running_sums(right.mT @ x, 1)[:, :-1] @ grad[:, 1:].mT
    shared = running_sums(left.mT @ grad, 1, backward=True)[:, 1:]
    to_links[:, :-1] += shared @ x[:, :-1].mT
    to_x = (left @ right.mT).tril_().mT @ grad
    to_x[:, :-1] += right[:, :-1] @ shared
    to_shares, to_links = (
        y.transpose(1, 2).flatten(2)[..., :length] for y in (to_shares, to_links)
    )
    to_shares /= sizes
    shrinking = (to_shares * shares).flip(-1).cumsum(-1).flip(-1)
    return to_x.flatten(1, 2)[:, :length], to_links.add_(to_shares).sub_(shrinking).mT


def running_product(
    left: Tensor, right: Tensor, x: Tensor
) -> Tensor:  # [..., L, U] twice; [..., L, D]
    """Return Σ_{k ≤ i} (left_i · right_k) x_k for each i, a block of tokens at a time."""
    (length, width), graphs = x.shape[-2:], x.shape[:-2].numel()
    left, right, blocks = (_in_blocks(y.flatten(0, -3)) for y in (left, right, x))
    # What came before a block stands in one sum for each stone, before the first one 0.
    sums = (right.mT @ blocks).view(graphs, -1, right.size(-1), width)
    before = running_sums(F.pad(sums, (0, 0, 0, 0, 1, 0)), 1)[:, :-1].flatten(0, 1)
    product = (left @ right.mT).tril() @ blocks + left @ before
    return product.view(graphs, -1, width)[:, :length].reshape(x.shape)


def _in_blocks(x: Tensor) -> Tensor:  # [G, L, D], [G · blocks, BLOCK, D]
    """Return blocks of tokens, the last one filled up with zeros."""
    missing = -(-x.size(1) // BLOCK) * BLOCK - x.size(1)
    padded = F.pad(x, (0, 0, 0, missing)) if torch.compiler.is_compiling() or missing else x
    return padded.reshape(-1, BLOCK, x.size(-1))


def _graphs(links: Tensor, x: Tensor) -> Iterator[slice]:
    """Return as many graphs at a time as keep the sums of their blocks small."""
    graphs, length, stones = links.shape
    each = length * stones * (1 + x.size(-1) // BLOCK)
    return steps(graphs, LARGEST[links.device.type], each)


def _sizes(columns: Tensor, causal: bool) -> Tensor:  # [..., U, L], or [..., U, 1]
    """Return how much stands on each stone, so far if causal, to divide by."""
    return without_zeros(columns.cumsum(-1) if causal else columns.sum(-1, keepdim=True))


def without_zeros(sizes: Tensor) -> Tensor:
    """Return sizes to divide by: where nobody stands there is nothing to share."""
    return sizes.clamp(min=torch.finfo(sizes.dtype).tiny ** 0.5)  # whose inverse is finite, too


class SparseStoneOperator(Operator):
    r"""P = (D + εI)⁻¹ (B S⁻¹ Bᵀ + εI), of a B that is never held.

    B S⁻¹ Bᵀ is a sum over stones. So the scores of a block of stones are computed, their links
    found, multiplied and forgotten, again for each product and in backward: O(links · D) time
    beside the scores, and memory for one block and the stones' means.

    Args:
        incidence: Which keys are stones, and how tokens stand on them, to nothing where scores are
            not above t; under no mask but padding.
    """

    def __init__(self, incidence: StoneIncidence) -> None:
        batch, heads, length = incidence.source.shape
        self.incidence, self.self_weight = incidence, incidence.rule.self_weight
        self.shape = torch.Size((batch, heads, length, length))
        self.dtype, self.device = incidence.source.dtype, incidence.source.device

    def blocks(self) -> Iterator[tuple[Tensor | None, StoneScores]]:
        """Yield the stones in blocks: their positions ``[B, H, u]`` (None: all), and scores."""
        incidence, rule = self.incidence, self.incidence.rule
        source, keys = incidence.source, incidence.keys
        threshold = rule.threshold.expand(*self.shape[:2], 1, 1).flatten()
        form = 1 + rule.both_sides, rule.incidence == "hard"
        most = LARGEST[self.device.type]
        for some in steps(incidence.num_keys, most, source.shape.numel()):
            columns = incidence.scores(some).mT.flatten(0, 1).contiguous()
            yield keys.positions(some, source), StoneScores(columns, threshold, *form)

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        shared, loops, total = self._share(x)
        product = torch.addcmul(shared, loops, x) / total
        return product + diagonal * x if diagonal else product

    def _share(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # [B, H, L, D], [B, H, L, 1] each
        """Return B S⁻¹ Bᵀ x, the self-loops, and the row sums of B with them."""
        source = self.incidence.source
        shared, degree = _SharedFeatures.apply(  # type: ignore[no-untyped-call]
            source.query, source.key, x.contiguous(), self
        )
        alone = (degree == 0).to(self.dtype)
        loops = alone if self.self_weight == 0 else torch.full_like(alone, self.self_weight)
        return shared, loops, degree + loops


class _SharedFeatures(torch.autograd.Function):
    """B S⁻¹ Bᵀ x and the row sums of B, by queries and keys; backward finds the links again."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, x: Tensor, operator: SparseStoneOperator
    ) -> tuple[Tensor, Tensor]:  # [B, H, L, Dx], [B, H, L, 1]
        flat = x.flatten(0, 1)
        total, degree = torch.zeros_like(flat), flat.new_zeros(flat.shape[:2])
        means = [share_out(scores, flat, total, degree) for _, scores in operator.blocks()]
        ctx.operator = operator
        ctx.save_for_backward(query, key, x, *means)
        return total.view_as(x), degree.view(*x.shape[:3], 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_degree: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        refuse_second_derivatives()
        query, key, x, *means = ctx.saved_tensors
        operator, scale = ctx.operator, ctx.operator.incidence.source.scale
        grad, flat = grad.contiguous().flatten(0, 1), x.flatten(0, 1)
        to_degree, scaled = to_degree.reshape(flat.shape[:2]), scale * query
        to_query, to_key, to_x = (torch.zeros_like(y) for y in (query, key, flat))
        for (index, scores), mean in zip(operator.blocks(), means, strict=True):
            to_scores = give_back(scores, flat, mean, grad, to_degree, to_x)
            to_scores = to_scores.view(*key.shape[:2], -1, key.size(2))
            if index is None:
                to_key += to_scores @ scaled
                to_query += to_scores.mT @ key
            else:
                rows = index.unsqueeze(-1).expand(-1, -1, -1, key.size(-1))
                to_key.scatter_add_(2, rows, to_scores @ scaled)
                to_query += to_scores.mT @ key.gather(2, rows)
        return to_query.mul_(scale), to_key, to_x.view_as(x), None
