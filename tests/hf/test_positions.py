"""Position tables: stretched ones know the old positions, and longer inputs are refused."""

import re

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor, nn
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    WhisperConfig,
    WhisperModel,
)

from jat_graph.hf import attach, detach, resize_position_embeddings
from tests.hf.models import (
    LENGTH,
    PAD,
    VOCABULARY,
    run,
    tiny_config,
    tiny_inputs,
    tiny_jump_model,
    tiny_model,
)

LEARNED = ("bert", "roberta", "distilbert", "albert", "electra", "gpt2", "opt", "bart")
ROWS = 64  # max_position_embeddings of the tiny models
LONGER = 150


def tokens(length: int, batch: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {"input_ids": torch.randint(3, VOCABULARY, (batch, length), generator=generator)}


def model_of(name: str) -> PreTrainedModel:
    rows = {"max_position_embeddings": ROWS} if name == "distilbert" else {}
    return tiny_model(name, **rows)


def longest(name: str) -> int:
    return ROWS - 1 if name == "roberta" else ROWS  # the row of padding is no token's


def tables(model: nn.Module) -> list[Tensor]:
    named = model.named_parameters()
    return [weight for name, weight in named if re.search(r"\b(wpe|\w*position\w*)\.", name)]


@pytest.mark.parametrize("name", LEARNED)
def test_a_stretched_table_repeats_its_rows_and_takes_the_new_length_and_no_more(name):
    model, inputs = model_of(name), tiny_inputs(name, (LENGTH, 7))
    before, length = tables(model), longest(name)
    whole = tokens(length)
    wanted, wanted_whole = run(model, inputs), run(model, whole)
    assert resize_position_embeddings(model, LONGER) is model
    assert torch.equal(run(model, inputs), wanted)
    assert torch.equal(run(model, whole), wanted_whole)
    after = tables(model)
    assert len(before) == len(after) == (2 if name == "bart" else 1)
    for old, new in zip(before, after, strict=True):
        first = len(old) - length
        assert len(new) == LONGER + first
        assert new.requires_grad and new.is_leaf
        for row in range(len(new)):
            source = row if row < first else (row - first) % length + first
            assert torch.equal(new[row], old[source])
    attach(model, tiny_config())
    assert model.config.max_position_embeddings == LONGER + (ROWS - length)
    assert bool(run(model, tokens(LONGER)).isfinite().all())
    with pytest.raises(ValueError, match=rf"positions for {LONGER} tokens, got {LONGER + 1}: cut"):
        run(model, tokens(LONGER + 1))


@pytest.mark.parametrize("embedded", [False, True])
@pytest.mark.parametrize("name", LEARNED)
def test_an_input_longer_than_the_table_is_refused_in_one_line(name, embedded):
    model, length = attach(model_of(name), tiny_config()), longest(name)
    inputs = tokens(length + 2, batch=2)
    if embedded and name != "bart":  # BART's model needs the tokens to shift them
        words = model.get_input_embeddings()
        inputs = {"inputs_embeds": words(inputs["input_ids"]).detach()}
    message = rf"for {length} tokens, got {length + 2}: cut texts.*resize_position_embeddings"
    with pytest.raises(ValueError, match=message):
        model(**inputs)
    if name != "bart" and not embedded:
        with pytest.raises(ValueError, match=message):
            model(inputs["input_ids"])
    detach(model)
    with pytest.raises((IndexError, RuntimeError)):
        model(**inputs)


def test_a_tokenizer_that_is_given_cuts_at_the_new_length(tmp_path):
    words = {"[PAD]": PAD, "[UNK]": PAD + 1}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="[UNK]")), model_max_length=ROWS
    )
    resize_position_embeddings(model_of("bert"), LONGER)
    assert tokenizer.model_max_length == ROWS
    resize_position_embeddings(model_of("bert"), LONGER, tokenizer)
    tokenizer.save_pretrained(tmp_path)
    loaded = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert loaded.model_max_length == LONGER


@pytest.mark.parametrize("name", ["gpt2", "opt", "roberta"])
def test_padding_is_no_position(name):
    model, length = attach(model_of(name), tiny_config()), longest(name)
    ids = tokens(length)["input_ids"]
    wanted = run(model, {"input_ids": ids})
    padded = torch.cat([torch.full((1, 5), PAD), ids], dim=-1)
    mask = (padded != PAD).long()
    inputs = {"input_ids": padded, "attention_mask": mask}
    if name == "gpt2":
        inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    torch.testing.assert_close(run(model, inputs)[:, 5:], wanted, rtol=0, atol=1e-5)


def test_a_cache_counts_as_length():
    model, ids = tiny_jump_model("gpt2"), tokens(ROWS + 1)["input_ids"]
    cache = model(input_ids=ids[:, :-1], use_cache=True).past_key_values
    with pytest.raises(ValueError, match=f"for {ROWS} tokens, got {ROWS + 1}"):
        model(input_ids=ids[:, -1:], past_key_values=cache)


def test_a_table_that_the_configuration_does_not_count_is_named():
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 99}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    model = WhisperModel(WhisperConfig(**sizes, **heads, pad_token_id=0))
    message = "to resize: max_position_embeddings does not count .*decoder.embed_positions"
    with pytest.raises(ValueError, match=message):
        resize_position_embeddings(model, LONGER)


def test_a_table_under_another_name_is_found():
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
    more = {"num_attention_heads": 4, "vocab_size": 99, "max_position_embeddings": ROWS}
    model = CLIPTextModel(CLIPTextConfig(**sizes, **more)).eval()
    with torch.no_grad():
        want = model(**tokens(ROWS)).last_hidden_state
        resize_position_embeddings(model, LONGER)
        found = model(**tokens(LONGER)).last_hidden_state
    torch.testing.assert_close(found[:, :ROWS], want)


@pytest.mark.parametrize("name", ["llama", "modernbert", "vit"])
def test_models_without_a_learned_table_are_refused(name):
    with pytest.raises(ValueError, match="has no learned position table"):
        resize_position_embeddings(model_of(name), LONGER)


def test_a_shorter_table_is_refused_and_the_same_length_changes_nothing():
    model = tiny_model("roberta")
    with pytest.raises(ValueError, match=r"max_length must be at least 63, got 62"):
        resize_position_embeddings(model, 62)
    (before,) = tables(model)
    resize_position_embeddings(model, 63)
    (after,) = tables(model)
    assert torch.equal(after, before)
    assert model.config.max_position_embeddings == ROWS
