"""The language models: what they promise whatever they have learned."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from jat_graph import JatConfig
from jat_graph.nn import JumpSelfAttention
from jat_graph.patterns import parse_pattern
from models.area_transformer import AreaTransformer
from models.jat_decoder import JatDecoder
from models.memory_compressed import MemoryCompressedModel
from models.music_transformer import MusicTransformer, RelativeAttention
from models.sparse_transformer import SparseTransformer
from tests.support import assert_equal

VOCABULARY, LENGTH = 11, 14
JUMPS = JatConfig.paper(threshold=0.02, heads=2, key_selection="strided", key_step=2)
OF_MASKS = {
    "area": partial(AreaTransformer, max_width=3),
    "area of one": partial(AreaTransformer, max_width=1),
    "music": partial(MusicTransformer, max_distance=5),
    "music, absolute": partial(MusicTransformer, relative=False),
    "compressed": partial(MemoryCompressedModel, block=4),
    "plain": partial(JatDecoder, config=None),
    "jumps": partial(JatDecoder, config=JUMPS),
}
MODELS = OF_MASKS | {
    spec: partial(SparseTransformer, pattern=parse_pattern(spec), length=LENGTH)
    for spec in ("strided:5", "fixed:6:2", "causal")
}
of_masks = pytest.mark.parametrize("name", OF_MASKS)
each_model = pytest.mark.parametrize("name", MODELS)


def make(name: str, **options: object) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"channels": 8, "heads": 2, "layers": 3}
    model = MODELS[name](VOCABULARY, **sizes | options).double().eval()
    if isinstance(model, SparseTransformer):
        nn.init.normal_(model.logits.weight)  # they start at 0
    return model


def draw_tokens(batch: int = 2) -> Tensor:
    return torch.randint(VOCABULARY, (batch, LENGTH), generator=torch.Generator().manual_seed(1))


@each_model
def test_no_token_is_told_of_later_ones(name):
    model, tokens = make(name), draw_tokens()
    logits = model(tokens)
    assert logits.shape == (2, LENGTH, VOCABULARY)
    for end in range(1, LENGTH):
        changed = tokens.clone()
        changed[:, end:] = (tokens[:, end:] + 1) % VOCABULARY
        assert torch.equal(model(changed)[:, :end], logits[:, :end])
        assert_equal(model(tokens[:, :end]), logits[:, :end])


@each_model
def test_every_earlier_token_counts(name):
    model, tokens = make(name), draw_tokens(1)
    last = model(tokens)[0, -1]
    for place in range(LENGTH):
        changed = tokens.clone()
        changed[:, place] = (tokens[:, place] + 1) % VOCABULARY
        assert not torch.isclose(model(changed)[0, -1], last, rtol=1e-12, atol=1e-12).any()


@of_masks
def test_padding_after_the_end_changes_nothing(name):
    model, tokens = make(name), draw_tokens(3)
    mask = torch.arange(LENGTH) < torch.tensor([[LENGTH], [9], [3]])
    together = model(tokens, mask)
    for row, count in enumerate(mask.sum(-1).tolist()):
        alone = model(tokens[row : row + 1, :count])
        assert_equal(together[row, :count], alone[0])


def test_only_the_attention_tells_the_two_music_models_apart():
    for name, kind in (("music", RelativeAttention), ("music, absolute", JumpSelfAttention)):
        assert [type(layer.attention) for layer in make(name).layers] == [kind] * 3


def test_jump_heads_read_otherwise_and_without_hops_do_not():
    base, jump, tokens = make("plain"), make("jumps"), draw_tokens()
    assert jump.state_dict().keys() == base.state_dict().keys()  # no new parameters
    assert not torch.allclose(jump(tokens), base(tokens), atol=1e-3)
    stays = make("jumps", config=JatConfig(heads=2, hop_weights=(1.0,)))
    assert torch.equal(stays(tokens), base(tokens))


def test_a_config_that_looks_ahead_is_refused():
    with pytest.raises(ValueError, match="vote_rate"):
        make("jumps", config=JatConfig.paper(heads=2, vote_rate=0.1))(draw_tokens())


def test_the_sparse_transformer_starts_with_all_tokens_alike():
    model = SparseTransformer(11, parse_pattern("strided:5"), LENGTH, channels=16)
    assert ((model(draw_tokens()).softmax(-1) * 11 - 1).abs() < 0.3).all()
