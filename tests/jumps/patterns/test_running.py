"""Jump attention whose scores are read within a pattern."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jat_graph import JatConfig, PairGraph, jump_attention
from jat_graph.patterns import Pattern, Window, parse_pattern
from tests.oracles import reference_mask
from tests.support import (
    CAUSAL_MASKS,
    MASKS,
    PADDING_MASKS,
    assert_equal,
    check_against_oracle,
    configs,
    heads_and_masks,
    random_tensors,
    with_half_joined,
)

# Each pattern as a rule of its own, over head, query and key.
RULES = {
    "window:1": lambda h, q, k: q == k,
    "window:3": lambda h, q, k: abs(q - k) < 3,
    "window:2+global:1": lambda h, q, k: abs(q - k) < 2 or q < 1 or k < 1,
    "global:99": lambda h, q, k: True,
    "window:4&causal": lambda h, q, k: 0 <= q - k < 4,
}
PER_HEAD = "strided:3"  # rows and columns in turns


def readable(spec, case):
    """Return where a pattern reads scores, pair by pair; it counts valid tokens only."""
    valid = reference_mask(case.query, case.mask).visible.any(-2)
    ranks = (valid.long().cumsum(-1) - 1).clamp(min=0)
    allowed = torch.zeros(*case.query.shape[:3], case.query.size(2), dtype=torch.bool)
    for b, h, i, k in torch.cartesian_prod(*map(torch.arange, allowed.shape)).tolist():
        pair = int(ranks[b, h, i]), int(ranks[b, h, k])
        allowed[b, h, i, k] = bool(valid[b, h, i]) and RULES[spec](h, *pair)
    return allowed


@pytest.mark.slow
@pytest.mark.parametrize("spec", RULES)
@pytest.mark.parametrize("masks", [PADDING_MASKS, CAUSAL_MASKS, MASKS])
@given(data=st.data())
@settings(max_examples=8)
def test_values_and_gradients_are_the_oracles(spec, masks, data):
    case = data.draw(heads_and_masks(masks))
    selectable = masks if masks != MASKS else ("any",)
    config = data.draw(configs("auto", selectable, case.query.size(1)))
    config = dataclasses.replace(with_half_joined(config, case, least_pairs=0), pattern=spec)
    check_against_oracle(config, case, pattern=readable(spec, case))


@pytest.mark.parametrize("hops", [(0, 1), {(0, 2): (0, 1), (1, 3): (0.5, 0.5)}])
def test_heads_keep_their_own_rule_in_whatever_group_they_run(hops):
    """Even heads read their neighbours, odd ones a column."""
    query, key, value = random_tensors(5, *[(1, 4, 10, 4)] * 3)
    pattern = parse_pattern(PER_HEAD)
    assert pattern.period == 2
    config = JatConfig(PairGraph(threshold=0.5), hop_weights=hops, pattern=pattern)
    output = jump_attention(query, key, value, config=config)
    for head in range(4):
        single = slice(head, head + 1)
        own = config.hop_weights if isinstance(hops, tuple) else hops[(head % 2, head % 2 + 2)]
        alone = dataclasses.replace(config, hop_weights=own, pattern=pattern.of_head(head))
        tensors = query[:, single], key[:, single], value[:, single]
        want = jump_attention(*tensors, config=alone)
        assert_equal(output[:, single], want)


def test_configs_keep_patterns_as_specs(tmp_path):
    config = JatConfig(pattern=Window(5) | parse_pattern("global:2"))
    assert config == JatConfig(pattern=" window:5 + global:2 ")
    assert config.to_dict()["pattern"] == "window:5+global:2"
    config.save(tmp_path / "jat.json")
    assert JatConfig.load(tmp_path / "jat.json") == config
    assert isinstance(config.attention_pattern(), Pattern)
    assert JatConfig().attention_pattern() is None
