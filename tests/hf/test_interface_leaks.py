"""In a decoder, no earlier output depends on a later token."""

import pytest
import torch
from torch.testing import assert_close

from tests.hf.decoders import RULES, SIDES, STRIDED, prepared
from tests.hf.models import LENGTH, PAD, VOCABULARY, assert_joins, run, tiny_inputs, tiny_jump_model

UNPADDED, RIGHT, LEFT = (side.values for side in SIDES)
# BART's encoder costs time, so only some of the rules.
CHOSEN = {
    "gpt2": (RULES, (UNPADDED, LEFT)),
    "llama": (RULES, (RIGHT,)),
    "bart": (RULES[::4], (RIGHT,)),
}
CASES = [
    pytest.param(name, *rule.values, *side, id=f"{name}-{rule.id}-{side[1]}-{min(side[0])}")
    for name, (rules, sides) in CHOSEN.items()
    for rule in rules
    for side in sides
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rule", "lengths", "side"), CASES)
def test_later_tokens_change_no_earlier_one(name, rule, lengths, side):
    model, inputs, output = prepared(name, rule, lengths, side)
    mine = "decoder_" if name == "bart" else ""
    ids = inputs[f"{mine}input_ids"]
    valid = inputs.get(f"{mine}attention_mask", torch.ones_like(ids)).bool()
    for token in range(1, LENGTH):
        other = (ids - 3 + 7) % (VOCABULARY - 3) + 3  # another token of the vocabulary
        later = torch.arange(LENGTH) >= token
        changed = torch.where(later & (ids != PAD), other, ids)
        got = run(model, inputs | {f"{mine}input_ids": changed})
        assert torch.equal(got[:, :token], output[:, :token])
        assert not torch.equal(got[:, token], output[:, token])
        # The encoder of BART keeps all of its own.
        cut = {key: x[:, :token] if key.startswith(mine) else x for key, x in inputs.items()}
        seen = valid[:, :token]
        assert_close(run(model, cut)[seen], output[:, :token][seen], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_packed_documents_do_not_see_each_other(name):
    model, inputs = tiny_jump_model(name), tiny_inputs(name)
    first, second = 5, LENGTH - 5
    position = torch.cat([torch.arange(first), torch.arange(second)]).expand(3, -1)
    packed = run(model, inputs, position_ids=position, use_cache=False)
    alone = run(model, {"input_ids": inputs["input_ids"][:, first:]})
    assert_close(packed[:, first:], alone, rtol=0, atol=1e-5)
    joined = assert_joins(model, inputs | {"position_ids": position, "use_cache": False})
    assert all(layer.mask.pairs is not None for layer in joined)


@pytest.mark.slow
@pytest.mark.parametrize("hops", [(1,), (0.0, 1.0)])
@pytest.mark.parametrize("pattern", ["window:4", "window:3+global:1", "strided:16"])
def test_long_inputs_leak_nothing_through_blocks_of_a_pattern(pattern, hops):
    length = 300  # long enough for blocks
    model = tiny_jump_model("llama", pattern=pattern, hop_weights=hops, **STRIDED)
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(3, VOCABULARY, (1, length), generator=generator)
    if hops != (1,):
        assert_joins(model, {"input_ids": ids, "use_cache": False})
    output = run(model, {"input_ids": ids})
    for token in (1, 140, 290):
        changed = ids.clone()
        changed[:, token:] = (ids[:, token:] - 3 + 7) % (VOCABULARY - 3) + 3
        got = run(model, {"input_ids": changed})
        assert torch.equal(got[:, :token], output[:, :token])
        assert not torch.equal(got[:, token], output[:, token])
        cut_short = run(model, {"input_ids": ids[:, :token]})
        assert_close(cut_short, output[:, :token], rtol=0, atol=1e-5)
