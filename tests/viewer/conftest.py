"""A real browser, which may ask for nothing but the file itself, and a page with everything."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jat_graph.inspection import Jump, SteppingStone, Token
from jat_graph.viewer import Page, head_view

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


def links_of(matrix: torch.Tensor) -> Any:
    """Return the links that a page has of one matrix."""
    (head,) = head_view([matrix[None]], ["token"] * len(matrix)).texts[0].heads
    return head.links["attention"]


def made_up_text(
    tokens: tuple[str, ...], places: list[tuple[int, int]], jumps: bool = True
) -> Any:  # what a page has of a text
    """Return a text with heads of random attention, whose jumps go over two stones each."""
    length = len(tokens)
    (text,) = head_view([torch.ones(1, length, length)], tokens).texts
    named = [Token(n, "") for n in range(length)]
    stones = (
        SteppingStone(named[0], 1.5, 2.25, 1, 0.75),
        SteppingStone(named[-1], -1.25, -3.0, -1, 0.25),
    )
    heads = []
    for layer, head in places:
        torch.manual_seed(100 * layer + head)
        before, after = torch.randn(2, length, length).softmax(-1)
        matrices, more = {"attention": after}, {}
        if jumps:
            graph = torch.rand(length, length).tril(-1).round(decimals=3)
            matrices |= {"before": before, "difference": after - before, "graph": graph}
            found = []
            for i, k in graph.nonzero().tolist()[:5]:
                numbers = (float(matrix[i, k]) for matrix in (graph, before, after))
                found.append(Jump(named[i], named[k], *numbers, stones, 3))
            more = {"jumps": tuple(found), "num_jumps": 17, "note": "A note."}
        links = {kind: links_of(matrix) for kind, matrix in matrices.items()}
        heads.append(replace(text.heads[0], layer=layer, head=head, links=links, **more))
    return replace(text, heads=tuple(heads))


def clustered_page(tokens: tuple[str, ...] = HOSTILE) -> Page:
    """Return a page of one head: all tokens read one cluster, and another one stands for its key.

    The first one holds two tokens, and one that is not shown.
    """
    text = made_up_text(tokens, [(2, 9)])
    (head,) = text.heads
    number = len(tokens)
    tree = SimpleNamespace(
        members=((0, 2), (3,)),
        sizes=(3, 1),
        exact=tuple(1 / (n + 1) for n in range(number)),
        read=(((0, 0.25),),) * number,
        means=(((1, 0.0625),),) * number,
    )
    links = {kind: head.links[kind] for kind in ("attention", "before", "difference")}
    own = replace(head, links=links, jumps=(), num_jumps=0, tree=tree)
    return Page("Clusters", (replace(text, heads=(own,)),))


def made_up_page(tokens: tuple[str, ...] = HOSTILE, heads: int = 3) -> Page:
    """Return a page with everything: a text with a tree and jumps, and one without."""
    number = len(tokens)
    chain = SimpleNamespace(
        words=tokens,
        tags=("NOUN",) * number,
        heads=tuple(range(-1, number - 1)),
        relations=("obj",) * number,
        tokens=tuple(range(number)),
    )
    plain = made_up_text(("a", "b", "c", "d"), [(0, 0), (0, 1)], jumps=False)
    jumping = made_up_text(tokens, [(layer, head) for layer in (0, 3) for head in range(heads)])
    texts = (replace(jumping, parse=chain, second=2), replace(plain, title="four words"))
    return Page("</title><script>alert(2)</script>", texts)
