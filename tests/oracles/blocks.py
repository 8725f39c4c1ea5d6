"""Bi-directional block self-attention of one sequence, a loop over tokens and over blocks."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import elu, linear


def reference_block_length(length: int) -> int:
    """Return the block length that needs the least memory: the smallest r with r³ ≥ 2n.

    Reference: Shen et al., *Bi-Directional Block Self-Attention for Fast and Memory-Efficient
    Sequence Modeling*, ICLR 2018, appendix A.
    """
    size = 1
    while size**3 < 2 * length:
        size += 1
    return size


def reference_feature_attention(
    h: Tensor, weights: Mapping[str, Tensor], *, backward: bool = False
) -> Tensor:
    """Return masked self-attention, every feature of which has its own weights.

    Shapes: h, output ``[n, C]``; the weights ``[C, C]``, the bias ``[C]``. Reference: Shen et
    al. (2018), Eq. 6 to 8.
    """
    rows = []
    for i in range(len(h)):
        others = h[i + 1 :] if backward else h[:i]
        target = linear(h[i], weights["target.weight"], weights["target.bias"])
        logits = 5 * torch.tanh((linear(others, weights["source.weight"]) + target) / 5)
        rows.append((logits.softmax(dim=0) * others).sum(dim=0))
    return torch.stack(rows)


def reference_block_attention(
    x: Tensor,
    weights: Mapping[str, Tensor],
    *,
    block_length: int | None = 5,
    backward: bool = False,
) -> Tensor:
    """Return block self-attention in one direction.

    Shapes: x ``[n, C_in]``; output ``[n, C]``. Reference: Shen et al. (2018), section 3.
    """
    size = reference_block_length(len(x)) if block_length is None else block_length

    def apply(name: str, inputs: Tensor) -> Tensor:
        return linear(inputs, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def attend(name: str, inputs: Tensor) -> Tensor:
        own = {key.removeprefix(f"{name}."): w for key, w in weights.items()}
        return reference_feature_attention(inputs, own, backward=backward)

    h = elu(apply("hidden", x))  # [n, C]
    local, contexts = [], []
    for start in range(0, len(x), size):
        read = attend("tokens", h[start : start + size])
        local.append(read)
        contexts.append((apply("pool", read).softmax(dim=0) * read).sum(dim=0))
    blocks = elu(apply("block_hidden", torch.stack(contexts)))  # [m, C]
    far = attend("blocks", blocks)
    gate = apply("gate", torch.cat([blocks, far], dim=-1)).sigmoid()
    blocks = gate * blocks + (1 - gate) * far
    rows = []
    for i, token in enumerate(h):
        near = local[i // size][i % size]
        fused, gate = apply("fusion", torch.cat([token, near, blocks[i // size]])).chunk(2)
        gate = gate.sigmoid()
        rows.append(gate * elu(fused) + (1 - gate) * token)
    return torch.stack(rows)


def reference_source_to_token(x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """Return one vector for a sequence, every feature of which has its own weights.

    Shapes: x ``[n, C]``; output ``[C]``. Reference: Shen et al. (2018), Eq. 5.
    """
    hidden = elu(linear(x, weights["hidden.weight"], weights["hidden.bias"]))
    logits = linear(hidden, weights["output.weight"], weights["output.bias"])
    return (logits.softmax(dim=0) * x).sum(dim=0)
