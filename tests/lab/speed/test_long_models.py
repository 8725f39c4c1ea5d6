"""Encoders of one shape: the same weights where names agree, and no dropout anywhere.

What is wrong with one shows before anything is timed.
"""

from dataclasses import replace

import pytest
import torch

from jat_graph.lab.speed import long_models
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.long_models import (
    ALONE,
    BIGBIRD,
    CONFIGS,
    JUMPS,
    LONGFORMER,
    MODERNBERT,
    PATTERN,
    SAMPLED,
    SHAPE,
    STOCK,
    STONES,
    allowed_keys,
    build_side,
    check_side,
    dense_mask,
    is_sparse,
    stock_copy,
)
from jat_graph.lab.speed.series import Settings

pytestmark = pytest.mark.usefixtures("quick")

SIDES = (JUMPS, SAMPLED, ALONE, STONES, STOCK, LONGFORMER, BIGBIRD, MODERNBERT)


def test_the_shape_is_that_of_minilm(minilm_path: str) -> None:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(minilm_path)
    assert {name: getattr(config, name) for name in SHAPE} == SHAPE


@pytest.mark.parametrize("side", SIDES)
def test_no_side_drops_anything(side: str, settings: Settings) -> None:
    step = build_side(side, 64, settings)
    assert step.model.training
    rates = [m.p for m in step.model.modules() if isinstance(m, torch.nn.Dropout)]
    assert rates and set(rates) == {0.0}
    first, second = step.loss(), step._loss(step.batch)  # the second one without a seed
    assert first == second
    for name in ("attention_probs_dropout_prob", "attention_dropout"):
        assert getattr(step.model.config, name, 0.0) == 0.0


@pytest.mark.parametrize("side", [LONGFORMER, BIGBIRD, ALONE])
def test_equal_names_have_equal_weights(side: str, settings: Settings) -> None:
    own, stock = (build_side(s, 64, settings).model.base_model for s in (side, STOCK))
    own, stock = own.state_dict(), stock.state_dict()
    name = "encoder.layer.1.attention.self.value.weight"
    assert torch.equal(own[name], stock[name])
    assert torch.equal(own["embeddings.word_embeddings.weight"],
                       stock["embeddings.word_embeddings.weight"])  # fmt: skip


def test_our_sides_differ_in_their_settings_alone(settings: Settings) -> None:
    jumps, alone = (build_side(side, 64, settings).model for side in (JUMPS, ALONE))
    weights = zip(jumps.parameters(), alone.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)
    assert {config.pattern for config in CONFIGS.values()} == {PATTERN}
    assert CONFIGS[ALONE].hop_weights == (1.0,)
    assert stock_copy(jumps).config._attn_implementation == "sdpa"


def test_longformer_has_one_global_token(settings: Settings) -> None:
    mask = build_side(LONGFORMER, 64, settings).batch["global_attention_mask"]
    assert mask.sum() == mask[0, 0] == 1


def test_bigbird_stays_sparse_on_long_inputs_only(settings: Settings) -> None:
    # The trap: on short inputs it turns itself dense for good, and says so in a log line.
    for length, sparse in ((768, True), (512, False)):
        step = build_side(BIGBIRD, length, settings)
        step.warm_up(1024)
        assert is_sparse(step.model) == sparse
    assert is_sparse(build_side(STOCK, 64, settings).model)


def test_the_dense_mask_is_that_of_the_claim() -> None:
    place = torch.arange(600)
    apart = (place[:, None] - place).abs()
    wanted = (apart < 256) | (place == 0) | (place[:, None] == 0)
    assert torch.equal(dense_mask(600, torch.device("cpu"))[0, 0], wanted)
    assert torch.equal(allowed_keys(place[[3, 500]], 600), wanted[[3, 500]])


def test_right_sides_pass(settings: Settings) -> None:
    facts = check_side("step", build_side(JUMPS, 300, settings), CONFIGS[JUMPS])
    assert facts["joined"] >= 0.6
    assert not check_side("step", build_side(STONES, 300, settings), CONFIGS[STONES])


def test_another_pattern_is_refused(settings: Settings, monkeypatch) -> None:
    step = build_side(JUMPS, 64, settings)
    monkeypatch.setattr(long_models, "PATTERN", "window:8+global:1")
    with pytest.raises(CheckError, match=r"^step, outputs with an infinite threshold: "):
        check_side("step", step, CONFIGS[JUMPS])


@pytest.mark.parametrize(
    ("side", "nothing"), [(JUMPS, {"hop_weights": (1.0,)}), (STONES, {"strength": 0.0})]
)
def test_jumps_that_change_nothing_are_refused(side, nothing, settings: Settings) -> None:
    step = build_side(side, 64, settings)
    with pytest.raises(CheckError, match="the loss with jump heads must be finite and differ"):
        check_side("step", step, replace(CONFIGS[side], **nothing))
