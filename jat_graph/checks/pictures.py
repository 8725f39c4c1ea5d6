"""What pictures can show, known before anything that draws is imported."""

from __future__ import annotations

import re

PICTURE_TOKENS = 200  # more make a picture of a head too large for its file
PATTERN_TOKENS = 4096  # more of a pattern cannot be seen

# Layers that read something else than single tokens: what stands behind the name, as users are
# told and as it is read.
_FORMS = {
    "memory-compressed": ("KERNEL:STRIDE[:causal]", r"(\d+):(\d+)(:causal)?"),
    "area": ("WIDTH[:causal]", r"(\d+)(:causal)?"),
    "block": ("LENGTH", r"(\d+)"),
}


def is_layer(spec: str) -> bool:
    """Tell whether a text means one of these layers."""
    return spec.partition(":")[0].strip() in _FORMS


def read_layer(spec: str) -> tuple[str, list[int | bool]]:
    """Return the name of a layer, its numbers, and whether it is causal where it may be."""
    name, _, arguments = spec.strip().partition(":")
    usage, form = _FORMS[name]
    found = re.fullmatch(form, arguments)
    if found is None:
        raise ValueError(f"pattern must be {name}:{usage}, got {spec!r}")
    return name, [int(a) if a and a.isdigit() else bool(a) for a in found.groups()]
