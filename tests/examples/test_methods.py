"""Ways to read fewer keys, on heads drawn at random and in tiny models."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import AutoModel, LlamaConfig, LlamaForCausalLM

from examples.methods import METHODS, register
from examples.methods.bounds import BLOCK, find_bounds
from examples.methods.lines import LAST, draw
from examples.methods.queries import cluster_means
from examples.methods.rows import FIRST, NEAR, Text

LENGTH, KEYS = 300, 140
WITH_REST = ("channels", "queries", "best-rest")
OF_PROMPTS = ("lines", "queries")  # which choose for several tokens at once


def draw_text(causal: bool = True) -> Text:
    generator = torch.Generator().manual_seed(0)
    query, key = 1.5 * torch.randn(2, 3, LENGTH, 32, generator=generator)
    return Text(query, key, 0.4, causal)


def attention(text: Text) -> Tensor:
    later = torch.ones(LENGTH, LENGTH).triu(1) if text.causal else torch.zeros(LENGTH, LENGTH)
    scores = text.query @ text.key.mT * text.scale
    return scores.masked_fill(later > 0, -torch.inf).softmax(-1)


def read(name: str, text: Text, keys: int, size: int = 64) -> Tensor:
    """Return the weights of all tokens of a text."""
    found = torch.zeros(3, LENGTH, LENGTH)
    for rows in text.split(size, keys):
        found[:, rows.place, : rows.length] = METHODS[name](rows)
    return found


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "all"])
@pytest.mark.parametrize("name", METHODS)
def test_weights_are_those_of_few_keys_or_of_all(name: str, causal: bool) -> None:
    text = draw_text(causal)
    weights, dense = read(name, text, KEYS), attention(text)
    assert_close(weights.sum(-1), torch.ones(3, LENGTH))
    assert (weights >= 0).all() and (weights[dense == 0] == 0).all()
    assert not torch.allclose(weights, dense, rtol=0, atol=1e-6)
    if name not in WITH_REST:
        counts = (weights > 0).sum(-1)
        assert KEYS - 20 <= counts.max() <= KEYS + BLOCK
    assert_close(read(name, text, 4 * LENGTH), dense, rtol=0, atol=1e-5)
    if name not in OF_PROMPTS:
        assert_close(read(name, text, KEYS, size=37), weights)


@pytest.mark.parametrize("name", ["bounds", "means", "queries", "best", "best-rest"])
def test_the_first_tokens_and_the_last_are_read_exactly(name: str) -> None:
    text = draw_text()
    own, dense = read(name, text, KEYS)[:, -1], attention(text)[:, -1]
    always = [*range(FIRST), *range(LENGTH - NEAR, LENGTH)]
    ratios = own[:, always] / dense[:, always]
    assert_close(ratios, ratios[:, :1].expand_as(ratios), rtol=1e-4, atol=0)


def test_nothing_without_the_rest_has_more_attention_than_the_best_keys() -> None:
    text = draw_text()
    dense = attention(text)
    mass = {name: (dense * (read(name, text, KEYS) > 0)).sum(-1) for name in METHODS}
    for name in ("window", "bounds", "means"):
        assert (mass[name][:, -NEAR:] < mass["best"][:, -NEAR:]).all()
    rest = read("best-rest", text, KEYS)
    others = rest[0, -1].masked_fill(read("best", text, KEYS)[0, -1] > 0, 0)
    assert others[others > 0].unique().numel() == 1


def test_bounds_are_above_all_scores_of_their_block() -> None:
    text = draw_text()
    low, high = find_bounds(text)
    most = text.query.clamp(min=0) @ high.mT + text.query.clamp(max=0) @ low.mT
    scores = text.query @ text.key.mT
    for block in range(LENGTH // BLOCK):
        inside = scores[..., BLOCK * block : BLOCK * (block + 1)].amax(-1)
        assert (most[..., block] >= inside - 1e-4).all()


def test_lines_have_most_of_the_attention_of_the_last_queries() -> None:
    text = draw_text()
    vertical, slash = draw(text, 80)
    last = attention(text)[:, -LAST:]
    columns = last.sum(1)
    diagonals = torch.zeros(3, LENGTH)
    for row, place in enumerate(range(LENGTH - LAST, LENGTH)):
        diagonals[:, : place + 1] += last[:, row, : place + 1].flip(-1)
    assert vertical[:, :FIRST].all() and slash[:, :NEAR].all()
    for found, sums, always in ((vertical, columns, FIRST), (slash, diagonals, NEAR)):
        assert (found.sum(-1) == 80).all()
        inside = sums[:, always:].masked_fill(~found[:, always:], torch.inf).amin(-1)
        outside = sums[:, always:].masked_fill(found[:, always:], -torch.inf).amax(-1)
        assert (inside >= outside).all()


def test_queries_that_are_alike_share_a_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    places = torch.randn(1, 4, 8, generator=generator)
    query = 9 * places.repeat_interleave(16, 1) + torch.randn(1, 64, 8, generator=generator)
    expected = query.unflatten(1, (4, 16)).mean(2).repeat_interleave(16, 1)
    assert_close(cluster_means(query), expected)


def tiny_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=50, initializer_range=0.3, **sizes, **heads)
    return LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("name", METHODS)
@torch.no_grad()
def test_a_decoder_reads_a_prompt_and_goes_on(name: str) -> None:
    model, ids = tiny_llama(), torch.randint(50, (1, LENGTH))
    dense = model(ids).logits
    for keys in (4 * LENGTH, KEYS):
        register(way := f"less:{name}:{keys}")
        model.set_attn_implementation(way)
        whole = model(ids).logits
        if keys > LENGTH:
            assert_close(whole, dense, rtol=1e-3, atol=1e-3)
        elif name not in WITH_REST:
            assert not torch.allclose(whole, dense, rtol=1e-3, atol=1e-3)
        if name not in OF_PROMPTS:
            first = model(ids[:, :-2], use_cache=True)
            for step in (ids[:, -2:-1], ids[:, -1:]):
                first = model(step, past_key_values=first.past_key_values)
            assert_close(first.logits[:, -1], whole[:, -1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", METHODS)
@torch.no_grad()
def test_an_encoder_reads_each_text_of_a_batch(name: str, tiny_model: str) -> None:
    register(way := f"less:{name}:0.4")
    model = AutoModel.from_pretrained(tiny_model, attn_implementation="sdpa").eval()
    ids, mask = torch.randint(model.config.vocab_size, (2, 45)), torch.ones(2, 45).long()
    mask[1, 30:] = 0
    dense = model(ids, mask)[0]
    model.set_attn_implementation(way)
    both, alone = model(ids, mask)[0], model(ids[1:, :30])[0]
    assert_close(both[1:, :30], alone, rtol=0, atol=1e-5)
    if name == "window":
        assert not torch.allclose(both[0], dense[0], atol=1e-4)


@pytest.mark.parametrize("name", ["less:window", "less:noses:9", "less:best:-1", "best:9"])
def test_names_of_no_method_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="attention must be less:METHOD:KEYS with a method of win"):
        register(name)


def test_a_decoder_takes_one_text_without_padding() -> None:
    register("less:best:9")
    model = tiny_llama()
    model.set_attn_implementation("less:best:9")
    ids = torch.randint(50, (2, 20))
    with pytest.raises(ValueError, match="less:best:9 is for one text without padding"):
        model(ids)
    with pytest.raises(ValueError, match="less:best:9 is for one text without padding"):
        model(ids[:1], attention_mask=torch.tensor([[0] * 5 + [1] * 15]))
