"""The language models: what they promise whatever they have learned."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from jat_graph.nn import DecoderSelfAttention, RelativeAttention
from models.memory_compressed import MemoryCompressedModel
from models.music_transformer import MusicTransformer

VOCABULARY, LENGTH = 11, 14
OPTIONS = {"vocabulary_size": VOCABULARY, "channels": 8, "heads": 2, "layers": 3}
MODELS = [
    (MusicTransformer, {"max_distance": 5}),
    (MusicTransformer, {"relative": False}),
    (MemoryCompressedModel, {"block": 4}),
]
each_model = pytest.mark.parametrize(("kind", "options"), MODELS)


def make(kind: type[nn.Module], options: dict[str, int]) -> nn.Module:
    torch.manual_seed(0)
    return kind(**OPTIONS, **options).double().eval()


def draw_tokens(batch: int = 2) -> Tensor:
    return torch.randint(VOCABULARY, (batch, LENGTH), generator=torch.Generator().manual_seed(1))


@each_model
def test_no_token_is_told_of_later_ones(kind: type[nn.Module], options: dict[str, int]) -> None:
    model, tokens = make(kind, options), draw_tokens()
    logits = model(tokens)
    assert logits.shape == (2, LENGTH, VOCABULARY)
    for end in range(1, LENGTH):
        changed = tokens.clone()
        changed[:, end:] = (tokens[:, end:] + 1) % VOCABULARY
        assert torch.equal(model(changed)[:, :end], logits[:, :end])
        assert_close(model(tokens[:, :end]), logits[:, :end], rtol=1e-10, atol=1e-10)


@each_model
def test_every_earlier_token_counts(kind: type[nn.Module], options: dict[str, int]) -> None:
    model, tokens = make(kind, options), draw_tokens(1)
    last = model(tokens)[0, -1]
    for place in range(LENGTH - 1):
        changed = tokens.clone()
        changed[:, place] = (tokens[:, place] + 1) % VOCABULARY
        assert not torch.isclose(model(changed)[0, -1], last, rtol=1e-12, atol=1e-12).any()


@each_model
def test_padding_changes_nothing(kind: type[nn.Module], options: dict[str, int]) -> None:
    model, tokens = make(kind, options), draw_tokens()
    mask = torch.ones(2, LENGTH, dtype=torch.bool)
    mask[0, 9:] = False
    alone = model(tokens[:1, :9])
    assert_close(model(tokens, mask)[:1, :9], alone, rtol=1e-10, atol=1e-10)


def test_only_the_attention_tells_the_two_music_models_apart() -> None:
    kinds = {
        relative: [type(layer.attention) for layer in make(*MODELS[1 - relative]).layers]
        for relative in (True, False)
    }
    assert kinds == {True: [RelativeAttention] * 3, False: [DecoderSelfAttention] * 3}
