"""Links and stepping stones, by hand, against plain loops, and on models."""

from collections.abc import Sequence
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, BertModel

from jat_graph.config import JatConfig, PairGraph
from jat_graph.hf import TripletConfig, attach
from jat_graph.lab.studies.links import (
    EXAMPLE,
    SPREADS,
    TypedText,
    count_links,
    find_links,
    find_stepping_stones,
    link_names,
    measure_links,
)

# Mean 0.4 and standard deviation 0.3127, with the diagonal.
HEAD = torch.tensor([[[0.9, 0.6, 0.3], [0.1, 0.8, 0.1], [0.5, 0.1, 0.2]]])


@pytest.mark.parametrize(
    ("spread", "want"),
    [
        (1.0, [[1, 0, 0], [0, 1, 0], [0, 0, 0]]),  # above 0.686
        (0.5, [[1, 1, 0], [0, 1, 0], [0, 0, 0]]),  # above 0.543
        (-0.5, [[1, 1, 1], [0, 1, 0], [1, 0, 0]]),  # above 0.244
        (-1.5, [[1, 1, 1], [1, 1, 1], [1, 1, 1]]),
    ],
)
def test_links_by_hand(spread: float, want: list[list[int]]) -> None:
    assert find_links(HEAD.double(), spread)[0].int().tolist() == want


def test_mean_and_std_are_those_of_all_heads_together() -> None:
    loud, quiet = torch.full((3, 3), 0.9), torch.full((3, 3), 0.1)
    links = find_links(torch.stack([loud, quiet]), 0.5)
    assert links[0].all() and not links[1].any()


def test_equal_probabilities_are_no_links() -> None:
    assert not any(find_links(torch.full((2, 4, 4), 0.25), spread).any() for spread in (1.0, 0.0))


def test_stepping_stones_by_hand() -> None:
    links = torch.zeros(1, 4, 4, dtype=torch.bool)
    links[0, 0, 2] = links[0, 1, 2] = links[0, 2, 3] = True
    want = torch.zeros(4, 4, dtype=torch.bool)
    want[0, 1] = want[1, 0] = True  # both look at 2; that 0 → 2 → 3 is a path does not count
    assert torch.equal(find_stepping_stones(links)[0], want)


def test_shares_by_hand() -> None:
    rows = torch.full((1, 1, 3, 3), 0.1)
    rows[..., 2, 2] = rows[..., 0, 2] = rows[..., 1, 2] = 0.9  # book and pencil look at "more"
    counts = count_links(rows, ["book", "pencil", None])
    assert counts["different types > mean + std"].tolist() == [[0, 2]]
    assert counts["entity and other > mean + std"].tolist() == [[2, 4]]
    assert counts["all words > mean + std"].tolist() == [[2, 6]]
    assert counts["self > mean + std"].tolist() == [[1, 3]]
    assert counts["bridged, different types"].tolist() == [[2, 2]]
    assert counts["δ, all words"].tolist() == [[0, 2]]  # they do not look at each other
    assert counts["otherwise, all words"].tolist() == [[2, 4]]
    rows[..., 0, 1] = 0.9  # book looks at pencil, too
    counts = count_links(rows, ["book", "pencil", None])
    assert counts["δ, all words"].tolist() == [[1, 2]]
    assert counts["otherwise, all words"].tolist() == [[2, 4]]
    assert counts["bridged, different types"].tolist() == [[0, 0]]


def test_p_itself_is_high() -> None:
    counts = count_links(torch.full((1, 1, 3, 3), 0.25), [None] * 3)  # all are the mean, std 0
    assert counts["δ, all words"].tolist() == [[6, 6]]
    assert counts["all words > mean + std"].tolist() == [[0, 6]]


KINDS = ("different types", "entity and other", "all words", "self")


def kinds_of(types: Sequence[str | None], i: int, j: int) -> list[str]:
    """Say what kinds of pairs words i and j are."""
    if i == j:
        return ["self"]
    entities = (types[i] is not None) + (types[j] is not None)
    two = ["different types"] if entities == 2 and types[i] != types[j] else []
    return ["all words", *two, *(["entity and other"] if entities == 1 else [])]


def counted_plainly(layers: Tensor, types: Sequence[str | None]) -> dict[str, list[int]]:
    """Count as the definitions say, pair by pair; all layers together."""
    totals: dict[str, list[int]] = {name: [0, 0] for kind in KINDS for name in link_names(kind)}

    def note(name: str, is_so: Tensor | bool) -> None:
        totals[name][0] += bool(is_so)
        totals[name][1] += 1

    heads, words = layers.double().flatten(0, 1), range(len(types))
    mean, std = heads.mean(), heads.std(correction=0)
    p = mean + std
    for head, i, j in product(heads, words, words):
        for kind, (name, spread) in product(kinds_of(types, i, j), SPREADS.items()):
            note(f"{kind} > {name}", head[i, j] > mean + spread * std)
        others = [k for k in words if k not in (i, j)] if i != j else []
        for kind, k in product(kinds_of(types, i, j), others):
            both = head[i, k] >= p and head[j, k] >= p
            note(f"{'δ' if both else 'otherwise'}, {kind}", head[i, j] >= p)
        if i != j and head[i, j] <= p and head[j, i] <= p:
            for kind in kinds_of(types, i, j):
                note(f"bridged, {kind}", any(head[i, k] > p and head[j, k] > p for k in others))
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
        rows = torch.cat(tiny(**encoded, output_attentions=True).attentions)[..., 1:-1, 1:-1]
    for name, (some, of) in counted_plainly(rows, TEXT.types).items():
        assert shares["all layers"][name] == pytest.approx(some / of)


def test_heads_that_jump_link_other_words(tiny: BertModel, tiny_model: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    base = measure_links(tiny, tokenizer, [TEXT])
    attach(tiny.train(), JatConfig(PairGraph(threshold=4.0), heads=2, layers=(0,)))
    jumping = measure_links(tiny, tokenizer, [TEXT])
    assert tiny.training
    assert jumping["layer 1"] != base["layer 1"]


def test_a_text_is_cut_and_types_nobody_has_are_undefined(tiny: BertModel, tiny_model: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    cut = measure_links(tiny, tokenizer, [TEXT], max_length=5)  # three words, one of them typed
    short = TypedText(TEXT.words[:3], TEXT.types[:3])
    assert cut == measure_links(tiny, tokenizer, [short])
    assert all(found["different types > mean + std"] is None for found in cut.values())
    assert all(found["entity and other > mean + std"] is not None for found in cut.values())


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
