"""Run a model on graphs, or with global tokens, from outside; keep graphs of a forward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from jat_graph.hf.adapter import find_attachment
from jat_graph.hf.arguments import hand_graphs
from jat_graph.hf.by_name import reads_by_name
from jat_graph.hf.clusters import AttachedClusters
from jat_graph.hf.modules import (
    attention_modules,
    layers_around,
    layers_get,
    takes_any_argument,
    transformer_of,
)
from jat_graph.hf.names import GLOBAL
from jat_graph.hf.state import layer_state

if TYPE_CHECKING:
    from jat_graph.jumps.external_graphs import Graph

ModelT = TypeVar("ModelT", bound=nn.Module)


@contextmanager
def using_graphs(
    model: ModelT, graphs: Graph, word_ids: Sequence[Sequence[int | None]] | None = None
) -> Iterator[ModelT]:
    """Let all jump heads of a model jump along graphs from outside, inside the ``with``.

    Backward may come later, with gradient checkpointing, too. Other threads and tasks may run the
    model meanwhile, on graphs of their own or on none; in compiled code all calls get the last
    ones. The model takes the same in its forward, ``model(**batch, graphs=graphs)``, as
    :class:`jat_graph.training.GraphCollator` makes it. Layers of PyG in heads get ``edge_type`` and
    ``edge_attr`` if they take them.

    Args:
        model: A model with jump heads on pairs, or a wrapper around it.
        graphs: A for the sequences of the batch, in any form that :func:`jat_graph.jump_attention`
            takes as ``graph``, or a list of a PyG ``Data`` for each.
        word_ids: For a list or ``Batch`` of graphs of words: each sequence's
            ``encoding.word_ids(i)``, for :func:`jat_graph.graphs.token_graph`.
            (default: None, nodes are tokens)

    Yields:
        The same model.

    Raises:
        ValueError: If the model has no jump heads on pairs, or the graphs do not fit the words; in
            its forward, if they do not fit the tokens, or look ahead.

    Example:
        >>> import jat_graph, torch
        >>> from torch_geometric.data import Data
        >>> from transformers import BertConfig, BertModel
        >>> model = BertModel(BertConfig(hidden_size=32, num_attention_heads=4)).eval()
        >>> model = jat_graph.attach(model, jat_graph.JatConfig())
        >>> graph = Data(edge_index=torch.tensor([[0, 2], [2, 0]]), num_nodes=3)
        >>> with jat_graph.using_graphs(model, [graph]):
        ...     out = model(torch.tensor([[101, 102, 103]])).last_hidden_state
        >>> out.shape
        torch.Size([1, 3, 32])
    """
    with hand_graphs(find_attachment(model), model, graphs, word_ids):
        yield model


@contextmanager
def using_global_tokens(model: ModelT, mask: Tensor) -> Iterator[ModelT]:
    """Let some tokens see all tokens, and all tokens see these, inside the ``with``.

    Heads by clusters, attached or by name, read the keys of global tokens exactly, and global
    tokens read all keys; a pattern with ``global`` and no number, such as ``window:256+global``,
    allows these pairs beside its others. Layers that read within a window of their model's own stay
    as they are. A model that hands on arguments takes the same mask in its forward, as
    ``global_attention_mask``; inside the ``with`` this one counts. Backward may come later, with
    gradient checkpointing, too.

    Args:
        model: An encoder, or a model with one, whose heads read by clusters or within such a
            pattern, or a wrapper around it.
        mask: Bool, or 0 and 1, ``[B, L]``, of tokens of the next calls; padding is never global.

    Yields:
        The same model, for the calls of this thread or task; for all calls in compiled code.

    Raises:
        ValueError: If no head of the model can use global tokens, as in a decoder, or the mask is
            none; in its forward, if the mask does not fit the tokens.

    Reference:
        Global attention of Longformer (Beltagy et al. 2020, 3.1), there with its own projections.
    """
    fits = isinstance(mask, Tensor) and mask.dim() == 2 and not mask.is_floating_point()
    if not fits or bool(((mask != 0) & (mask != 1)).any()):
        got = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, Tensor) else repr(mask)
        values = ", other numbers" if fits else ""
        raise ValueError(f"mask must be bool, or 0 and 1, [B, L], got {got}{values}")
    modules = _global_readers(model)
    layers = layers_around(model, modules)
    for module in (*layers, *modules):
        if not takes_any_argument(type(module)):
            name = type(module).__name__
            raise ValueError(f"model must pass arguments on to its attention, got a {name}")
    with layers_get(layers, GLOBAL, mask):
        yield model


def _global_readers(model: nn.Module) -> list[nn.Module]:
    """Return the attention modules of encoders that can use global tokens; one at least."""
    attachment = find_attachment(model)
    found = list[nn.Module]()
    if attachment is not None:
        within = attachment.pattern is not None and attachment.pattern.needs_global
        for module in model.modules():
            if (state := layer_state(module)) and state.takes_heads:
                if within or any(isinstance(heads, AttachedClusters) for heads in state.heads):
                    found.append(module)
    else:
        entries = attention_modules(transformer_of(model))
        found = [entry.module for entry in entries if reads_by_name(entry)]
    readers = [module for module in found if not getattr(module, "is_causal", True)]
    if not readers:
        got = "causal ones" if found else f"a {type(model).__name__} with neither"
        wanted = "encoder heads that read by clusters, or a pattern with 'global'"
        raise ValueError(f"model must have {wanted}, for global tokens, got {got}")
    return readers


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
            wanted = "the same operators in backward as in forward"
            raise RuntimeError(f"keep_graphs needs {wanted}, got {func} instead of {kept}")
        return output
