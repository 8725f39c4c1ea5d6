"""Keys by their scores in a query's 16 largest features, and the mean of all values: SparQ.

Reference:
    Ribar et al., *SparQ Attention: Bandwidth-Efficient LLM Inference*, ICML 2024, which reads so
    while it generates; here the prompt is read so, too.
"""

import torch
from torch import Tensor

from examples.methods.rows import Rows

CHANNELS = 16


def channels(rows: Rows) -> Tensor:
    """Read the keys that score highest in a few features; the rest counts as one mean."""
    sizes = rows.query.abs()
    largest = sizes.topk(min(CHANNELS, sizes.size(-1)), -1).indices
    few = torch.zeros_like(rows.query).scatter(-1, largest, rows.query.gather(-1, largest))
    share = few.abs().sum(-1, keepdim=True) / sizes.sum(-1, keepdim=True)
    likely = rows.score(few / share.sqrt())
    exact = rows.choose(likely)
    mass = (likely.softmax(-1) * exact).sum(-1, keepdim=True).clamp(max=1)
    mean = rows.allowed / rows.allowed.sum(-1, keepdim=True)
    return mass * rows.read(exact) + (1 - mass) * mean
