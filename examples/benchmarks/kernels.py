"""The inner loops: against attention, a compiler, the released code and explicit edges."""

from __future__ import annotations

import json
import statistics
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException
from torch_geometric.utils import scatter

from examples.benchmarks import measure
from examples.benchmarks.measure import HEADS, Outcome, Settings, Step, agree, draw_heads, seconds
from jat_graph import JatConfig, jump_operator
from jat_graph.core.files import read_object, write_text
from jat_graph.jumps.kernels import count_votes, rank_tokens, sum_joined
from jat_graph.jumps.kernels.stone_means import StoneScores, share_out


def count(length: int, settings: Settings, compiled: bool = False) -> Outcome:
    """Counting of all keys, against attention or what torch.compile makes of the formula."""
    heads = draw_heads(length, HEADS, settings)
    facts, scores = measure.require_work(heads), measure.key_scores(*heads[:2], length)
    ours = partial(count_votes, *measure.votes(scores))

    def formula(rows: Tensor, columns: Tensor) -> Tensor:
        joined = rows[:, :, None, :] * columns[:, None, :, :] > measure.THRESHOLD
        return joined.sum(-1)

    agree(ours()[0, :, :8, :8], formula(scores[0, :, :8], scores[0, :, :8]).float())
    if not compiled:
        theirs: Step = partial(F.scaled_dot_product_attention, *heads)
        return measure.in_turns(ours, theirs, settings, **facts)
    fast = torch.compile(formula, fullgraph=True, dynamic=False)
    theirs = partial(fast, scores[0], scores[0])
    try:
        agree(ours()[0], theirs().float())
    except TorchDynamoException as error:
        raise measure.NotMeasured(f"torch.compile fails: {error}".splitlines()[0]) from None
    return measure.in_turns(ours, theirs, settings, **facts)


def adjacency(length: int, settings: Settings) -> Outcome:
    """A from Q and K by the rule of the authors' code, which divides by the key's norm."""
    query, key, _ = (tensor.float() for tensor in draw_heads(length, HEADS, settings))
    norm, scores = key.norm(dim=-1).clamp(min=1.0), measure.key_scores(query, key, length)
    threshold = float(measure.wanted_threshold(scores / norm.sqrt().unsqueeze(2)).min())
    rule = {"inclusive": True, "normalize_keys": True, "backend": "dense"}
    config = JatConfig.paper(threshold=threshold, **rule)

    def released() -> Tensor:
        raw, divisor = query @ key.mT, norm[:, :, None, None] * measure.DIM
        counts = (raw[:, :, :, None] * raw[:, :, None] / divisor >= threshold).sum(-1)
        return (counts / length).diagonal_scatter(torch.ones_like(norm), dim1=-2, dim2=-1)

    ours = partial(jump_operator, query, key, config=config)
    agree(ours().base.to_dense() + torch.eye(length).to(query), released())
    counting = seconds(partial(count_votes, *measure.votes(scores)))
    return measure.in_turns(ours, released, settings, count_seconds=counting)


def product(length: int, settings: Settings, against: str) -> Outcome:
    """Ranking and multiplying, against attention, fewer keys, or a product with explicit edges."""
    heads = draw_heads(length, HEADS, settings)
    facts, features = measure.require_work(heads), heads.value.float()
    few = measure.votes(measure.key_scores(*heads[:2]))
    ours, ranking = partial(_ranked_product, features, *few), rank_tokens(*few)
    agree(ours()[:, :, :16], count_votes(*few, slice(0, 16)) @ features)
    if against == "attention":
        theirs: Step = partial(F.scaled_dot_product_attention, *heads)
    elif against == "fixed keys":
        facts["keys"] = few[0].size(2)
        fixed = measure.votes(measure.key_scores(*heads[:2], 50))
        theirs = partial(_ranked_product, features, *fixed)
    else:
        matrix = torch.block_diag(*count_votes(*few)[0])
        theirs = partial(_multiplier(matrix, against), features.flatten(0, 2))
        facts["edges"] = int(matrix.count_nonzero())
        del matrix
        agree(ours(), theirs().view_as(features))
    facts["rank_seconds"] = seconds(partial(rank_tokens, *few))
    facts["product_seconds"] = seconds(partial(sum_joined, features, ranking))
    return measure.in_turns(ours, theirs, settings, **facts)


def _ranked_product(features: Tensor, columns: Tensor, limits: Tensor) -> Tensor:
    return sum_joined(features, rank_tokens(columns, limits))


def _multiplier(matrix: Tensor, how: str) -> Callable[[Tensor], Tensor]:
    """What multiplies features by an explicit matrix."""
    if how == "csr":
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse", UserWarning)  # that CSR is in beta
            return matrix.to_sparse_csr().matmul
    if how == "torch_sparse":
        try:
            from torch_sparse import SparseTensor, matmul
        except ImportError as error:
            raise measure.NotMeasured(str(error)) from None
        return partial(matmul, SparseTensor.from_dense(matrix))
    target, source = matrix.nonzero(as_tuple=True)
    weight, size = matrix[target, source].unsqueeze(-1), len(matrix)
    return lambda x: scatter(x[source].mul_(weight), target, dim_size=size, reduce="sum")


def measure_costs(
    settings: Settings, path: Path | None, lengths: Sequence[int]
) -> dict[str, float]:
    """Measure the nanoseconds of each inner loop, and write them into the table of prices."""
    found: dict[str, list[float]] = {}
    for length in lengths:
        for name, (run, units) in _loops(length, settings).items():
            taken = statistics.median(seconds(run) for _ in range(settings.repeats))
            found.setdefault(name, []).append(1e9 * taken / units)
    prices = {name: float(f"{statistics.median(each):.3g}") for name, each in found.items()}
    path = path or Path(str(files("jat_graph.jumps.operators").joinpath("costs.json")))
    table = read_object(path, "prices") if path.exists() else {}
    described = measure.describe_machine(settings.device)
    where = f"{described.get('gpu', described['processor'])}, {described['threads']} threads"
    table[settings.device] = {"machine": where, "nanoseconds": prices}
    write_text(path, json.dumps(table, indent=2) + "\n")
    return prices


def _loops(length: int, settings: Settings) -> dict[str, tuple[Step, float]]:
    """Each loop of the cost model with its units of work."""
    query, key, _ = (tensor.float() for tensor in draw_heads(length, HEADS, settings))
    scores, every = measure.key_scores(query, key), measure.key_scores(query, key, length)
    few, features = measure.votes(scores), torch.cat([query, key], dim=-1)
    matrix, ranking, x = count_votes(*few), rank_tokens(*few), features.flatten(0, 1)
    tokens, pairs, width = scores.numel(), HEADS * length**2, features.size(-1)

    def walk(scores: Tensor, threshold: float) -> Tensor:
        stones = StoneScores(scores.mT.flatten(0, 1), x.new_full((HEADS,), threshold), 2, False)
        return share_out(stones, x, torch.zeros_like(x), torch.zeros_like(x[..., 0]))

    def incidence() -> Tensor:  # B of both sides
        both = torch.stack([every.mT, -every.mT], dim=2)
        return both.sub_(1.0).relu_().flatten(2, 3).mT.sum(-1)

    return {
        "vote": (partial(count_votes, *measure.votes(every)), pairs * length / 2),
        "entry": (lambda: matrix.clone().div_(2.0).sum(-1), pairs),
        "multiply": (lambda: matrix @ features, pairs * width),
        "rank": (partial(rank_tokens, *few), tokens),
        "row": (partial(sum_joined, features, ranking), tokens * width),
        "incidence": (incidence, 2 * pairs),
        # No token is on any stone, or every token is on the stone of one side.
        "search": (lambda: walk(measure.key_scores(query, key, length), torch.inf), 2 * pairs),
        "link": (partial(walk, every, 0.0), 2 * pairs * width),
    }
