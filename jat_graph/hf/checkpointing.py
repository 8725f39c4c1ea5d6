"""Gradient checkpointing that computes activations again, but not the graphs of jump heads."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

# Where the library's operators live: counting, ranking, products, key significance, samples.
NAMESPACE = "jat_graph"


def keep_graphs() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Return the contexts of :func:`torch.utils.checkpoint.checkpoint` that keep what jumps cost.

    Pass it as ``context_fn``, with ``use_reentrant=False``. The backward pass then computes the
    activations of a layer again, but takes votes, rankings, key significance and propagated
    features from the forward pass. Kept until then, for each jump head: the matrix A, L², with the
    backend ``"dense"``, or 2·U·L integers with ``"threshold"``, and 2·D·L features for each hop.

    Returns:
        The context of the forward pass, and that of the computation in backward.
    """
    kept: list[tuple[Any, Any]] = []
    return _Graphs(kept, hands_out=False), _Graphs(kept, hands_out=True)


class _Graphs(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keep what the library's operators give, or hand it out, in its order, in their place."""

    def __init__(self, kept: list[tuple[Any, Any]], hands_out: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept, self.hands_out = kept, hands_out

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        ours = func.namespace == NAMESPACE
        if not (ours and self.hands_out):
            output = func(*args, **(kwargs or {}))
            if ours:  # a copy, because the caller may write to it
                self.kept.append((func, tree_map_only(Tensor, Tensor.clone, output)))
            return output
        if not self.kept:
            raise RuntimeError(
                "keep_graphs keeps the graphs of a forward pass for one backward pass; "
                "a second one (retain_graph=True) needs gradient checkpointing without it"
            )
        kept, output = self.kept.pop(0)
        if kept is not func:
            raise RuntimeError(
                f"keep_graphs needs the same operators in backward as in forward: {func} came "
                f"where {kept} was kept"
            )
        return output
