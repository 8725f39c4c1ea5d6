"""One HTML file with everything in it: data that are only read as text, a script, a style."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from jat_graph.files import check_target, write_text
from jat_graph.inspection.reports import Jump
from jat_graph.viewer.content import AtlasView, Links, TextContent

# In this order they are one script.
SCRIPTS = ("basics.js", "heads.js", "jumps.js", "trees.js", "maps.js", "page.js")

STEPS = 2**15 - 1  # of a value, each way: what 16 bits hold
DIGITS = 4  # of numbers that are written out
MOST_STONES = 8  # of a jump
FRAME_HEIGHT = 720  # pixels, in a notebook


@dataclass(frozen=True)
class Page:
    """A page that shows heads, jumps, trees and maps; a notebook shows it by itself.

    Args:
        title: Its title.
        texts: Texts, and what heads do on them. (default: none)
        atlases: Maps. (default: none)
    """

    title: str
    texts: tuple[TextContent, ...] = ()
    atlases: tuple[AtlasView, ...] = ()

    @property
    def html(self) -> str:
        """The file as text: it needs nothing else, no network either."""
        parts = {
            "title": html.escape(self.title),
            "script": "\n".join(map(_asset, SCRIPTS)),
            "style": _asset("page.css"),
        }
        for name in ("script", "style"):  # the page's own policy knows them, and runs no others
            digest = hashlib.sha256(parts[name].encode()).digest()
            parts[f"{name}_hash"] = f"sha256-{base64.b64encode(digest).decode()}"
        record = {
            "title": self.title,
            "texts": list(map(_text_record, self.texts)),
            "atlases": list(map(_atlas_record, self.atlases)),
        }
        data = json.dumps(record, separators=(",", ":"), allow_nan=False)
        for letter in "<>&":  # none that could end a script or begin a tag
            data = data.replace(letter, f"\\u{ord(letter):04x}")
        parts["data"] = data
        # In one pass: what is put in is not looked at again.
        return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))

    def save(self, path: str | Path) -> None:
        """Write the file.

        Args:
            path: Where to, as ``page.html``.
        """
        check_target(Path(path))
        write_text(path, self.html)

    def _repr_html_(self) -> str:
        """A frame with the page, apart from the notebook around it."""
        return (
            f'<iframe title="{html.escape(self.title)}" width="100%" '
            f'height="{FRAME_HEIGHT}" style="border:0" '
            'sandbox="allow-scripts allow-downloads allow-modals" '
            f'srcdoc="{html.escape(self.html)}"></iframe>'
        )


@cache
def _asset(name: str) -> str:
    return (files("jat_graph.viewer") / "assets" / name).read_text(encoding="utf-8")


def _text_record(text: TextContent) -> dict[str, Any]:
    positions = list(text.positions or range(len(text.tokens)))
    rows = {position: row for row, position in enumerate(positions)}
    heads = []
    for head in text.heads:
        links = {kind: _links_record(own, len(rows)) for kind, own in head.links.items()}
        jumps = [_jump_record(jump, rows) for jump in head.jumps]
        heads.append(vars(head) | {"links": links, "jumps": jumps})
    parse = None if text.parse is None else vars(text.parse)
    return vars(text) | {"positions": positions, "parse": parse, "heads": heads}


def _links_record(links: Links, tokens: int) -> dict[str, Any]:
    """Numbers of 16 bits, and how many there are of each row: a third of what digits would take."""
    scale = float(links.values.abs().max()) if len(links.values) else 1.0
    steps = (links.values.double() / scale * STEPS).round()
    columns = {
        "counts": (links.queries.bincount(minlength=tokens), "<u2"),
        "keys": (links.keys, "<u2"),
        "values": (steps, "<i2"),
    }
    packed = {
        name: base64.b64encode(numbers.numpy().astype(np.dtype(kind)).tobytes()).decode()
        for name, (numbers, kind) in columns.items()
    }
    shares = {"left_out": _short(links.left_out), "hidden": _short(links.hidden)}
    return packed | shares | {"scale": scale}


def _jump_record(jump: Jump, rows: Mapping[int, int]) -> list[Any]:
    """The tokens, numbers and strongest stones of a jump; how many more there are."""
    shown = [stone for stone in jump.stones if stone.token.index in rows][:MOST_STONES]
    stones = [[rows[s.token.index], s.query_score, s.key_score, s.side, s.share] for s in shown]
    ends, more = (rows[jump.query.index], rows[jump.key.index]), len(jump.stones) - len(shown)
    numbers = jump.weight, jump.before, jump.after, more + jump.hidden_stones
    return [*ends, *_short(numbers), _short(stones)]


def _atlas_record(atlas: AtlasView) -> dict[str, Any]:
    layers = [
        vars(layer)
        | {
            "positions": [_short((float(x), float(y))) for x, y in layer.positions],
            "groups": list(layer.groups),
            "labels": [_short((float(own.x), float(own.y), own.text)) for own in layer.labels],
        }
        for layer in atlas.layers
    ]
    points = [[p.label, p.sentence, *(p.span or (0, 0))] for p in atlas.points]
    return vars(atlas) | {"points": points, "layers": layers}


def _short(value: Any) -> Any:
    """Write numbers with some digits, also those in lists."""
    if isinstance(value, list | tuple):
        return [_short(part) for part in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
