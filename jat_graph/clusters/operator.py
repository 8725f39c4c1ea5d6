"""Attention by trees over whole batches, with padding and documents, as one operator of torch.

``torch.compile`` and ``torch.export`` see nothing of what is inside: any length is the same graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from jat_graph.clusters.attend import Parts, differentiate, kernel_for
from jat_graph.clusters.choice import Choice, Nodes, Rule, as_read, empty_choice, grow_for


def sequences(
    documents: Tensor | None, global_tokens: Tensor | None, batch: int, rule: Rule
) -> Iterator[tuple[int, Any, Rule]]:
    """Yield the row of a batch, the tokens of each document, a slice or positions, and its rule.

    Global tokens come last, as those that are in no cluster and read all. Nothing but the copies of
    both masks waits for a device.
    """
    if documents is None and global_tokens is not None:
        documents = torch.zeros_like(global_tokens, dtype=torch.int)
    device = None if documents is None else documents.device
    documents, global_tokens = (x if x is None else x.cpu() for x in (documents, global_tokens))
    for row in range(batch):
        if documents is None:
            yield row, slice(None), rule
            continue
        own = documents[row]
        for name in torch.unique(own[own >= 0]).tolist():
            tokens = (own == name).nonzero().squeeze(-1)
            if global_tokens is not None:
                whole = global_tokens[row, tokens]
                tokens = torch.cat([tokens[~whole], tokens[whole]])
                yield row, tokens.to(device), rule._replace(window=int(whole.sum()))
            elif int(tokens[-1] - tokens[0]) + 1 == len(tokens):
                yield row, slice(int(tokens[0]), int(tokens[-1]) + 1), rule
            else:
                yield row, tokens.to(device), rule


def _chosen(query: Tensor, key: Tensor, value: Tensor, rule: Rule) -> tuple[Choice, Nodes]:
    """Return an empty choice, and the means of the tree of a whole sequence."""
    tree = grow_for(rule, key)
    return empty_choice(query, key.size(1), tree, rule), Nodes.of(tree, key, value, rule)


@torch.library.custom_op("jat_graph::read_tree", mutates_args=(), tags=torch.Tag.cudagraph_unsafe)
def read_tree(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, Hkv, L, D]
    value: Tensor,  # [B, Hkv, L, Dv]
    documents: Tensor | None,  # of each token, integers [B, L]; negative for padding
    global_tokens: Tensor | None,  # which read and are read by all, bool [B, L]; in no order alone
    seed: Tensor | None,  # of dropout, an integer
    scale: float,
    dropout_p: float,
    settings: list[float],  # of a rule
) -> tuple[Tensor, Tensor, Tensor]:  # [B, H, L, Dv], [B, H, L], int32 [B, H, L, clusters]
    """Return what heads read, the logarithms of the sums of e to their scores, and the choice."""
    shared = Rule.of(settings)
    alone = documents is None and global_tokens is None and len(query) == 1
    if not alone:
        output, lse, read = _outputs(query, value, shared)
    if documents is not None:
        output.zero_()  # what padding reads
    kernel = kernel_for(query.device)
    found = sequences(documents, global_tokens, len(query), shared)
    for number, (row, tokens, rule) in enumerate(found):
        others = [as_read(x[row][:, tokens]).contiguous() for x in (key, value)]
        own = as_read(query[row][:, tokens])
        own = torch.mul(own, scale, out=own.new_empty(own.shape))  # those of a head stand together
        choice, nodes = _chosen(own, others[0], others[1], rule)
        kept = None if seed is None else (1 - dropout_p, int(seed) + number)
        parts = kernel.read(own, *others, choice, nodes, chosen=False, kept=kept)
        if alone:
            whole = parts[0].to(value.dtype).transpose(0, 1).contiguous()
            return whole[None].transpose(1, 2), parts[1][None], choice.read[None]
        output[row][:, tokens], lse[row][:, tokens] = parts[0].to(output.dtype), parts[1]
        read[row][:, tokens] = choice.read
    return output, lse, read


@torch.library.custom_op(
    "jat_graph::read_tree_backward", mutates_args=(), tags=torch.Tag.cudagraph_unsafe
)
def _read_tree_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    read: Tensor,
    documents: Tensor | None,
    global_tokens: Tensor | None,
    seed: Tensor | None,
    scale: float,
    dropout_p: float,
    settings: list[float],  # of a rule
) -> tuple[Tensor, Tensor, Tensor]:
    totals = [torch.zeros_like(x) for x in (query, key, value)]
    kernel = kernel_for(query.device)
    all_sequences = sequences(documents, global_tokens, len(query), Rule.of(settings))
    for number, (row, tokens, rule) in enumerate(all_sequences):
        given = (x[row][:, tokens] for x in (grad, output, lse, query, key, value))
        parts = [as_read(x).contiguous() for x in given]
        parts[3] = parts[3] * scale
        choice, nodes = _chosen(parts[3], parts[4], parts[5], rule)
        kept = None if seed is None else (1 - dropout_p, int(seed) + number)
        if choice.opened.numel():  # by far more numbers than are kept
            choice = kernel.choose(parts[3], parts[4], choice, nodes, kept=kept)
        else:
            choice = choice._replace(read=read[row][:, tokens].contiguous())
        found = differentiate(kernel, (*parts, choice, nodes), kept=kept)
        for total, part, factor in zip(totals, found, (scale, 1.0, 1.0), strict=True):
            total[row][:, tokens] = (part * factor).to(total.dtype)
    return totals[0], totals[1], totals[2]


@read_tree.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, documents: Any, global_tokens: Any, seed: Any,
    scale: float, dropout_p: float, settings: list[float],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return _outputs(query, value, Rule.of(settings))


@_read_tree_backward.register_fake
def _(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Parts:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _outputs(query: Tensor, value: Tensor, rule: Rule) -> tuple[Tensor, Tensor, Tensor]:
    """Return room for outputs; the heads of a token stand together, as SDPA has them."""
    batch, heads, length, _ = query.shape
    output = value.new_empty(batch, length, heads, value.size(-1)).transpose(1, 2)
    dtype = torch.promote_types(query.dtype, torch.float32)
    read = query.new_full((batch, heads, length, rule.clusters), -1, dtype=torch.int32)
    return output, query.new_zeros(batch, heads, length, dtype=dtype), read


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:3], *output, *inputs[3:6])
    ctx.settings = inputs[6:]
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx: Any, grad: Tensor, *others: Any) -> tuple[Tensor | None, ...]:
    with torch.autocast(grad.device.type, enabled=False):
        found = _read_tree_backward(grad, *ctx.saved_tensors, *ctx.settings)
    return (*found, *[None] * 6)


def _refuse(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError("clusters have first derivatives only, got create_graph=True")


read_tree.register_autograd(_backward, setup_context=_keep)
_read_tree_backward.register_autograd(_refuse)
