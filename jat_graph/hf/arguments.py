"""What layers hand on to their attention: which tokens are excluded, and graphs from outside."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.hf.jumps import AttachedJumps
from jat_graph.hf.modules import layers_around, layers_get, model_parts, takes_any_argument
from jat_graph.hf.names import EXCLUDED, GRAPHS
from jat_graph.hf.state import Attachment, heads_of
from jat_graph.jumps.config import JatConfig
from jat_graph.jumps.external_graphs import found_graph, has_edges

# Tokens of a tokenizer that stand for no word.
ROLES = ("cls", "sep", "bos", "eos", "pad")


def with_excluded_tokens(
    config: JatConfig, tokenizer: PreTrainedTokenizerBase | Sequence[int] | None
) -> JatConfig:
    """Return the settings with excluded tokens, if they have none; a tokenizer's are for stones."""
    if tokenizer is None or config.excluded_token_ids:
        return config
    if isinstance(tokenizer, Sequence):
        return config.replace(excluded_token_ids=tuple(tokenizer))
    if config.graph.kind != "stones":
        return config
    found = {getattr(tokenizer, f"{role}_token_id") for role in ROLES}
    return config.replace(excluded_token_ids=tuple(sorted(found - {None})))


def token_hooks(
    base: PreTrainedModel, modules: Iterable[nn.Module], tokens: tuple[int, ...]
) -> list[tuple[nn.Module, Any]]:
    """Return the hooks by which layers around some attention modules get their excluded tokens."""
    owners = {module: part for part in model_parts(base) for module in part.modules()}
    modules_of: dict[PreTrainedModel, list[nn.Module]] = {}
    for module in modules if tokens else ():
        modules_of.setdefault(owners[module], []).append(module)
    hooks: list[tuple[nn.Module, Any]] = []
    for part, own in modules_of.items():
        layers = layers_around(part, own)
        if not all(takes_any_argument(type(module)) for module in (*layers, *own)):
            what = f"{type(part).__name__}, which passes no further arguments on to its attention"
            raise ValueError(f"excluded_token_ids must be () for {what}, got {tokens}")
        groups = getattr(part.config, "num_hidden_groups", None)  # ALBERT's
        rounds = part.config.num_hidden_layers // groups if groups else 1
        hooks.append((part, partial(_start, rounds)))
        if part.main_input_name == "input_ids":
            hooks.append((part.get_input_embeddings(), partial(_look_up, tokens, rounds)))
        hooks += [(layer, partial(_hand_on, layer is layers[-1])) for layer in layers]
    return hooks


class _Forward(threading.local):
    """What is known of the excluded tokens in the forward of this thread."""

    known: bool = False
    excluded: Tensor | None = None  # [B, L]; None for inputs without ids
    rounds: int = 0  # calls of the last layer that are to come
    used: bool = False  # whether a layer was given it

    def begin(self, known: bool, excluded: Tensor | None, rounds: int) -> None:
        self.known = known
        self.excluded = excluded
        self.rounds = rounds
        self.used = False


_forward = _Forward()


def _start(rounds: int, module: PreTrainedModel, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Begin a forward, and note inputs that have no ids."""
    without = module.main_input_name != "input_ids" or kwargs.get("inputs_embeds") is not None
    _forward.begin(without, None, rounds)


def _look_up(tokens: tuple[int, ...], rounds: int, module: Any, args: Any, kwargs: Any) -> None:
    if _forward.known and not _forward.used:
        return  # GPT-2 looks up the types of tokens in the same table, after the tokens
    ids = args[0] if args else kwargs["input"]
    # Token by token, for a tensor of them would have to be sent to the device.
    excluded = reduce(torch.logical_or, (ids == token for token in tokens)).flatten(0, -2)
    _forward.begin(True, excluded, rounds)


def _hand_on(last: bool, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Add to the arguments of a layer which tokens are excluded."""
    if not _forward.known:
        got = f"{type(module).__name__} does not know which tokens are excluded"
        cure = "call the model with input_ids, and attach heads after its embeddings were changed"
        raise ValueError(f"{got}: {cure}")
    excluded = _forward.excluded
    _forward.used = True
    _forward.rounds -= last
    if _forward.rounds == 0:  # the next forward may be one of embeddings, of which no hook knows
        _forward.begin(False, None, 0)
    return args, {**kwargs, EXCLUDED: excluded}


@contextmanager
def hand_graphs(
    attachment: Attachment | None, model: nn.Module, graphs: Any, word_ids: Any
) -> Iterator[None]:
    """Let the layers of a model hand graphs on to their jump heads, inside the ``with``."""
    config = None if attachment is None else attachment.configs.get(AttachedJumps)
    if attachment is None or config is None or config.jump_graph.kind != "pairs":
        got = "none" if config is None else f"graph={config.jump_graph.kind!r}"
        raise ValueError(f"model must have jump heads on pairs for graphs from outside, got {got}")
    hold_graphs(attachment, None, None)
    if word_ids is not None:
        from jat_graph.graphs.pairs import token_graph  # PyG takes seconds to load

        listed = isinstance(word_ids, list | tuple)
        if not listed or not all(isinstance(own, Sequence) for own in word_ids):
            wanted = "a list for each sequence, as [encoding.word_ids(0)]"
            raise ValueError(f"word_ids must be {wanted}, got {repr(word_ids).splitlines()[0]:.40}")
        words = graphs
        if has_edges(graphs):
            words = graphs.to_data_list() if "ptr" in graphs else [graphs]
        known = isinstance(words, list | tuple)
        if not known or len(words) != len(word_ids):
            wanted = f"graphs of words, one for each sequence ({len(word_ids)})"
            found = len(words) if known else found_graph(words)
            raise ValueError(f"graphs must be {wanted}, got {found}")
        graphs = [token_graph(*pair) for pair in zip(words, word_ids, strict=True)]
    layers = layers_around(model, [module for module in model.modules() if heads_of(module)])
    with attachment.having("graphs", graphs), layers_get(layers, GRAPHS, graphs):
        yield


def take_graphs(
    attachment: Attachment, module: nn.Module, args: Any, kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Take graphs out of the arguments of a model, which would swallow them, for its layers."""
    rest = {name: value for name, value in kwargs.items() if name not in ("graphs", "word_ids")}
    if kwargs["graphs"] is not None:
        context = hand_graphs(attachment, module, kwargs["graphs"], kwargs.get("word_ids"))
        hold_graphs(attachment, module, context)
    return args, rest


@torch.compiler.disable  # type: ignore[untyped-decorator]  # hooks that come and go are not traced
def hold_graphs(attachment: Attachment, module: nn.Module | None, context: Any) -> None:
    """Enter a context for the forward of a module, or leave what it has; of None, all."""
    thread = threading.get_ident()
    if context is not None and module is not None:
        context.__enter__()
        attachment.entered[thread, module] = context
        return
    for own, known in list(attachment.entered):
        if own == thread and module in (None, known):
            attachment.entered.pop((own, known)).__exit__(None, None, None)
