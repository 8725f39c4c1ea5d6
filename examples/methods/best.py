"""Each query's own best keys, which nobody knows before all are scored: a bound, no method."""

from torch import Tensor

from examples.methods.rows import Rows


def best(rows: Rows) -> Tensor:
    """Read a token's best keys, and nothing elsewhere."""
    return rows.read(rows.choose(rows.scores))


def best_and_rest(rows: Rows) -> Tensor:
    """Read a token's best keys; all others count as one node, with mean score and mean value."""
    exact = rows.choose(rows.scores)
    others = rows.allowed & ~exact
    number = others.sum(-1, keepdim=True).clamp(min=1)
    mean = rows.scores.masked_fill(~others, 0.0).sum(-1, keepdim=True) / number
    return rows.scores.where(~others, mean).softmax(-1)
