"""The attention of one layer alone: a pattern against all pairs."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from jat_graph.attention.patterns.api import pattern_attention
from jat_graph.checks.tensors import default_scale
from jat_graph.lab.speed.checks import require_close, sampled_tokens
from jat_graph.lab.speed.heads import backward, leaves
from jat_graph.lab.speed.inputs import Heads
from jat_graph.lab.speed.long_checks import allowed_keys
from jat_graph.lab.speed.long_models import PATTERN, SHAPE
from jat_graph.lab.speed.series import Outcome, Settings
from jat_graph.lab.speed.timing import time_in_turns
from jat_graph.patterns import parse_pattern

ATTENTION, ALL_PAIRS = "attention alone, window", "fused SDPA over all pairs"


def attention_against_all_pairs(length: int, settings: Settings) -> Outcome:
    """Time the attention of one layer, forward and backward."""
    heads = _random_layer(length, settings)
    pattern = parse_pattern(PATTERN)
    check_attention(f"{ATTENTION}, L={length}", heads)
    timing = time_in_turns(
        [lambda: backward(pattern_attention(*leaves(heads), pattern=pattern))],
        [lambda: backward(F.scaled_dot_product_attention(*leaves(heads)))],
        device=settings.torch_device,
        repeats=settings.repeats,
    )
    return Outcome.of(timing, {})


def check_attention(what: str, heads: Heads) -> None:
    """Refuse to go on unless the attention of sampled tokens is that of the definition."""
    rows = sampled_tokens(heads.length, heads.query.device)
    allowed = allowed_keys(rows, heads.length)
    got = pattern_attention(heads.query, heads.key, heads.value, pattern=parse_pattern(PATTERN))
    query = heads.query[:, :, rows]
    plain = F.scaled_dot_product_attention(query, heads.key, heads.value, attn_mask=allowed)
    scores = query.double() @ heads.key.double().transpose(-1, -2)
    scores = (scores * default_scale(query.size(-1))).masked_fill(~allowed, -torch.inf)
    require_close(what, got[:, :, rows], plain, scores.softmax(-1) @ heads.value.double())


def _random_layer(length: int, settings: Settings) -> Heads:
    heads = SHAPE["num_attention_heads"]
    shape = (1, heads, length, SHAPE["hidden_size"] // heads)
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(shape, generator=generator) for _ in range(3))
    return Heads(*(tensor.to(settings.torch_device, settings.dtype) for tensor in drawn))
