"""Graphs on disk: tensors in safetensors and settings in JSON, under a digest of their making."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.data import Data
from torch_geometric.data.collate import collate
from torch_geometric.data.separate import separate

from jat_graph.files import replacing
from jat_graph.hf.adapter import find_attachment

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SLICES = "slices."  # of a tensor: where each graph's part of it begins


def digest(content: Any) -> str:
    """Return a digest of what JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def model_digest(model: PreTrainedModel) -> str:
    """Return a digest of a model's configuration, without where it lies, and of its weights."""
    config = {k: v for k, v in model.config.to_dict().items() if k != "_name_or_path"}
    seen = hashlib.sha256(digest(config).encode())
    for name, tensor in sorted(model.state_dict().items()):
        seen.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        seen.update(raw.numpy())
    return seen.hexdigest()


def is_jumping(model: PreTrainedModel) -> bool:
    """Return whether a model has jump heads that are not switched off."""
    attachment = find_attachment(model)
    return attachment is not None and attachment.enabled


def write_graphs(path: Path, graphs: Iterable[Data]) -> None:
    """Write graphs; the file appears whole or not at all."""
    from safetensors.torch import save_file

    data, slices, _ = collate(Data, list(graphs), increment=False, add_batch=False)
    tensors = data.to_dict() | {f"{SLICES}{name}": part for name, part in slices.items()}
    with replacing(path) as temporary:
        save_file(tensors, temporary)


def read_graphs(path: Path) -> list[Data]:
    """Read the graphs of a file; their tensors stay in it until somebody looks at them."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged, delete it: {error}") from None
    slices = {
        name.removeprefix(SLICES): tensors.pop(name) for name in list(tensors) if SLICES in name
    }
    data = Data.from_dict(tensors)
    return [
        separate(Data, batch=data, idx=number, slice_dict=slices, decrement=False)
        for number in range(len(slices["x"]) - 1)
    ]
