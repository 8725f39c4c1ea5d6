"""Time and fidelity of attention by clusters over the length of a text, on a model as it is."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from jat_graph.hf import register_clustered
from jat_graph.inspection import fidelity
from jat_graph.viz import save_figure
from jat_graph.viz.figures import COLOURS, new_figure


def compare_with_sdpa(
    model: Any, ids: Tensor, settings: dict[str, Any], rounds: int
) -> dict[str, float]:
    """Measure a model on SDPA and on clusters in turns, on texts of one length ``[texts, L]``.

    Seconds are medians on the first text, the ratio is that of both sides of a round.
    """
    names, taken = ("sdpa", register_clustered(**settings)), []
    for _ in range(rounds + 1):
        seconds = []
        for name in names:
            model.set_attn_implementation(name)
            start = time.perf_counter()
            with torch.inference_mode():
                model(ids[:1])
            seconds.append(time.perf_counter() - start)
        taken.append(seconds)
    taken = taken[1:]  # the first may compile
    report = fidelity(model, [{"input_ids": text[None]} for text in ids])
    return {
        "tokens": ids.size(1),
        "sdpa": median(sdpa for sdpa, _ in taken),
        "clusters": median(clusters for _, clusters in taken),
        "ratio": median(clusters / sdpa for sdpa, clusters in taken),
        "share": sum(head.share for head in report.heads) / len(report.heads),
        "token_cosine": report.token_cosine,
        "embedding_cosine": report.embedding_cosine,
    }


def draw_lengths(points: list[dict[str, float]], path: Path) -> None:
    """Draw seconds by SDPA and by clusters over the length, and how near states are."""
    figure = new_figure(6.6, 2.7, heading="A pretrained model on long texts")
    seconds, near = figure.subplots(1, 2)
    lengths = [point["tokens"] for point in points]
    curves = (
        (seconds, "sdpa", "SDPA"),
        (seconds, "clusters", "clusters"),
        (near, "token_cosine", "states of tokens"),
        (near, "embedding_cosine", "mean embedding"),
    )
    for (axis, name, label), colour in zip(curves, COLOURS, strict=False):
        axis.plot(lengths, [p[name] for p in points], "o-", ms=4, color=colour, label=label)
    seconds.set(ylabel="seconds for a text", ylim=(0, None))
    lowest = min(0.9, *(p[name] for p in points for name in ("token_cosine", "embedding_cosine")))
    near.set(ylabel="cosine to the model on SDPA", ylim=(lowest, 1.005))
    for axis in (seconds, near):
        axis.set(xlabel="tokens", xticks=lengths)
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=8)
    save_figure(figure, path)
