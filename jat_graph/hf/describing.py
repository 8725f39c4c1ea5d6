"""Words for settings: what heads do, in a line."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from jat_graph.attention.heads import neighbours
from jat_graph.config import JatConfig, PairGraph
from jat_graph.config_fields import LEARNED

SIDES = ("queries", "keys", "values")


def numbers(indices: Iterable[int]) -> str:
    """Return indices in rising order as few ranges: ``0-3, 6``."""
    runs = neighbours(tuple(indices))
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def choice(words: Iterable[str]) -> str:
    """Return what may be chosen: ``one, another or a third``."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def way_of_jumping(config: JatConfig, learned: Tensor | None) -> str:  # [3, hops, H]
    """Return what jump heads go along, and how far; ``config`` is over them."""
    graph = config.graph
    said = [graph.kind]
    if isinstance(graph, PairGraph) and graph.vote_rate is not None:
        said.append(f"vote rate {graph.vote_rate:g}")
    else:
        row = graph.threshold[0] if isinstance(graph.threshold, tuple) else (graph.threshold,)
        said.append(f"threshold {_spread(row)}")
    if graph.key_selection != "all":
        said.append(f"{graph.key_selection} keys")
    if config.conv is not None:
        said.append(
            f"layer {config.conv if isinstance(config.conv, str) else config.conv['layer']}"
        )
    if config.pattern is not None:
        said.append(f"within {config.pattern}")
    if config.strength is None:
        groups = config.hop_weights
        weights = groups.values() if isinstance(groups, dict) else (groups,)
        said.append("hop weights " + " or ".join(f"({', '.join(map(_short, w))})" for w in weights))
    elif learned is not None:
        said.append("learned")
    for side, name in enumerate(SIDES if config.strength is not None else ()):
        hops = [
            _spread(learned[side, hop].tolist())
            if learned is not None and triple[side] == LEARNED
            else _short(triple[side])
            for hop, triple in enumerate(config.strengths())
        ]
        said.append(f"{name} {', then '.join(hops)}")
    return ", ".join(said)


def _short(value: float | str) -> str:
    return f"{value:g}"


def _spread(values: Iterable[float]) -> str:
    """Return one number where all are equal, or the least and the largest."""
    written = [f"{value:.3g}" for value in sorted(values)]
    return " to ".join(dict.fromkeys((written[0], written[-1])))
