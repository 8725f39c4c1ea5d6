"""Which query may attend to which key: every kind of mask in one form; documents."""

from __future__ import annotations

import operator
import warnings
from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary


@dataclass(frozen=True)
class TokenMask:
    """The rule M of a batch, in the cheapest form that says it.

    Args:
        valid: Tokens that are not padding, ``[B|1, H|1, L]`` bool; None if all are valid.
        causal: A query sees itself and what comes before it.
        pairs: M itself, ``[B|1, H|1, L, L]`` bool, if it is neither padding nor causal; else None.
        bias: Finite additive biases, ``[B|1, H|1, L, L]``, for the final scores only; else None.
        excluded: Tokens that never vote and are never stones, ``[B|1, H|1, L]`` bool; else None.
    """

    valid: Tensor | None = None
    causal: bool = False
    pairs: Tensor | None = None
    bias: Tensor | None = None
    excluded: Tensor | None = None
    # What these pairs say of documents, in causal order or not, or why nothing: asked once.
    named: dict[bool, Tensor | str] = field(default_factory=dict, init=False, compare=False)

    @property
    def voting(self) -> Tensor | None:
        """Tokens whose keys may vote, ``[B|1, H|1, L]`` bool; None if all may."""
        if self.excluded is None:
            return self.valid
        return ~self.excluded if self.valid is None else self.valid & ~self.excluded

    def allowed(self, length: int, device: torch.device) -> Tensor | None:
        """Return M between valid tokens as one bool tensor, or None if everything is allowed.

        Args:
            length: Number of tokens L.
            device: Where to build the causal triangle.

        Returns:
            True where a query may attend, ``[B|1, H|1, L, L]``.
        """
        parts = [] if self.pairs is None else [self.pairs]
        if self.valid is not None:
            parts.append(self.valid.unsqueeze(-1) & self.valid.unsqueeze(-2))
        if self.causal:
            parts.append(causal_rows(length, length, device))
        return reduce(operator.and_, parts) if parts else None

    def attention_mask(self, length: int, like: Tensor) -> tuple[Tensor | None, bool]:
        """Return ``attn_mask`` and ``is_causal`` for scaled dot product attention.

        A padded query still attends to the valid keys, so that its output is finite.

        Args:
            length: Number of tokens L.
            like: Tensor whose dtype and device the additive mask takes.

        Returns:
            The mask, broadcastable to ``[B, H, L, L]``, and whether SDPA shall mask causally.
        """
        keys = None if self.valid is None else self.valid.unsqueeze(-2)  # [B, H, 1, L]
        if self.bias is None and self.pairs is None and (keys is None or not self.causal):
            return keys, self.causal
        rest = TokenMask(causal=self.causal, pairs=self.pairs).allowed(length, like.device)
        allowed = keys if rest is None else rest if keys is None else keys & rest
        if self.bias is None:
            return allowed, False
        bias = self.bias.to(like.dtype)
        return (bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)), False

    def select_heads(self, heads: tuple[int, ...]) -> TokenMask:
        """Return the mask of these heads only.

        Args:
            heads: Indices from 0.

        Returns:
            The mask, its head axis cut to ``heads`` where it has one.
        """
        valid, pairs, bias, excluded = (
            part if part is None or part.size(1) == 1 else part[:, list(heads)]
            for part in (self.valid, self.pairs, self.bias, self.excluded)
        )
        return TokenMask(valid, self.causal, pairs, bias, excluded)


def causal_rows(num_queries: int, num_keys: int, device: torch.device) -> Tensor:
    """Return which keys the last queries see in causal order, ``[1, 1, num_queries, num_keys]``."""
    ones = torch.ones(1, 1, num_queries, num_keys, dtype=torch.bool, device=device)
    return ones.tril(num_keys - num_queries)


def resolve_mask(
    attention_mask: Tensor | None,  # bool or additive, [B, L] or [B|1, H|1, L, L]
    is_causal: bool,
    query: Tensor,  # [B, H, L, D], which the mask must fit
) -> TokenMask:
    """Bring an attention mask into its cheapest form."""
    # A 4D mask that only says which keys are padding, alone or with a causal triangle, is
    # recognised: by its shape or strides where all queries share one row, as transformers builds
    # padding masks, else by its values. Under `torch.compile`, where no branch may depend on
    # values, the latter is kept as it is.
    if attention_mask is None:
        return TokenMask(causal=is_causal)
    _check_mask(attention_mask, query)
    if attention_mask.dim() == 2:
        attention_mask = attention_mask[:, None, None]
    allowed, bias = split_additive(shared_row(attention_mask).to(query.device))
    if allowed.size(-2) == 1:
        return TokenMask(valid=allowed.squeeze(-2), causal=is_causal, bias=bias)
    return _recognise(allowed, is_causal, bias)


def exclude_tokens(
    mask: TokenMask,
    excluded: Tensor | None,  # bool [B, L]
    query: Tensor,  # [B, H, L, D]
) -> TokenMask:
    """Return the mask with tokens that never vote and are never stones."""
    if excluded is None:
        return mask
    wanted = query.size(0), query.size(2)
    if excluded.dtype != torch.bool or excluded.shape != wanted:
        got = f"{excluded.dtype} {list(excluded.shape)}"
        raise ValueError(f"excluded must be bool {list(wanted)}, got {got}")
    return replace(mask, excluded=excluded.unsqueeze(1).to(query.device))


def shared_row(mask: Tensor) -> Tensor:  # [B|1, H|1, 1, L]
    """Cut a mask whose queries share one row in memory, an expanded one, down to that row."""
    return mask[:, :, :1] if mask.dim() == 4 and mask.stride(2) == 0 else mask


def _check_mask(mask: object, query: Tensor) -> None:
    if not isinstance(mask, Tensor):
        raise ValueError(f"attention_mask must be a tensor, got {type(mask).__name__}")
    batch, heads, length = query.shape[:3]
    if mask.dtype != torch.bool and not mask.is_floating_point():
        got = f"{mask.dtype}: use mask.bool()"
        raise ValueError(f"attention_mask must be bool or additive floats, got {got}")
    shape = tuple(mask.shape)
    full = (batch, heads, length, length)
    shared = zip(shape[:3], full, strict=False)
    one_for_all = len(shape) == 4 and all(size in (1, whole) for size, whole in shared)
    if shape != (batch, length) and not (one_for_all and shape[3] == length):
        wanted = f"[{batch}, {length}] or [{batch}|1, {heads}|1, {length}, {length}]"
        raise ValueError(f"attention_mask must be {wanted}, got {list(shape)}")


def split_additive(mask: Tensor) -> tuple[Tensor, Tensor | None]:
    """Split an additive mask into what is allowed and the finite biases, if there are any."""
    if mask.dtype == torch.bool:
        return mask, None
    allowed = ~(mask <= torch.finfo(mask.dtype).min / 2)
    bias = mask.masked_fill(~allowed, 0.0)
    if torch.compiler.is_compiling():
        return allowed, bias
    if not bool(bias.isfinite().all()):
        raise ValueError("attention_mask must hold finite biases or -inf, got NaN or +inf")
    if (biased := bool(bias.count_nonzero())) and bool(((mask == 0) | (mask == 1)).all()):
        warnings.warn("attention_mask adds 0 and 1 to scores: to mask, pass .bool()", stacklevel=4)
    return allowed, bias if biased else None


def _recognise(pairs: Tensor, is_causal: bool, bias: Tensor | None) -> TokenMask:
    """Say a 4D mask ``[B|1, H|1, L, L]`` as padding, alone or with causal order, if it is that."""
    valid = pairs.any(dim=-2)  # some query sees it
    if torch.compiler.is_compiling():
        return TokenMask(valid, is_causal, pairs, bias)
    padding = None if bool(valid.all()) else valid
    # What a padded query sees changes nothing for the others.
    ignored = ~valid.unsqueeze(-1)
    expected = valid.unsqueeze(-2)
    if not is_causal and bool(((pairs == expected) | ignored).all()):
        return TokenMask(padding, is_causal, None, bias)
    expected = expected.expand_as(pairs).tril()
    if bool(((pairs.tril() == expected) | ignored).all()):
        if is_causal or not bool((pairs & ~ignored).triu(1).any()):
            return TokenMask(padding, True, None, bias)
    return TokenMask(padding, is_causal, pairs, bias)


def token_documents(mask: TokenMask, query: Tensor, causal: bool = False) -> Tensor | None:
    """Return the document of each token, ``[B, L]``, -1 for padding; None if all are of one."""
    # A mask that says anything but padding and documents, the same for all heads, is refused; in
    # causal order nobody asks what it says of later tokens.
    compiling = torch.compiler.is_compiling()  # when an additive mask has biases, all of them 0
    if (mask.causal and not causal) or (mask.bias is not None and not compiling):
        got = "causal order" if mask.causal else "biases"
        raise ValueError(f"attention_mask must be padding or documents, got {got}")
    if any(part is not None and part.size(1) > 1 for part in (mask.valid, mask.pairs)):
        raise ValueError("attention_mask must be the same for all heads, got one for each")
    if mask.pairs is not None:
        documents = _named(mask.pairs, causal, {} if compiling else mask.named)
    elif mask.valid is not None:
        documents = mask.valid.squeeze(1).int() - 1
    else:
        return None
    if mask.bias is not None:
        documents = _without_biases(documents, mask.bias)
    return documents.expand(query.size(0), -1)


def _named(pairs: Tensor, causal: bool, known: dict[bool, Tensor | str]) -> Tensor:  # int [B, L]
    """Return the documents of pairs, or refuse these, as it is known or from now on."""
    if causal not in known:
        try:
            known[causal] = _packed(pairs.squeeze(1), causal)
        except ValueError as error:
            known[causal] = str(error)
    if isinstance(found := known[causal], str):
        raise ValueError(found)
    return found


@torch.library.custom_op(
    "jat_graph::without_biases", mutates_args=(), tags=torch.Tag.cudagraph_unsafe
)
def _without_biases(documents: Tensor, bias: Tensor) -> Tensor:  # int [B, L]
    """Refuse biases that are not 0; an operator, as it looks at values."""
    if bool(bias.any()):
        raise ValueError("attention_mask must be padding or documents, got biases")
    return documents.clone()


@torch.library.custom_op(
    "jat_graph::packed_documents", mutates_args=(), tags=torch.Tag.cudagraph_unsafe
)
def _packed(pairs: Tensor, causal: bool) -> Tensor:  # bool [B, L, L] -> int [B, L]
    """Name each document by the first key that it sees; an operator, as it looks at values."""
    documents = []
    for mask in pairs:
        seen = mask.any(0)
        names = mask.view(torch.uint8).argmax(-1).masked_fill(~seen, -1)
        together = (names.unsqueeze(-1) == names) & seen
        wrong = (mask != together) & seen.unsqueeze(-1)
        if bool((wrong.tril() if causal else wrong).any()):
            wanted = "padding or documents, each of which sees itself alone"
            got = "another rule between pairs of tokens"
            raise ValueError(f"attention_mask must be {wanted}, got {got}")
        documents.append(names)
    return torch.stack(documents).int()


@_packed.register_fake
def _(pairs: Tensor, causal: bool) -> Tensor:
    return pairs.new_empty(pairs.shape[:2], dtype=torch.int32)


@_without_biases.register_fake
def _(documents: Tensor, bias: Tensor) -> Tensor:
    return torch.empty_like(documents)


# Of a mask: its version, causality and shape; what it resolves to; whether its pairs are itself.
_entries: MutableMapping[Tensor, tuple[Any, TokenMask, bool]] = WeakTensorKeyDictionary()


def resolve_once(
    attention_mask: Tensor,
    is_causal: bool,
    query: Tensor,  # [B, H, L, D], whose shape the mask must fit
) -> TokenMask:
    """Resolve a mask, which waits for the device, once for all layers that share it."""
    # What was written to since is resolved anew.
    # An entry for a mask without a version, or for a view, could go stale or keep its mask alive.
    if (
        torch.compiler.is_compiling()
        or attention_mask.is_inference()
        or attention_mask.dim() != 4
        or attention_mask.size(-2) == 1
    ):
        return resolve_mask(attention_mask, is_causal, query)
    entry = _entries.get(attention_mask)
    mode = torch.is_inference_mode_enabled()
    wanted = attention_mask._version, is_causal, query.shape[:3], mode  # no mode keeps another's
    if entry is None or entry[0] != wanted:
        resolved = resolve_mask(attention_mask, is_causal, query)
        pairs_is_mask = resolved.pairs is attention_mask
        if pairs_is_mask:  # the entry would keep its own key alive
            resolved = replace(resolved, pairs=None)
        _entries[attention_mask] = entry = (wanted, resolved, pairs_is_mask)
    found = replace(entry[1], pairs=attention_mask) if entry[2] else entry[1]
    found.__dict__["named"] = entry[1].named  # of the same pairs
    return found


def trust_causal(mask: TokenMask) -> TokenMask:
    """Return a mask of pairs as causal order and padding, which nothing but the run can check."""
    if mask.pairs is None:
        return mask
    valid = mask.pairs.diagonal(dim1=-2, dim2=-1)
    expected = valid.unsqueeze(-2).expand_as(mask.pairs).tril()
    holds = ((mask.pairs == expected) | ~valid.unsqueeze(-1)).all()
    torch._assert_async(holds, "attention_mask must be causal order and padding under compile")
    return replace(mask, valid=valid, causal=True, pairs=None)
