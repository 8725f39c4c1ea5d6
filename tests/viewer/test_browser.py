"""The page in a real browser: it draws, clicks, exports, and can be used by the keyboard alone."""

import re
import time
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jat_graph.viewer import Page
from tests.viewer.conftest import HOSTILE, Opened, clustered_page, made_up_page

pytestmark = pytest.mark.browser

SVG = "{http://www.w3.org/2000/svg}"
WORDS = ("the", "book", "costs", "more")

# Contrast of each text that is shown with what lies behind it, as WCAG 2 counts it.
CONTRASTS = """() => {
  const light = (rgb) => { const [r, g, b] = rgb.map((v) => { v /= 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const behind = (node) => { for (; node; node = node.parentElement) {
    const colour = parse(getComputedStyle(node).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour.slice(0, 3); }
    return [255, 255, 255]; };
  return Array.from(document.querySelectorAll(
    "h1, h2, h3, p, button, label, output, td, th, span, select, text")).map((node) => {
    const looks = getComputedStyle(node);
    const own = parse(node.tagName === "text" ? looks.fill : looks.color).slice(0, 3);
    const [a, b] = [light(own), light(behind(node))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.textContent.slice(0, 40)]; });
}"""


def go(tab: Any, view: str) -> None:
    tab.get_by_role("button", name=view, exact=True).click()
    assert tab.locator("#views [aria-current=true]").inner_text() == view


@pytest.mark.slow
def test_all_heads_are_drawn_and_one_opens(opened: Opened) -> None:
    tab = opened(made_up_page(WORDS))
    assert tab.title() == "</title><script>alert(2)</script>"
    assert tab.locator("h1").inner_text() == "</title><script>alert(2)</script>"
    heads = tab.locator("#picture g[role=button]")
    assert heads.count() == 6
    assert all(heads.nth(n).locator("path").count() > 0 for n in range(6))
    heads.nth(4).click()
    assert tab.locator("#heading").inner_text() == "Layer 3, head 1: attention"
    assert tab.locator("#picture path.link").count() == 16
    assert tab.locator("#picture svg").count() == 2
    assert "16 links are in the file, all there are" in tab.locator("#caption").inner_text()


def changing(page: Page, changes: tuple[float, ...]) -> Page:
    """Return the page with so much attention moved by the heads of its first text."""
    first, *others = page.texts
    heads = tuple(replace(h, change=c) for h, c in zip(first.heads, changes, strict=True))
    return replace(page, texts=(replace(first, heads=heads), *others))


@pytest.mark.slow
def test_it_opens_at_the_head_that_changes_most_and_lists_the_others(opened: Opened) -> None:
    tab = opened(changing(made_up_page(WORDS), (0.1, 0.02, 0.3, 0.25, 0.0, 0.2)))
    assert tab.locator("#heading").inner_text() == "Layer 0, head 2: what the jump changes"
    go(tab, "All heads")
    listed = [entry.split("\n") for entry in tab.locator("#details li").all_inner_texts()]
    assert [own[0] for own in listed] == [
        "layer 0, head 2", "layer 3, head 0", "layer 3, head 2",
        "layer 0, head 0", "layer 0, head 1",
    ]  # fmt: skip
    assert listed[0][1] == "30 %"
    tab.locator("#details li button").nth(1).click()
    assert tab.locator("#heading").inner_text() == "Layer 3, head 0: what the jump changes"
    still = opened(changing(made_up_page(WORDS), (0.0,) * 6))  # as of strengths that are 0
    assert still.locator("#heading").inner_text() == "All heads: attention"


def test_full_colour_of_all_heads_is_of_what_is_shown(opened: Opened) -> None:
    page = made_up_page(WORDS)
    tab = opened(page)
    for kind, name in (("attention", "attention"), ("difference", "what the jump changes")):
        tab.get_by_label("Shows").select_option(kind)
        found = [own.links[kind].values.abs() for own in page.texts[0].heads]
        sizes = sorted(float(value) for own in found for value in own if value)
        full = sizes[int(0.99 * (len(sizes) - 1))]
        said = re.search(
            r"Full colour is ±?([\d.]+) % or more", tab.locator("#caption").inner_text()
        )
        assert said is not None, name
        assert float(said[1]) == pytest.approx(100 * full, rel=0.05)


def test_a_token_shows_its_links_alone_with_numbers(opened: Opened) -> None:
    page = made_up_page(WORDS)
    tab = opened(page)
    tab.locator("#picture g[role=button]").first.click()
    tab.get_by_role("button", name="book (1), looks").click()
    assert tab.locator("#picture path.link").count() == 4
    links = page.texts[0].heads[0].links["attention"]
    own = [100 * float(v) for v, i in zip(links.values, links.queries, strict=True) if i == 1]
    shown = [float(text.split()[0]) for text in tab.locator("text.number").all_text_contents()]
    assert shown == pytest.approx(own, abs=0.51)
    tab.keyboard.press("Escape")
    assert tab.locator("#picture path.link").count() == 16


def test_before_after_and_difference_are_there_for_a_pair(opened: Opened) -> None:
    page = made_up_page(WORDS)
    tab = opened(page)
    tab.locator("#picture g[role=button]").first.click()
    tab.get_by_label("Shows").select_option("difference")
    assert tab.locator("#picture path.link.less").count() > 0
    dashes = tab.locator("#picture path.link.less").first.evaluate(
        "(node) => getComputedStyle(node).strokeDasharray"
    )
    assert dashes != "none"  # not by colour alone
    tab.locator("#picture svg[role=application]").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        tab.keyboard.press(key)
    shown = tab.locator("#details tr").all_inner_texts()
    links = page.texts[0].heads[0].links
    joined = list(zip(links["graph"].queries, links["graph"].keys, strict=True))
    weight = float(links["graph"].values[joined.index((2, 1))])
    assert tab.locator("#details h3").first.inner_text() == "costs (2) → book (1)"
    assert [row.split("\t")[0] for row in shown[:4]] == [
        "attention", "before the jump", "what the jump changes", "jump graph",
    ]  # fmt: skip
    assert float(shown[3].split("\t")[1]) == pytest.approx(weight, rel=0.01)


@pytest.mark.slow
def test_a_token_shows_the_clusters_that_it_reads_and_what_stands_for_the_rest(
    opened: Opened,
) -> None:
    tab = opened(clustered_page(WORDS))
    assert tab.locator("#views button").all_inner_texts() == ["All heads", "One head"]
    go(tab, "One head")
    shown = tab.get_by_label("Shows").locator("option").all_inner_texts()
    assert shown == ["attention", "by exact scores", "what clusters change"]
    tab.get_by_role("button", name="book (1), looks").click()
    assert "50 % of its attention is exact" in tab.locator("#details").inner_text()
    nodes = [entry.strip() for entry in tab.locator("li.node").all_inner_texts()]
    assert nodes == ["25 %: the (0) costs (2) and 1 more", "6.3 %: more (3)"]
    tab.locator("#picture svg[role=application]").focus()
    tab.keyboard.press("ArrowDown")
    rows = tab.locator("#details tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == shown
    hostile = opened(clustered_page())
    go(hostile, "One head")
    hostile.locator("#picture g[role=button]").first.click()
    assert "<script>alert(1)" in hostile.locator("li.node").first.inner_text()
    assert hostile.locator("#details script").count() == 0


def test_a_token_of_a_text_without_clusters_says_what_is_exact_alone(opened: Opened) -> None:
    (text,) = clustered_page(WORDS).texts
    nothing: Any = {"members": (), "sizes": (), "exact": (1.0,) * 4}
    tree: Any = SimpleNamespace(**nothing, read=((),) * 4, means=((),) * 4)
    head = replace(text.heads[0], tree=tree)
    tab = opened(Page("Trees", (replace(text, heads=(head,)),)))
    go(tab, "One head")
    tab.get_by_role("button", name="book (1), looks").click()
    assert "100 % of its attention is exact" in tab.locator("#details").inner_text()
    assert tab.locator("#details h3").all_inner_texts() == ["book (1)"]


def test_a_click_on_a_pair_shows_the_stones_that_joined_it(opened: Opened) -> None:
    tab = opened(made_up_page(WORDS))
    go(tab, "Jumps")
    assert "5 of 17 jumps of this head" in tab.locator("#caption").inner_text()
    assert tab.locator("#picture path.way").count() == 0
    tab.locator("button.jump").nth(1).click()
    rows = tab.locator("table.stones tbody tr").all_inner_texts()
    assert [row.split("\t") for row in rows] == [
        ["the (0)", "1.5", "2.25", "+", "75 %"],
        ["more (3)", "−1.25", "−3", "−", "25 %"],
    ]
    assert "and 3 more" in tab.locator("#details").inner_text()
    assert tab.locator("#picture path.way").count() == 4
    widths = [float(path.get_attribute("stroke-width")) for path in tab.locator("path.way").all()]
    assert widths[0] > widths[-1]
    go(tab, "One head")
    assert tab.locator("table.stones").count() == 1  # the pair is still chosen
    tab.keyboard.press("Escape")
    assert tab.locator("table.stones").count() == 0
    go(tab, "Jumps")
    tab.locator("#picture path.link").nth(2).dispatch_event("click")
    assert tab.locator("table.stones").count() == 1


def test_a_tree_has_its_arcs(opened: Opened) -> None:
    tab = opened(made_up_page(WORDS))
    go(tab, "Tree")
    assert tab.locator("#picture path.arc").count() == 3
    assert tab.locator("#picture path.link").count() == 8
    assert tab.locator("#picture text.label", has_text="the").count() == 1
    tab.get_by_label("Text").select_option("1")  # which has no tree and no jumps
    assert tab.locator("#views button").all_inner_texts() == ["All heads", "One head"]
    assert tab.locator("#picture g[role=button]").count() == 2


def test_the_keyboard_alone_opens_a_head_and_finds_stones(opened: Opened) -> None:
    tab = opened(made_up_page(WORDS))
    visited = []
    for _ in range(40):
        tab.keyboard.press("Tab")
        visited.append(tab.evaluate("document.activeElement.closest('[id]').id"))
        if visited[-1] == "picture":
            break
    assert "views" in visited
    ring = "getComputedStyle(document.activeElement.querySelector('.ring')).stroke"
    assert tab.evaluate(ring) not in ("none", "")  # the focus is seen
    for key in ("ArrowRight", "ArrowDown", "Enter"):
        tab.keyboard.press(key)
    assert tab.locator("#heading").inner_text() == "Layer 3, head 1: attention"
    tab.keyboard.press("Tab")
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        tab.keyboard.press(key)
    assert tab.locator("#picture path.link").count() == 4
    pressed = tab.evaluate("document.activeElement.getAttribute('aria-label')")
    assert pressed == "costs (2), looks"
    tab.get_by_role("button", name="Jumps", exact=True).focus()
    tab.keyboard.press("Enter")
    while tab.evaluate("document.activeElement.className") != "jump":
        tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    assert tab.locator("table.stones").count() == 1
    assert tab.evaluate("document.activeElement.className") == "jump"


@pytest.mark.slow
@pytest.mark.parametrize("view", ["All heads", "One head", "Jumps", "Tree"])
def test_what_is_shown_is_saved_as_a_vector_picture(
    opened: Opened, view: str, tmp_path: Path
) -> None:
    tab = opened(made_up_page())
    go(tab, view)
    if view == "Jumps":
        tab.locator("button.jump").first.click()
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Save picture as SVG").click()
    file = tmp_path / "picture.svg"
    download.value.save_as(file)
    assert re.fullmatch(r"[a-z0-9-]+\.svg", download.value.suggested_filename)
    root = ET.parse(file).getroot()
    assert root.tag == f"{SVG}svg"
    names = [node.tag for node in root.iter()]
    for name in ("path", "text"):
        assert names.count(f"{SVG}{name}") == tab.locator(f"#picture svg {name}").count()
    assert f"{SVG}script" not in names
    assert not any("class" in node.attrib for node in root.iter())
    colours = {node.get("fill") for node in root.iter() if node.tag in (f"{SVG}text",)}
    assert colours <= {"rgb(30, 35, 41)", "rgb(89, 97, 108)"}


def test_it_prints_as_vectors(opened: Opened) -> None:
    tab = opened(made_up_page(WORDS))
    tab.locator("#picture g[role=button]").first.click()
    tab.emulate_media(media="print")
    hidden = ("header", "#controls", "footer", "#details")
    assert not any(tab.locator(part).is_visible() for part in hidden)
    assert tab.locator("#picture").is_visible()
    pdf = tab.pdf(prefer_css_page_size=True)
    assert pdf.startswith(b"%PDF-")
    assert b"/Subtype /Image" not in pdf
    assert len(re.findall(rb"/Type /Page\b", pdf)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out(opened: Opened, scheme: str) -> None:
    tab = opened(made_up_page(WORDS))
    tab.emulate_media(color_scheme=scheme)
    for view in ("All heads", "One head", "Jumps", "Tree"):
        go(tab, view)
        if view == "Jumps":
            tab.locator("button.jump").first.click()
        faint = [(text, ratio) for ratio, text in tab.evaluate(CONTRASTS) if ratio < 4.5]
        assert faint == [], view


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 400])
def test_hostile_tokens_are_shown_as_text_and_nothing_is_wider_than_the_window(
    opened: Opened, width: int
) -> None:
    tab = opened(made_up_page())
    tab.set_viewport_size({"width": width, "height": 800})
    for view in ("All heads", "One head", "Jumps", "Tree"):
        go(tab, view)
        wide = tab.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, view
    go(tab, "One head")
    labels = tab.locator("#picture g[role=button] text").all_text_contents()
    assert labels[1] == HOSTILE[1]
    assert labels[3] == HOSTILE[3]
    assert labels[4] == HOSTILE[4]
    assert labels[5] == "x" * 21 + "…"
    assert tab.evaluate("document.scripts.length") == 2


@pytest.mark.slow
def test_512_tokens_and_144_heads_stay_usable(opened: Opened) -> None:
    one = made_up_page(tuple(f"w{n}" for n in range(512)), heads=1).texts[0]
    pairs = [(layer, head) for layer in range(12) for head in range(12)]
    heads = tuple(replace(one.heads[0], layer=layer, head=head) for layer, head in pairs)
    page = Page("long", (replace(one, heads=heads),))
    assert len(page.html) < 20_000_000
    start = time.monotonic()
    tab = opened(page)
    assert tab.locator("#picture g[role=button]").count() == 144
    assert time.monotonic() - start < 30  # 2 s on a quiet core
    tab.locator("#picture g[role=button]").nth(70).click()
    assert tab.locator("#picture path.link").count() == 300
    assert re.search(r"4096 links are in the file, \d+ %", tab.locator("#caption").inner_text())
    tab.get_by_role("button", name="w40 (40), looks").click()
    assert tab.locator("#picture path.link").count() > 0


def test_a_notebook_shows_it_in_a_frame(chromium: Any) -> None:
    notebook = chromium.new_page()
    said: list[str] = []
    notebook.on("console", lambda message: said.append(message.text))
    notebook.set_content(f"<body>{made_up_page(WORDS)._repr_html_()}</body>")
    frame = notebook.frame_locator("iframe")
    frame.locator("#picture g[role=button]").nth(4).click()
    assert frame.locator("#heading").inner_text() == "Layer 3, head 1: attention"
    with notebook.expect_download() as download:
        frame.get_by_role("button", name="Save picture as SVG").click()
    assert download.value.suggested_filename == "layer-3-head-1-attention.svg"
    notebook.close()
    assert said == []
