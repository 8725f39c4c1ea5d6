"""Ways to read fewer keys without training, in the place of attention in pretrained models.

``register("less:bounds:256")`` makes that a name for ``attn_implementation``: each token reads 256
keys exactly, and which, the file ``bounds.py`` says; ``less:bounds:0.25`` reads a quarter of a
text's. All are **emulations**: dense formulas that compute every score and use a few, so that
nothing is faster. Trees are not here: their name is ``clustered``, of the library itself.

A method is a function from :class:`examples.methods.rows.Rows` to attention weights, in a file that
this one names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from examples.methods.best import best, best_and_rest
from examples.methods.bounds import bounds
from examples.methods.channels import channels
from examples.methods.lines import lines
from examples.methods.means import means
from examples.methods.queries import queries
from examples.methods.rows import FIRST, Rows, Text
from examples.methods.window import window

Method: TypeAlias = Callable[[Rows], Tensor]  # [heads, queries, keys], which sum to 1

METHODS: dict[str, Method] = {
    "window": window,
    "bounds": bounds,
    "means": means,
    "lines": lines,
    "channels": channels,
    "queries": queries,
    "best": best,
    "best-rest": best_and_rest,
}
PREFIX = "less:"
AT_ONCE = 64  # queries whose scores are held


def parse(name: str) -> tuple[Method, float]:
    """Return the method of a name, and its number of keys, or the share of them below 1."""
    method, _, given = name.removeprefix(PREFIX).partition(":")
    try:
        keys = float(given)
    except ValueError:
        keys = 0.0
    if not name.startswith(PREFIX) or method not in METHODS or not 0 < keys < math.inf:
        wanted = f"{PREFIX}METHOD:KEYS with a method of {', '.join(METHODS)}"
        raise ValueError(f"attention must be {wanted}, got {name!r}")
    return METHODS[method], keys


def register(name: str) -> None:
    """Make ``less:METHOD:KEYS`` a way to compute attention, of one text at a time in decoders."""
    method, keys = parse(name)

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any
    ) -> tuple[Tensor, None]:
        if getattr(module, "sliding_window", None) is not None:  # which reads little as it is
            return sdpa_attention_forward(module, query, key, value, mask, **options)
        causal = bool(getattr(module, "is_causal", False))
        padded = mask is not None and not mask[:, :, -1].all()
        if causal and (len(query) > 1 or padded):
            raise ValueError(f"{name} is for one text without padding in a decoder")
        times = query.size(1) // key.size(1)  # heads that share their keys
        key, value = repeat_kv(key, times), repeat_kv(value, times)
        output = torch.zeros_like(query)
        for item, (q, k, v) in enumerate(zip(query, key, value, strict=True)):
            valid = slice(None) if causal or mask is None else mask[item, 0].any(0)
            text = Text(q[:, valid].float(), k[:, valid].float(), options["scaling"], causal)
            budget = round(keys if keys >= 1 else keys * text.key.size(1))
            some = text.split(AT_ONCE, max(budget, FIRST + 1))
            parts = [method(rows) @ v[:, valid][:, : rows.length].float() for rows in some]
            output[item][:, valid] = torch.cat(parts, 1).to(output.dtype)
        return output.transpose(1, 2).contiguous(), None

    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, sdpa_mask)
