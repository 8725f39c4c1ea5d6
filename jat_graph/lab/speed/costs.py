"""Measure the prices of the cost model behind ``backend="auto"``."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.benchmark import Timer

from jat_graph.files import read_object, write_text
from jat_graph.kernels import StoneScores, count_votes, rank_tokens, share_out, sum_joined
from jat_graph.lab.machine import describe_machine
from jat_graph.lab.speed.inputs import HEAD_DIM, NUM_HEADS, THRESHOLD, draw_heads, number_of_keys
from jat_graph.voting.links import LinkRule
from jat_graph.voting.rule import VoteRule

WIDTH = 2 * HEAD_DIM  # queries and keys at once
LENGTHS = (512, 1024, 2048)
# A price is the middle one of the lengths', and each of those the middle of so many samples.
SAMPLES = 7


def refit_prices(device: torch.device, path: Path | None = None) -> dict[str, float]:
    """Measure the prices on this machine and write them into the table.

    Args:
        device: Where to measure.
        path: The table. (default: None, the one in the package, which ``backend="auto"`` reads)

    Returns:
        Nanoseconds by name, as :func:`jat_graph.operators.choice.predict` takes them.

    Raises:
        OSError: If the table cannot be read or written.
        ValueError: If the file holds something else.
    """
    if path is None:
        path = Path(str(files("jat_graph.operators").joinpath("costs.json")))
    table = _read_table(path) if path.exists() else {}
    prices = measure_prices(device)
    machine = describe_machine(device)
    where = f"{machine.get('gpu', machine['processor'])}, {machine['threads']} threads"
    rounded = {name: float(f"{price:.3g}") for name, price in prices.items()}
    table[device.type] = {"machine": where, "nanoseconds": rounded}
    write_text(path, json.dumps(table, indent=2) + "\n")
    return rounded


def _read_table(path: Path) -> dict[str, Any]:
    table = read_object(path, "the table of prices")
    if not all(isinstance(entry, dict) and "nanoseconds" in entry for entry in table.values()):
        raise ValueError(f"{path} must be a table of prices by device, got other JSON")
    return table


def measure_prices(
    device: torch.device, lengths: tuple[int, ...] = LENGTHS, samples: int = SAMPLES
) -> dict[str, float]:
    """Time each inner loop over several lengths."""
    found: dict[str, list[float]] = {}
    for length in lengths:
        for name, (run, units) in _loops(length, device).items():
            found.setdefault(name, []).append(_nanoseconds(run, samples) / units)
    return {name: statistics.median(prices) for name, prices in found.items()}


def _loops(length: int, device: torch.device) -> dict[str, tuple[Callable[[], object], float]]:
    """Each loop with its units of work."""
    heads = draw_heads(length, NUM_HEADS, device=device)
    scores = heads.key_scores(number_of_keys(length))
    rule = VoteRule(torch.full((1, 1), THRESHOLD, device=device))
    features = torch.cat([heads.query, heads.key], dim=-1)
    ranking = rank_tokens(*rule.settle(scores))
    matrix = count_votes(*rule.settle(scores))
    all_scores = heads.key_scores()
    pairs, tokens = NUM_HEADS * length**2, scores.numel()
    x, links = features.flatten(0, 1), LinkRule(features.new_ones(1, 1, 1, 1))
    # Every token is on the stone of one side, or none is on any.
    everyone, nobody = (torch.full((NUM_HEADS,), t, device=device) for t in (0.0, torch.inf))
    return {
        "vote": (lambda: count_votes(*rule.settle(all_scores)), pairs * length / 2),
        "entry": (lambda: _finish(matrix), pairs),
        "multiply": (lambda: matrix @ features, pairs * WIDTH),
        "rank": (lambda: rank_tokens(*rule.settle(scores)), tokens),
        "row": (lambda: sum_joined(features, ranking), tokens * WIDTH),
        "incidence": (lambda: links.links(all_scores, None).sum(-1), 2 * pairs),
        "search": (lambda: _walk(heads.key_scores(), nobody, x), 2 * pairs),
        "link": (lambda: _walk(all_scores, everyone, x), 2 * pairs * WIDTH),
    }


def _walk(scores: Tensor, threshold: Tensor, x: Tensor) -> Tensor:
    """Walk over the stones of both sides, as a sparse B does."""
    columns = scores.mT.flatten(0, 1)
    total = torch.zeros_like(x)
    return share_out(
        StoneScores(columns, threshold, 2, False), x, total, total.new_zeros(total.shape[:2])
    )


def _finish(matrix: Tensor) -> Tensor:
    """Do once what a dense A costs beside its votes: new memory, the shares, the degrees."""
    return matrix.clone().div_(2.0).sum(-1)


def _nanoseconds(run: Callable[[], object], samples: int) -> float:
    timer = Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
    return 1e9 * statistics.median(timer.timeit(1).median for _ in range(samples))
