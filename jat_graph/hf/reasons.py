"""Why heads of ours leave attention modules of a class alone, as its code tells."""

from __future__ import annotations

import dis
import inspect
from functools import cache
from typing import Any

import torch

from jat_graph.hf.names import INDICES, NO_INTERFACE, NO_SDPA, lacks_sdpa

CROSS = "it is cross-attention"
ELSEWHERE = "its keys may come from elsewhere than its queries"
WITHIN = "it reads within a window, or chunks, of its model's own"
POSITION_BIAS = "it adds a position bias to its scores"
# Changes of scores that SDPA cannot follow, by what a module holds.
SDPA_LACKS = {
    "attn_logit_softcapping": "it caps its scores, which no scaled dot product attention does",
    "sinks": "it has attention sinks, which no scaled dot product attention has",
}
CHOSEN = "it reads keys that its model chooses, which no scaled dot product attention does"
NO_NAME = (NO_SDPA, NO_INTERFACE, CHOSEN, *SDPA_LACKS.values())  # why not even SDPA reads a module
# Parameters of attention whose keys may come from elsewhere than its queries.
SEPARATE_KEYS = [{"key", "value"}, {"keys", "values"}, {"latents", "context"}]
SEPARATE_KEYS += [{"merged_attention_mask"}]
INTERFACE = "ALL_ATTENTION_FUNCTIONS"  # what a forward names that asks for its attention


def asking_forward(kind: type) -> Any:
    """Return the forward, of a class or one above, that asks transformers' attention interface."""
    for own in kind.__mro__:
        forward = inspect.unwrap(vars(own).get("forward", len))
        if INTERFACE in getattr(getattr(forward, "__code__", None), "co_names", ()):
            return forward
    return None


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def read_traced(kind: Any, config: Any) -> str | None:
    """Return the same, as a constant of compiled code."""
    return read_kind(kind, config)


@cache
def read_kind(kind: Any, config: Any) -> str | None:
    """Return what speaks against heads in all modules of a class."""
    forward = asking_forward(kind) or inspect.unwrap(kind.forward)
    parameters = set(inspect.signature(forward).parameters)
    code = getattr(forward, "__code__", None)  # which a callable of another kind lacks
    consts = code.co_consts if code else ()  # where names of arguments are, in tuples or alone
    words = [(x,) if isinstance(x, str) else x for x in consts if isinstance(x, str | tuple)]
    named = parameters.union(*words)
    steps = dis.get_instructions(code) if code else ()
    loads = (x.argval for x in steps if x.opname.startswith("LOAD_FAST"))
    if lacks_sdpa(config):
        return NO_SDPA
    if not named.isdisjoint(INDICES):
        return CHOSEN
    if "CrossAttention" in kind.__name__:
        return CROSS
    if any(names <= parameters for names in SEPARATE_KEYS):
        return ELSEWHERE
    if [*loads].count("attention_interface") > 1 and "past_key_values" in parameters:
        return "it calls attention in several places"
    # Those of Zamba 2 serve several layers, HRM's run in loops.
    if any(name == "layer_idx" or name.endswith("_offset") for name in parameters):
        return "it keeps its keys in a cache under other numbers than its own"
    if any("mask" in name for name in vars(kind)):
        return "it makes masks of its own"
    return POSITION_BIAS if "position_bias" in named else None
