"""The last keys and the first four, whose places are as in the text: StreamingLLM.

Reference:
    Xiao et al., *Efficient Streaming Language Models with Attention Sinks*, ICLR 2024, which counts
    positions anew within what is read; within the length of a model's training that is not needed.
"""

from torch import Tensor

from examples.methods.rows import FIRST, Rows


def window(rows: Rows) -> Tensor:
    """Read a window and the first tokens."""
    return rows.read(rows.with_first(rows.around(rows.budget - FIRST)))
