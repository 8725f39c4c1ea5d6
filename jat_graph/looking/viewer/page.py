"""One HTML file with everything in it: data that are only read as text, a script, a style."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jat_graph.core.files import check_target, write_text
from jat_graph.core.numbers import check_integer
from jat_graph.looking.viewer.content import (
    AFTER,
    HeadContent,
    Links,
    TextContent,
    links_with_room,
    strongest_links,
)

# In this order they are one script.
SCRIPTS = ("basics.js", "heads.js", "jumps.js", "clusters.js", "trees.js", "page.js")

STEPS = 2**15 - 1  # of a value, each way: what 16 bits hold
DIGITS = 4  # of numbers that are written out
MOST_STONES = 8  # of a jump
FRAME_HEIGHT = 720  # pixels, in a notebook


@dataclass(frozen=True)
class Page:
    """A page that shows heads, jumps and trees; a notebook shows it by itself.

    Args:
        title: Its title.
        texts: Texts, and what heads do on them; one or more.
    """

    title: str
    texts: tuple[TextContent, ...]

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
        record = {"title": self.title, "texts": list(map(_text_record, self.texts))}
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
    return (files("jat_graph.looking.viewer") / "assets" / name).read_text(encoding="utf-8")


def _text_record(text: TextContent) -> dict[str, Any]:
    positions = list(text.positions or range(len(text.tokens)))
    rows = {position: row for row, position in enumerate(positions)}
    heads = []
    for head in text.heads:
        links = {kind: _links_record(own, len(rows)) for kind, own in head.links.items()}
        jumps = []  # tokens, numbers and strongest stones of each, and how many more there are
        for jump in head.jumps:
            shown = [stone for stone in jump.stones if stone.token.index in rows][:MOST_STONES]
            stones = [
                [rows[s.token.index], s.query_score, s.key_score, s.side, s.share] for s in shown
            ]
            more = len(jump.stones) - len(shown) + jump.hidden_stones
            ends = rows[jump.query.index], rows[jump.key.index]
            jumps.append([*ends, jump.weight, jump.before, jump.after, more, stones])
        own = {"jumps": jumps, "tree": head.tree and vars(head.tree)}
        heads.append(_short(vars(head) | own) | {"links": links})
    parse = text.parse and vars(text.parse)
    return vars(text) | {"positions": positions, "parse": parse, "heads": heads}


def _links_record(links: Links, tokens: int) -> dict[str, Any]:
    """Numbers of 16 bits, and how many there are of each row: a third of what digits would take."""
    scale = float(links.values.abs().max()) if len(links.values) else 1.0
    steps = (links.values.double() / scale * STEPS).round()
    counts = links.queries.bincount(minlength=tokens)
    columns = {"counts": (counts, "<u2"), "keys": (links.keys, "<u2"), "values": (steps, "<i2")}
    packed = {
        name: base64.b64encode(numbers.numpy().astype(np.dtype(kind)).tobytes()).decode()
        for name, (numbers, kind) in columns.items()
    }
    shares = {"left_out": _short(links.left_out), "hidden": _short(links.hidden)}
    return packed | shares | {"scale": scale}


def _short(value: Any) -> Any:
    """Write numbers with some digits, also those in lists and dicts."""
    if isinstance(value, dict):
        return {name: _short(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_short(part) for part in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def head_view(
    attention: Sequence[Tensor],
    tokens: Sequence[str],
    sentence_b_start: int | None = None,
    *,
    title: str = "Attention",
) -> Page:
    """Return a page of all heads' attention, from tensors that are there already.

    Args:
        attention: Attention probabilities of each layer, as a model of transformers gives them with
            ``output_attentions=True``.
        tokens: What each token says.
        sentence_b_start: First token of a second sentence, set apart by a line. (default: None)
        title: Title of the page. (default: ``"Attention"``)

    Returns:
        The page; a notebook shows it, and ``save`` writes it.

    Shapes:
        - ``attention``: ``[1, H, L, L]`` or ``[H, L, L]`` each

    Raises:
        ValueError: If there is no layer, tensors do not fit the tokens, hold more than one text or
            what is not finite, or the page would be too large.

    Reference:
        The arguments are those of ``bertviz.head_view``: Vig, *A Multiscale Visualization of
        Attention in the Transformer Model*, 2019.
    """
    listed = isinstance(tokens, Sequence) and not isinstance(tokens, str)
    if not listed or not tokens or not all(isinstance(token, str) for token in tokens):
        raise ValueError(f"tokens must be one or more strings in a list, got {tokens!r:.60}")
    words = tuple(tokens)
    layers = [_check_layer(n, layer, len(words)) for n, layer in enumerate(attention)]
    if not layers:
        raise ValueError("attention must have at least one layer, got none")
    if sentence_b_start is not None:
        check_integer("sentence_b_start", sentence_b_start, least=1, below=len(words))
    number = sum(len(layer) for layer in layers)
    most = links_with_room(number * len(words), number)
    heads = tuple(
        HeadContent(n, head, {AFTER: strongest_links(matrix, most)})
        for n, layer in enumerate(layers)
        for head, matrix in enumerate(layer)
    )
    return Page(title, (TextContent(" ".join(words), words, heads, second=sentence_b_start),))


def _check_layer(number: int, layer: Any, length: int) -> Tensor:  # [H, L, L]
    name = f"attention[{number}]"
    got = list(getattr(layer, "shape", [type(layer).__name__]))
    if len(got) not in (3, 4) or got[-2:] != [length] * 2 or (len(got) == 4 and got[0] != 1):
        wanted = f"of one text, [1, H, {length}, {length}] for its {length} tokens"
        raise ValueError(f"{name} must be {wanted}, got {got}")
    if not bool(torch.isfinite(layer).all()):
        raise ValueError(f"{name} must be finite, got values that are not")
    heads: Tensor = layer.detach().cpu().float().reshape(-1, length, length)
    return heads
