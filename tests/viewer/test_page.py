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

from jat_graph.viewer import AtlasLayer, AtlasPoint, AtlasView, Page, head_view, map_view
from tests.viewer.conftest import HOSTILE, clustered_page, made_up_atlas, made_up_page


class Parts(HTMLParser):
    """The tags of a page, and what stands in scripts, styles and the title."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.policy = self.open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open = tag
        self.texts.setdefault(tag, []).append("")
        given = dict(attrs)
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.open = ""


def parts_of(page: Page) -> Parts:
    parser = Parts()
    parser.feed(page.html)
    parser.close()
    return parser


def data_of(page: Page) -> Any:
    (data,) = re.findall(r'id="data">(.*?)</script>', page.html, re.DOTALL)
    return json.loads(data)


def unpacked(links: dict[str, Any]) -> tuple[list[int], list[int], np.ndarray]:
    counts, keys = (
        np.frombuffer(base64.b64decode(links[name]), "<u2") for name in ("counts", "keys")
    )
    values = np.frombuffer(base64.b64decode(links["values"]), "<i2") * links["scale"] / (2**15 - 1)
    return np.repeat(np.arange(len(counts)), counts).tolist(), keys.tolist(), values


def test_hostile_tokens_are_text() -> None:
    page = made_up_page()
    parser = parts_of(page)
    assert parser.tags.count("script") == 2
    assert parser.tags.count("title") == 1
    assert parser.texts["title"][0] == page.title
    assert data_of(page)["texts"][0]["tokens"] == list(HOSTILE)
    (data,) = re.findall(r'id="data">(.*?)</script>', page.html, re.DOTALL)
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
    parser = parts_of(page)
    policy = parser.policy
    assert policy.startswith("default-src 'none';")
    for kind, text in (("script", parser.texts["script"][1]), ("style", parser.texts["style"][0])):
        own = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{own}'" in policy
    assert "unsafe" not in policy
    script = parser.texts["script"][1]
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


def test_an_atlas_alone_is_a_page() -> None:
    record = data_of(map_view(made_up_atlas(), title="bank"))
    with pytest.raises(ValueError, match="atlases must be one or more, got none"):
        map_view([])
    assert record["title"] == "bank"
    assert record["texts"] == []
    (atlas,) = record["atlases"]
    assert atlas["points"][3] == ["bank", "sentence 3 of a bank", 16, 20]
    assert [layer["name"] for layer in atlas["layers"]] == ["layer 0", "layer 5"]
    assert AtlasPoint("bank", "a bank").span is None


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


POINTS = (AtlasPoint("bank", "the bank of the river"), AtlasPoint("bank", "a bank lends"))
POSITIONS = ((0.0, 1.0), (2.0, 3.0))


@pytest.mark.parametrize(
    ("layers", "wanted"),
    [
        ((), "layers must"),
        ((AtlasLayer("layer 0", POSITIONS[:1]),), "'layer 0' must"),
        ((AtlasLayer("layer 0", POSITIONS, ("NOUN",)),), "'layer 0' must"),
        (
            (AtlasLayer("layer 0", (POSITIONS[0], (0.0, float("nan")))),),
            "positions of 'layer 0' must",
        ),
        ((AtlasLayer("layer 0", (POSITIONS[0], (0.0,))),), "positions of"),  # type: ignore[arg-type]
    ],
)
def test_layers_that_do_not_fit_are_refused(layers: tuple[AtlasLayer, ...], wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        AtlasView("bank", POINTS, layers)
