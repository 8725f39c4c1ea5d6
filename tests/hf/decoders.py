"""What the tests of decoders share: the settings that serve them, and models that jump."""

from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor

from jat_graph.hf import disabled
from tests.hf.models import LENGTH, assert_joins, run, tiny_inputs, tiny_jump_model

LOW = {"threshold": 0.1}  # under these rules fewer pairs join
STRIDED = {"key_selection": "strided", "key_step": 2}
TABLE = ((1.0, 0.5), (0.7, 1.0), (1.0, 1.2))  # for three layers
SETTINGS: dict[str, dict[str, Any]] = {
    "all": {},
    "strided": STRIDED,
    "third order": {"hop_weights": (0.2, 0.0, 0.8)},
    "mapping": {"hop_weights": {(0,): (0.0, 1.0), (2,): (0.5, -0.2, 0.5)}},
    "inclusive": {"inclusive": True, "normalize_keys": True} | LOW,
    "same sign": {"same_sign_only": True} | LOW,
    "selected": {**STRIDED, "nodes": "selected", "threshold": 0.01},
}
RULES: list[Any] = [
    pytest.param({"backend": backend, **settings}, id=f"{name}-{backend}")
    for backend in ("dense", "sparse")
    for name, settings in SETTINGS.items()
]
RULES += [
    pytest.param({"backend": "threshold", **settings}, id=f"{name}-threshold")
    for name, settings in {"all": {}, "strided": {**STRIDED, "hop_weights": (0.5, 0.5)}}.items()
]
RULES.append(pytest.param({"backend": "dense", "soft_temperature": 0.5}, id="soft-dense"))
RULES += [
    pytest.param({"pattern": "window:4"}, id="window"),
    pytest.param({"pattern": "window:3+global:1", **STRIDED}, id="window and global"),
    pytest.param({"pattern": "strided:3", "hop_weights": (0.5, 0.5)}, id="strided pattern"),
]
SIDES = [
    pytest.param((LENGTH, LENGTH), "right", id="unpadded"),
    pytest.param((LENGTH, LENGTH - 4), "right", id="right"),
    pytest.param((LENGTH, LENGTH - 4), "left", id="left"),
]


def prepared(
    name: str, rule: dict[str, Any], lengths: tuple[int, ...], side: str
) -> tuple[hf.PreTrainedModel, dict[str, Tensor], Tensor]:
    """Return a model that jumps, its inputs and its output."""
    model, inputs = tiny_jump_model(name, **rule), tiny_inputs(name, lengths, side=side)
    assert_joins(model, inputs)
    output = run(model, inputs)
    with disabled(model):
        assert not torch.allclose(run(model, inputs), output, atol=1e-3)
    return model, inputs, output


def in_chunks(
    model: Any, inputs: dict[str, Tensor], sizes: tuple[int, ...], cache: Any = None, **options: Any
) -> tuple[Tensor, list[Any]]:
    """Return the logits of a decoder's tokens, which come in chunks, and their attention rows."""
    cache = hf.DynamicCache() if cache is None else cache
    prefix = "decoder_" if "decoder_input_ids" in inputs else ""
    end, logits, rows = 0, [], []
    for size in sizes:
        start, end = end, end + size
        chunk = dict(inputs)
        for name in (f"{prefix}input_ids", f"{prefix}position_ids"):
            if name in inputs:
                chunk[name] = inputs[name][:, start:end]
        chunk[f"{prefix}attention_mask"] = inputs[f"{prefix}attention_mask"][:, :end]
        with torch.no_grad():
            outputs = model(**chunk, past_key_values=cache, use_cache=True, **options)
        logits.append(outputs.logits)
        rows.append(outputs.get("attentions"))
    return torch.cat(logits, dim=1), rows
