"""A real browser, which may ask for nothing but the file itself, and a page with everything."""

import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from jat_graph.inspection import Jump, SteppingStone, Token
from jat_graph.viewer import AtlasLabel, AtlasLayer, AtlasPoint, AtlasView, Page
from jat_graph.viewer.content import HeadContent, ParsedWords, TextContent, strongest_links

HOSTILE = (
    "<script>alert(1)</script>",
    "</script>",
    "\"quoted' &amp; <b>",
    "ספר",
    "👩‍👩‍👧",
    "x" * 10_000,
    "\u2028\x00\ud800",
    "{{script}}",
    "<!--",
)

Opened = Callable[[Page], Any]  # a page of playwright


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser of the system; nothing is downloaded."""
    path = shutil.which("chromium")
    if find_spec("playwright") is None or path is None:
        pytest.skip("no browser: the page was not looked at; install chromium and playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Iterator[Opened]:
    """Return a function that opens a page, which must ask for nothing and complain of nothing."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    file, asked, said = tmp_path / "page.html", [], []

    def answer(route: Any) -> None:
        own = route.request.url == file.as_uri()
        asked.extend([] if own else [route.request.url])
        route.continue_() if own else route.abort()

    def call(page: Page) -> Any:
        page.save(file)
        tab = context.new_page()
        tab.route("**/*", answer)
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        tab.goto(file.as_uri())
        return tab

    yield call
    context.close()
    assert asked == []
    assert said == []


def made_up_head(layer: int, head: int, length: int, jumps: bool = True) -> HeadContent:
    """Return a head of random attention, whose jumps go over two stones each."""
    torch.manual_seed(100 * layer + head)
    before, after = torch.randn(2, length, length).softmax(-1)
    if not jumps:
        return HeadContent(layer, head, {"attention": strongest_links(after, 4096)})
    graph = torch.rand(length, length).tril(-1).round(decimals=3)
    matrices = {"attention": after, "before": before, "difference": after - before, "graph": graph}
    tokens = [Token(n, "") for n in range(length)]
    stones = (
        SteppingStone(tokens[0], 1.5, 2.25, 1, 0.75),
        SteppingStone(tokens[-1], -1.25, -3.0, -1, 0.25),
    )
    found = tuple(
        Jump(tokens[i], tokens[k], *(float(m[i, k]) for m in (graph, before, after)), stones, 3)
        for i, k in graph.nonzero().tolist()[:5]
    )
    links = {kind: strongest_links(matrix, 4096) for kind, matrix in matrices.items()}
    return HeadContent(layer, head, links, found, num_jumps=17, note="A note.")


def made_up_atlas(points: int = 30, label: str = "bank") -> AtlasView:
    """Return a map of random places, in two layers."""
    torch.manual_seed(0)
    layers = [
        AtlasLayer(
            f"layer {layer}",
            [(float(x), float(y)) for x, y in torch.randn(points, 2)],
            [("river", "money", "")[n % 3] for n in range(points)],
            [AtlasLabel(0.0, 0.0, "rivers")],
        )
        for layer in (0, 5)
    ]
    spots = [AtlasPoint(label, f"sentence {n} of a {label}", (16, 20)) for n in range(points)]
    return AtlasView("bank in sentences", spots, layers, "Laid out at random.")


def made_up_page(tokens: tuple[str, ...] = HOSTILE, heads: int = 3) -> Page:
    """Return a page with everything: a text with a tree and jumps, one without, and a map."""
    number = len(tokens)
    chain = ParsedWords(
        tokens, ("NOUN",) * number, tuple(range(-1, number - 1)), ("obj",) * number,
        tuple(range(number)),
    )  # fmt: skip
    jumping = [made_up_head(layer, head, number) for layer in (0, 3) for head in range(heads)]
    plain = [made_up_head(0, head, 4, jumps=False) for head in range(2)]
    texts = (
        TextContent(" ".join(tokens), tokens, tuple(jumping), parse=chain, second=2),
        TextContent("four words", ("a", "b", "c", "d"), tuple(plain)),
    )
    return Page("</title><script>alert(2)</script>", texts, (made_up_atlas(),))
