"""What tests of inspection share: random models and inputs, and rows of clusters as defined."""

from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from jat_graph import ClusterGraph, disabled
from jat_graph.hf import capture_scores
from tests.oracles import tree_descent, tree_levels, tree_means, tree_met


def tiny_bert(layers: int = 3, vocabulary: int = 400, positions: int = 32) -> BertModel:
    """Return a random BERT whose scores are large enough to vote, and far from even."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=positions,
        initializer_range=0.25,
    )
    return BertModel(config).eval()


def long_bert(layers: int = 2) -> BertModel:
    """Return the same in float64, for texts that are long enough for clusters."""
    return tiny_bert(layers, 300, 256).double()


def padded_batch(
    lengths: tuple[int, ...] = (48, 31, 40), seed: int = 0, ids: tuple[int, int] = (0, 300)
) -> dict[str, Tensor]:
    """Return sequences with padding on either side."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(*ids, (len(lengths), max(lengths)), generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    mask[1::2] = mask[1::2].flip(1)
    return {"input_ids": tokens, "attention_mask": mask.long()}


def random_batches(count: int, length: int = 12, seed: int = 0) -> list[dict[str, Tensor]]:
    """Return padded batches in which no token comes twice, so that no two pairs tie."""
    ids = torch.randperm(400, generator=torch.Generator().manual_seed(seed))
    batches = []
    for n in range(count):
        rows = ids[n * 3 * length : (n + 1) * 3 * length].view(3, length)
        mask = torch.ones_like(rows)
        mask[1, length - 3 :] = 0
        mask[2, : length // 2] = 0
        batches.append({"input_ids": rows, "attention_mask": mask})
    return batches


def measures(head: Any) -> list[float]:
    return [head.share, head.mass, head.tv, head.error]


def reference_fidelity(model: Any, batch: Any) -> dict[tuple[int, int], list[float]]:
    """Compare all rows of all heads of a model on clusters, on its own attention."""
    with disabled(model), capture_scores(model, ClusterGraph) as layers, torch.no_grad():
        model(**batch, use_cache=False)
    found = {}
    for layer in layers:
        for head in layer.heads:
            own = layer.of_head(head)
            parts = [x[:, 0] for x in (own.query, own.key, own.value)]
            graph, causal = own.config.cluster_graph, own.mask.causal
            rows = [
                whole_rows(*(x[n, valid] for x in parts), graph, causal)
                for n, valid in enumerate(batch["attention_mask"].bool())
            ]
            found[layer.layer, head] = torch.cat(rows).mean(0).tolist()
    return found


def whole_rows(
    query: Tensor, key: Tensor, value: Tensor, graph: ClusterGraph, causal: bool
) -> Tensor:  # [n, 4]
    """Compare all rows of one head, by their definition."""
    length, groups, rows = len(key), graph.groups or 16, []
    levels = tree_levels(key, graph.size, graph.segment, None if causal else length)
    best = [-(-graph.keys // graph.size)] + [groups] * len(levels)
    for token, own in enumerate(query * query.size(-1) ** -0.5):
        last = token + 1 if causal else length
        if causal:
            segments = max(0, token - 3 - graph.window) // graph.segment
            seen = segments * (graph.segment // graph.size)
        else:
            seen = max(0, length - 4) // graph.size
        seen *= (token if causal else length) >= graph.dense_below
        met = [x[:, :last] for x in tree_met(levels, seen, 32 * groups)]
        stopped = tree_descent(own, key[:last], met, best, graph.margin)
        exact, is_read = key[:last] @ own, ~stopped.any(0)
        means = stopped.T.to(key.dtype) @ tree_means(stopped, key[:last]) @ own
        given = torch.where(is_read, exact, means)
        if not graph.propagate:
            given = given.masked_fill(~is_read, -torch.inf)
        p, q = exact.softmax(-1), given.softmax(-1)
        output, other = (x @ value[:last] for x in (p, q))
        share, mass, tv = is_read.double().mean(), p[is_read].sum(), (p - q).abs().sum() / 2
        rows.append(torch.stack([share, mass, tv, (other - output).norm() / output.norm()]))
    return torch.stack(rows)
