"""What a page of the viewer holds: plain data, that other parts of the library fill in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from jat_graph.inspection.reports import Jump

# Of a head: what it gives, what it would without jumps, what these change, what they go along.
AFTER, BEFORE, DIFFERENCE, GRAPH = KINDS = ("attention", "before", "difference", "graph")


@dataclass(frozen=True)
class AtlasPoint:
    """One use of a word in a context.

    Args:
        label: The word as it stands there.
        sentence: The sentence that it stands in, as one text.
        span: Where in the sentence the word begins and ends, in characters, to be marked; None
            where that is not known. (default: None)
    """

    label: str
    sentence: str
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class AtlasLabel:
    """Words written on the map of a layer, as beside a cluster.

    Args:
        x, y: Where to, in the units of the map; y goes up.
        text: The words.
    """

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class AtlasLayer:
    """The map of one layer.

    Args:
        name: What the slider calls it, as ``"layer 3"``.
        positions: Where each point lies, (x, y) in any units; x goes right, y up.
        groups: What colours each point and gives it its shape: a part of speech, a sense, a
            cluster; ``""`` where it is not known. (default: none is known)
        labels: Words on the map. (default: none)
        caption: What is to be said of this layer alone, one line. (default: nothing)
    """

    name: str
    positions: Sequence[tuple[float, float]]
    groups: Sequence[str] = ()
    labels: Sequence[AtlasLabel] = ()
    caption: str = ""


@dataclass(frozen=True)
class AtlasView:
    """A map of the uses of a word, layer by layer.

    Args:
        title: What the map is of.
        points: The uses of the word; each layer has them in this order.
        layers: A map of each layer.
        caption: How it was made, a few sentences. (default: nothing)

    Raises:
        ValueError: If there is no layer, or one has another number of positions or groups than
            there are points, or a position that is not finite.
    """

    title: str
    points: Sequence[AtlasPoint]
    layers: Sequence[AtlasLayer]
    caption: str = ""

    def __post_init__(self) -> None:
        """Refuse layers that do not fit the points."""
        if not self.layers:
            raise ValueError("layers must be at least one, got none")
        number = len(self.points)
        for layer in self.layers:
            if len(layer.positions) != number or len(layer.groups) not in (0, number):
                raise ValueError(
                    f"{layer.name!r} must have a position, and a group or none, for {number} "
                    f"points, got {len(layer.positions)} and {len(layer.groups)}"
                )
            for position in layer.positions:
                if len(position) != 2 or not all(map(math.isfinite, position)):
                    raise ValueError(
                        f"positions of {layer.name!r} must be finite (x, y), got {position}"
                    )


@dataclass(frozen=True)
class Links:
    """The strongest entries of a matrix of a head, in the order of the text."""

    queries: Tensor  # the tokens i that look, [E]
    keys: Tensor  # the tokens k looked at, [E]
    values: Tensor  # what the matrix has there, [E]
    left_out: float  # share of the sum of all magnitudes, between shown tokens, but too weak
    hidden: float = 0.0  # share of it that goes to tokens that are not shown


@dataclass(frozen=True)
class HeadContent:
    """One head on one text."""

    layer: int
    head: int
    links: dict[str, Links]  # by kind: AFTER, and all KINDS of a head that jumps
    jumps: tuple[Jump, ...] = ()  # edges of its graph, strongest gains first
    num_jumps: int = 0  # how many edges there are
    note: str = ""  # what there is to say of the head, one line


@dataclass(frozen=True)
class ParsedWords:
    """The dependency tree of a text, over its words."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...]  # the position of each word's head, from 0; -1 for the root
    relations: tuple[str, ...]
    tokens: tuple[int, ...]  # the word of each token of the text; -1 for those of no word


@dataclass(frozen=True)
class TextContent:
    """One text and what heads do on it."""

    title: str  # what the list of texts calls it
    tokens: tuple[str, ...]  # that are shown
    heads: tuple[HeadContent, ...]  # layer by layer
    positions: tuple[int, ...] | None = None  # of each token among the model's, else 0, 1, …
    parse: ParsedWords | None = None
    second: int | None = None  # the first token of a second sentence, which a line sets apart
