"""Words for settings: what heads do, in a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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


def spread(values: Iterable[float]) -> str:
    """Return one number where all are equal, or the least and the largest."""
    written = [f"{value:.3g}" for value in sorted(values)]
    return " to ".join(dict.fromkeys((written[0], written[-1])))


def way_of_jumping(config: JatConfig, learned: Tensor | None) -> str:  # [3, hops, H]
    """Return what jump heads go along, and how far; ``config`` is over them."""
    return ", ".join((*_graph(config), *_reach(config, learned)))


def _graph(config: JatConfig) -> Iterator[str]:
    """Yield what a jump goes along, where that is not the default."""
    yield config.graph.kind
    table = config.graph.threshold
    if isinstance(config.graph, PairGraph) and config.graph.vote_rate is not None:
        yield f"vote rate {config.graph.vote_rate:g}"
    else:
        row = table[0] if isinstance(table, tuple) else (table,)
        yield f"threshold {spread(row)}"
    if config.graph.key_selection != "all":
        yield f"{config.graph.key_selection} keys"
    if config.conv is not None:
        layer = config.conv if isinstance(config.conv, str) else config.conv["layer"]
        yield f"layer {layer}"
    if config.pattern is not None:
        yield f"within {config.pattern}"


def _reach(config: JatConfig, learned: Tensor | None) -> Iterator[str]:
    """Yield the strengths, or the hop weights where there are none."""
    if config.strength is None:
        groups = config.hop_weights
        weights = groups.values() if isinstance(groups, dict) else (groups,)
        yield "hop weights " + " or ".join(
            "(" + ", ".join(f"{weight:g}" for weight in own) + ")" for own in weights
        )
        return
    if learned is not None:
        yield "learned"
    for side, name in enumerate(SIDES):
        hops = [
            spread(learned[side, hop].tolist() if learned is not None else ())
            if triple[side] == LEARNED
            else f"{triple[side]:g}"
            for hop, triple in enumerate(config.strengths())
        ]
        yield f"{name} {', then '.join(hops)}"
