"""What holds one model of transformers is taken in its place, as a SentenceTransformer is."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer

from jat_graph import JatConfig, attach, calibrate, detach, disabled
from jat_graph.hf import attached_config, resize_position_embeddings, save_pretrained, summary
from jat_graph.inspection import inspect_text
from tests.hf.models import run, tiny_config, tiny_inputs, tiny_jump_model, tiny_model


class Transformer(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


def test_the_model_inside_gets_heads_and_positions() -> None:
    model, inputs = tiny_model("bert"), tiny_inputs("bert")
    base, outer = run(model, inputs), nn.Sequential(Transformer(model), nn.Identity()).eval()
    assert attach(resize_position_embeddings(outer, 100), tiny_config()) is outer
    run(model, {"input_ids": torch.arange(90)[None] % 40 + 3})
    assert torch.equal(run(model, inputs), run(tiny_jump_model("bert"), inputs))
    assert attached_config(outer) == attached_config(model) == tiny_config()
    with disabled(outer):
        assert torch.equal(run(model, inputs), base)
    assert torch.equal(run(detach(outer)[0].model, inputs), base)
    with pytest.raises(ValueError, match="or hold one, got BertModel, GPT2LMHeadModel"):
        attach(nn.ModuleList([tiny_model("bert"), tiny_model("gpt2")]), tiny_config())


@pytest.mark.parametrize("work", [detach, attached_config, summary, calibrate, save_pretrained])
def test_what_is_no_model_is_named(work: Callable[..., object]) -> None:
    given = {calibrate: [[]], save_pretrained: ["folder"]}.get(work, [])
    with pytest.raises(ValueError, match=r"^model must be a model of transformers, got str$"):
        work("abc", *given)


def test_the_model_inside_is_calibrated_and_looked_at(minilm_path: str) -> None:
    tokenizer, model = (kind.from_pretrained(minilm_path) for kind in (AutoTokenizer, AutoModel))
    outer, text = nn.Sequential(Transformer(model)), "Book costs more than pencil."
    batch = tokenizer(text, return_tensors="pt")
    attach(outer, calibrate(outer, [batch] * 2, density=0.2, config=JatConfig(layers=(1,))))
    assert inspect_text(outer, tokenizer, text) == inspect_text(model, tokenizer, text)
