"""The file as text: nothing in it ends a script or begins a tag, and numbers are what they were."""

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jat_graph.viewer import Page, head_view
from tests.viewer.conftest import HOSTILE, clustered_page, links_of, made_up_page


class Tags(HTMLParser):
    """The tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)


def part_of(page: Page, start: str, end: str) -> str:
    """Return what stands in the page's only part between a start and an end."""
    (found,) = re.findall(f"{start}(.*?){end}", page.html, re.DOTALL)
    return str(found)


def data_of(page: Page) -> Any:
    return json.loads(part_of(page, 'id="data">', "</script>"))


def unpacked(links: dict[str, Any]) -> tuple[list[int], list[int], np.ndarray]:
    counts, keys = (
        np.frombuffer(base64.b64decode(links[name]), "<u2") for name in ("counts", "keys")
    )
    values = np.frombuffer(base64.b64decode(links["values"]), "<i2") * links["scale"] / (2**15 - 1)
    return np.repeat(np.arange(len(counts)), counts).tolist(), keys.tolist(), values


def test_hostile_tokens_are_text() -> None:
    page, tags = made_up_page(), Tags()
    tags.feed(page.html)
    assert tags.names.count("script") == 2
    assert html.unescape(part_of(page, "<title>", "</title>")) == page.title
    assert data_of(page)["texts"][0]["tokens"] == list(HOSTILE)
    data = part_of(page, 'id="data">', "</script>")
    assert data.isascii()
    assert not set("<>&") & set(data)


def test_clusters_are_in_the_file_as_numbers() -> None:
    page = clustered_page()
    (record,) = data_of(page)["texts"]
    assert record["tokens"] == list(HOSTILE)
    (head,) = record["heads"]
    assert list(head["links"]) == ["attention", "before", "difference"]
    assert head["tree"] == {
        "members": [[0, 2], [3]],
        "sizes": [3, 1],
        "exact": [1.0, 0.5, 0.3333, 0.25, 0.2, 0.1667, 0.1429, 0.125, 0.1111],
        "read": [[[0, 0.25]]] * 9,
        "means": [[[1, 0.0625]]] * 9,
    }
    assert all(head["tree"] is None for head in data_of(made_up_page())["texts"][0]["heads"])


def test_the_page_runs_its_own_script_alone_and_loads_nothing() -> None:
    page = made_up_page()
    policy = part_of(page, 'Content-Security-Policy" content="', '"')
    assert policy.startswith("default-src 'none';")
    script = part_of(page, "<script>", "</script>")
    for kind, text in (("script", script), ("style", part_of(page, "<style>", "</style>"))):
        own = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{own}'" in policy
    assert "unsafe" not in policy
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "fetch("):
        assert word not in script
    assert not re.search(r"(src|href)=|url\(|@import", page.html.split('id="data"')[0])
    assert re.findall(r"https?://[^\"]*", script) == ["http://www.w3.org/2000/svg"]


def test_links_come_back_as_they_were() -> None:
    page = made_up_page()
    for text, record in zip(page.texts, data_of(page)["texts"], strict=True):
        for head, own in zip(text.heads, record["heads"], strict=True):
            assert own["links"].keys() == head.links.keys()
            for kind, links in head.links.items():
                rows, keys, values = unpacked(own["links"][kind])
                assert rows == links.queries.tolist()
                assert keys == links.keys.tolist()
                bound = float(links.values.abs().max()) / 2**15
                np.testing.assert_allclose(values, links.values.numpy(), rtol=0, atol=bound)


def test_a_notebook_gets_a_frame_with_the_page() -> None:
    page = made_up_page()
    shown = page._repr_html_()
    (source,) = re.findall(r'srcdoc="([^"]*)"', shown)
    assert html.unescape(source) == page.html
    assert 'sandbox="allow-scripts' in shown
    assert "allow-same-origin" not in shown


def test_the_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    page = made_up_page()
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html
    with pytest.raises(FileNotFoundError, match="must be a file in an existing folder"):
        page.save(tmp_path / "nowhere" / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


TENSOR = torch.full((1, 2, 3, 3), 1 / 3)


@pytest.mark.parametrize(
    ("attention", "tokens", "start", "wanted"),
    [
        ([], ["a", "b", "c"], None, "attention must"),
        ([TENSOR], [], None, "tokens must"),
        ([TENSOR], "abc", None, "tokens must"),
        ([TENSOR], ["a", "b"], None, r"attention\[0\] must be of one text, \[1, H, 2, 2\]"),
        ([TENSOR, None], ["a", "b", "c"], None, r"attention\[1\] must .* got \['NoneType'\]"),
        ([TENSOR.repeat(2, 1, 1, 1)], ["a", "b", "c"], None, r"got \[2, 2, 3, 3\]"),
        ([TENSOR * torch.nan], ["a", "b", "c"], None, "must be finite"),
        ([TENSOR], ["a", "b", "c"], 3, "sentence_b_start must"),
        ([TENSOR], ["a", "b", "c"], 0, "sentence_b_start must"),
    ],
)
def test_attention_that_does_not_fit_is_refused(
    attention: Any, tokens: Any, start: int | None, wanted: str
) -> None:
    with pytest.raises(ValueError, match=wanted):
        head_view(attention, tokens, start)


# --- links ---------------------------------------------------------------------------------------


def slow_links(matrix: torch.Tensor, most: int) -> tuple[list[tuple[int, int]], float]:
    """Return what is kept, and the share of what is too weak."""
    sizes = {
        (i, k): abs(value) for i, row in enumerate(matrix.tolist()) for k, value in enumerate(row)
    }
    pairs = sorted((pair for pair in sizes if sizes[pair]), key=lambda pair: -sizes[pair])
    first = {pair[0]: pair for pair in reversed(pairs)}  # the strongest of each row
    rest = [pair for pair in pairs if pair != first[pair[0]]]
    kept = {*first.values(), *rest[: most - len(first)]}
    weak = sum(sizes[pair] for pair in pairs if pair not in kept)
    return sorted(kept), weak / (sum(sizes.values()) or 1.0)


@pytest.mark.parametrize("length", [1, 7, 100])  # 4096 links are shown of a matrix, at most
@pytest.mark.parametrize("kind", ["attention", "uneven", "difference", "causal", "nothing"])
def test_the_strongest_of_each_row_and_of_all_are_kept(kind: str, length: int) -> None:
    torch.manual_seed(length)
    one, other = torch.randn(2, length, length).softmax(-1)
    matrix = {
        "attention": one,
        "uneven": one * torch.linspace(1e-3, 1, length)[:, None],  # rows that are weak throughout
        "difference": one - other,
        "causal": one.tril(),
        "nothing": 0 * one,
    }[kind]
    links = links_of(matrix)
    kept, weak = slow_links(matrix, 4096)
    pairs = list(zip(links.queries.tolist(), links.keys.tolist(), strict=True))
    assert pairs == kept
    assert links.values.tolist() == [float(matrix[pair]) for pair in pairs]
    assert links.left_out == pytest.approx(weak, abs=1e-6)
    assert links.hidden == 0


@pytest.mark.parametrize(("heads", "least", "most"), [(600, 4096, 4096), (1000, 70, 4095)])
def test_what_fits_is_kept(heads: int, least: int, most: int) -> None:
    page = head_view([torch.rand(70, 70).expand(heads, 70, 70)], ["token"] * 70)
    (number,) = {len(head.links["attention"].values) for head in page.texts[0].heads}
    assert least <= number <= most
    assert len(page.html) < 20_000_000


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="below 20 MB"):
        head_view([torch.ones(84_000, 1, 1)], ["token"])
