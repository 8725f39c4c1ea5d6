"""Links and stepping stones, by hand, against plain loops, and on models."""

from collections.abc import Sequence
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, BertModel

from jat_graph.config import JatConfig
from jat_graph.hf import TripletConfig, attach
from jat_graph.lab.studies.links import (
    EXAMPLE,
    SPREADS,
    TypedText,
    count_links,
    find_links,
    find_stepping_stones,
    measure_links,
)

# Mean 0.3 and standard deviation 0.1915 off the diagonal, which is left out.
HEAD = torch.tensor([[[0.9, 0.6, 0.3], [0.1, 0.9, 0.2], [0.5, 0.1, 0.9]]])


@pytest.mark.parametrize(
    ("spread", "want"),
    [
        (1.0, [[0, 1, 0], [0, 0, 0], [1, 0, 0]]),  # above 0.491
        (0.5, [[0, 1, 0], [0, 0, 0], [1, 0, 0]]),  # above 0.396
        (-0.5, [[0, 1, 1], [0, 0, 0], [1, 0, 0]]),  # above 0.204
        (-1.5, [[0, 1, 1], [1, 0, 1], [1, 1, 0]]),
    ],
)
def test_links_by_hand(spread: float, want: list[list[int]]) -> None:
    assert find_links(HEAD.double(), spread)[0].int().tolist() == want


def test_equal_probabilities_are_no_links() -> None:
    assert not any(find_links(torch.full((2, 4, 4), 0.25), spread).any() for spread in (1.0, 0.0))


def test_stepping_stones_by_hand() -> None:
    links = torch.zeros(1, 4, 4, dtype=torch.bool)
    links[0, 0, 2] = links[0, 1, 2] = links[0, 2, 3] = True
    want = torch.zeros(4, 4, dtype=torch.bool)
    want[0, 1] = want[1, 0] = True  # both look at 2; that 0 → 2 → 3 is a path does not count
    assert torch.equal(find_stepping_stones(links)[0], want)


def test_shares_by_hand() -> None:
    rows = torch.full((1, 3, 3), 0.1)
    rows[0, 0, 2] = rows[0, 1, 2] = 0.8  # book and pencil look at "more"
    counts = count_links(torch.stack([rows, HEAD]), ["book", "pencil", None])
    assert counts["different types > mean + std"].tolist() == [[0, 2], [1, 2]]
    assert counts["all words > mean + std"].tolist() == [[2, 6], [2, 6]]
    assert counts["all words > mean − ½ std"].tolist() == [[2, 6], [3, 6]]
    assert counts["δ, different types"].tolist() == [[2, 2], [0, 0]]
    assert counts["δ, all words"].tolist() == [[2, 2], [0, 2]]


def counted_plainly(rows: Sequence[Tensor], types: Sequence[str | None]) -> dict[str, list[int]]:
    """Count as the definitions say, pair by pair; all layers together."""
    totals: dict[str, list[int]] = {}
    for kind in ("different types", "all words"):
        totals |= {f"{kind} > {name}": [0, 0] for name in SPREADS}
        totals[f"δ, {kind}"] = [0, 0]
    for head in torch.cat(list(rows)).double():
        n = len(head)
        values = torch.stack([head[i, k] for i in range(n) for k in range(n) if i != k])
        mean, std = values.mean(), values.std(correction=0)
        for i, k in product(range(n), repeat=2):
            if i == k:
                continue
            kinds = ["all words"]
            if types[i] is not None and types[k] is not None and types[i] != types[k]:
                kinds.append("different types")
            cut = mean + std
            apart = head[i, k] <= cut and head[k, i] <= cut
            others = [j for j in range(n) if j not in (i, k)]
            stone = any(head[i, j] > cut and head[k, j] > cut for j in others)
            for kind in kinds:
                for name, spread in SPREADS.items():
                    totals[f"{kind} > {name}"][0] += bool(head[i, k] > mean + spread * std)
                    totals[f"{kind} > {name}"][1] += 1
                totals[f"δ, {kind}"][0] += bool(apart and stone)
                totals[f"δ, {kind}"][1] += bool(apart)
    return totals


@given(
    seed=st.integers(0, 9999),
    types=st.lists(st.sampled_from(["person", "place", None]), min_size=2, max_size=7),
)
def test_counts_are_those_of_plain_loops(seed: int, types: list[str | None]) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = (2, 3, len(types), len(types))
    rows = (2 * torch.randn(shape, generator=generator)).softmax(dim=-1)
    counts = count_links(rows, types)
    got = {name: layers.sum(dim=0).tolist() for name, layers in counts.items()}
    assert got == counted_plainly(rows, types)


# --- models --------------------------------------------------------------------------------------

TEXT = TypedText("the book costs more than a pencil".split(), [None, "book", *[None] * 4, "pencil"])


@pytest.fixture
def tiny(tiny_model: str) -> BertModel:
    return AutoModel.from_pretrained(tiny_model, attn_implementation="eager").eval()


def test_a_model_is_measured_layer_by_layer(tiny: BertModel, tiny_model: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    lone = TypedText(["book"], ["book"])
    shares = measure_links(tiny, tokenizer, [TEXT, lone, TEXT])
    assert shares == measure_links(tiny, tokenizer, [TEXT])
    assert list(shares) == ["all layers", "layer 1", "layer 2"]
    encoded = tokenizer(" ".join(TEXT.words), return_tensors="pt")
    with torch.no_grad():
        rows = [row[0, :, 1:-1, 1:-1] for row in tiny(**encoded, output_attentions=True).attentions]
    for name, (some, of) in counted_plainly(rows, TEXT.types).items():
        assert shares["all layers"][name] == pytest.approx(some / of)


def test_heads_that_jump_link_other_words(tiny: BertModel, tiny_model: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    base = measure_links(tiny, tokenizer, [TEXT])
    attach(tiny.train(), JatConfig(threshold=4.0, heads=2, layers=(0,)))
    jumping = measure_links(tiny, tokenizer, [TEXT])
    assert tiny.training
    assert jumping["layer 1"] != base["layer 1"]


def test_a_text_is_cut_and_types_nobody_has_are_undefined(tiny: BertModel, tiny_model: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    cut = measure_links(tiny, tokenizer, [TEXT], max_length=5)  # three words, one of them typed
    short = TypedText(TEXT.words[:3], TEXT.types[:3])
    assert cut == measure_links(tiny, tokenizer, [short])
    assert all(found["different types > mean + std"] is None for found in cut.values())


def test_models_without_probabilities_are_refused(tiny: BertModel, tiny_model: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    attach(tiny, TripletConfig())
    with pytest.raises(ValueError, match="model must give the attention probabilities of all lay"):
        measure_links(tiny, tokenizer, [TEXT])


def test_minilm_on_the_papers_sentence(minilm_path: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    model = AutoModel.from_pretrained(minilm_path, attn_implementation="eager")
    typed = [word for word, kind in zip(*EXAMPLE, strict=True) if kind is not None]
    assert typed == ["Book", "pencil", "Book", "computer"]
    shares = measure_links(model, tokenizer, [EXAMPLE])
    above = [shares["all layers"][f"different types > {name}"] for name in SPREADS]
    assert None not in above
    assert 0 < above[0] <= above[1] <= above[2] < 1
