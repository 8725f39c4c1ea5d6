"""A mask as documents: which of the sequences that are packed in one each token belongs to."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.masks.tokens import TokenMask


def token_documents(mask: TokenMask, query: Tensor) -> Tensor | None:  # [B, L]
    """Return the document of each token, -1 for padding; None if all are of one.

    A mask that says anything but padding and documents, the same for all heads, is refused.
    """
    compiling = torch.compiler.is_compiling()  # when an additive mask has biases, all of them 0
    if mask.causal or (mask.bias is not None and not compiling):
        got = "causal order" if mask.causal else "biases"
        raise ValueError(f"attention_mask must be padding or documents, got {got}")
    parts = [part for part in (mask.valid, mask.pairs) if part is not None]
    if any(part.size(1) > 1 for part in parts):
        raise ValueError("attention_mask must be the same for all heads, got one for each")
    documents: Tensor
    if mask.pairs is not None:
        documents = _packed(mask.pairs.squeeze(1))
    elif mask.valid is not None:
        documents = mask.valid.squeeze(1).int() - 1
    else:
        return None
    if mask.bias is not None:
        documents = _without_biases(documents, mask.bias)
    return documents.expand(query.size(0), -1)


@torch.library.custom_op("jat_graph::without_biases", mutates_args=())
def _without_biases(documents: Tensor, bias: Tensor) -> Tensor:  # int [B, L]
    """Refuse biases that are not 0; an operator, as it looks at values."""
    if bool(bias.any()):
        raise ValueError("attention_mask must be padding or documents, got biases")
    return documents.clone()


@torch.library.custom_op("jat_graph::packed_documents", mutates_args=())
def _packed(pairs: Tensor) -> Tensor:  # bool [B, L, L] -> int [B, L]
    """Name each document by the first key that it sees; an operator, as it looks at values."""
    documents = []
    for mask in pairs:
        seen = mask.any(0)
        names = mask.int().argmax(-1).masked_fill(~seen, -1)
        together = (names.unsqueeze(-1) == names) & seen
        if not torch.equal(mask & seen.unsqueeze(-1), together & seen.unsqueeze(-1)):
            raise ValueError(
                "attention_mask must be padding or documents, each of which sees itself alone, "
                "got another rule between pairs of tokens"
            )
        documents.append(names)
    return torch.stack(documents).int()


@_packed.register_fake
def _(pairs: Tensor) -> Tensor:
    return pairs.new_empty(pairs.shape[:2], dtype=torch.int32)


@_without_biases.register_fake
def _(documents: Tensor, bias: Tensor) -> Tensor:
    return torch.empty_like(documents)
