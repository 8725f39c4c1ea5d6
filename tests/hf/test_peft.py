"""The settings of jump heads go with the adapters of PEFT that were trained beside them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from huggingface_hub import ModelCard

from jat_graph import JatConfig
from jat_graph.hf import (
    attach,
    attached_config,
    detach,
    disabled,
    from_pretrained,
    save_heads,
    save_pretrained,
)
from tests.hf.encoders import SETTINGS
from tests.hf.models import run, tiny_config, tiny_inputs, tiny_jump_model, tiny_model
from tests.hf.test_adapter import lora

peft: Any = pytest.importorskip("peft")

# PEFT asks transformers by a name that is going away.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"
)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a plain model's folder."""
    tiny_model("bert").save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def adapted(base: Path, config: Any) -> Any:
    """Return a jump model with an adapter that changes it."""
    return lora(attach(hf.BertModel.from_pretrained(base), config))


@pytest.mark.slow
@pytest.mark.parametrize("at_hand", [None, "plain", "jumping"])
@pytest.mark.parametrize(
    "config", [tiny_config(), JatConfig.clustered(**SETTINGS)], ids=["jump", "cluster"]
)
def test_an_adapter_brings_its_heads(config, at_hand, base, tmp_path):
    model, inputs = adapted(base, config), tiny_inputs("bert")
    want = run(model, inputs)
    with disabled(model):
        assert not torch.allclose(run(model, inputs), want, atol=1e-4)
    save_pretrained(model, tmp_path / "adapter")
    own = hf.AutoModel.from_pretrained(base) if at_hand else hf.AutoModel
    if at_hand == "jumping":
        attach(own, config)
    again = from_pretrained(own, tmp_path / "adapter")
    assert isinstance(again, peft.PeftModel)
    assert torch.equal(run(again.eval(), inputs), want)
    save_pretrained(again, tmp_path / "second")
    assert torch.equal(run(from_pretrained(hf.AutoModel, tmp_path / "second"), inputs), want)


def test_what_peft_saved_alone_is_refused_or_takes_the_heads_of_its_base(base, tmp_path):
    model, inputs = adapted(base, tiny_config()), tiny_inputs("bert")
    want = run(model, inputs)
    model.save_pretrained(tmp_path / "adapter")
    with pytest.raises(ValueError, match=r"jat_graph\.save_pretrained"):
        from_pretrained(hf.AutoModel, tmp_path / "adapter")
    at_hand = attach(hf.BertModel.from_pretrained(base), tiny_config())
    assert torch.equal(run(from_pretrained(at_hand, tmp_path / "adapter"), inputs), want)
    save_heads(model, tmp_path / "adapter")  # as a callback of a Trainer may
    assert torch.equal(run(from_pretrained(hf.AutoModel, tmp_path / "adapter"), inputs), want)


@pytest.mark.filterwarnings("ignore:Unexpected keyword arguments:UserWarning")
def test_adapters_of_before_are_read(base, tmp_path):
    model, inputs = adapted(base, tiny_config()), tiny_inputs("bert")
    model.save_pretrained(tmp_path)
    path = tmp_path / "adapter_config.json"
    key = "jump heads: load it with jat_graph.from_pretrained"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {key: {"jat": tiny_config().to_dict()}})
    )
    again = from_pretrained(hf.AutoModel, tmp_path)
    assert torch.equal(run(again, inputs), run(model, inputs))


def test_a_checkpoint_of_its_own_trainer_is_loaded_again(base, tmp_path):
    model, inputs = adapted(base, tiny_config()), tiny_inputs("bert")
    want = run(model, inputs)
    save_pretrained(model, tmp_path)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.zero_()
    assert not torch.equal(run(model, inputs), want)
    model.load_adapter(str(tmp_path), "default", is_trainable=True)  # as a Trainer does
    assert torch.equal(run(model, inputs), want)


def test_it_is_trained_on_where_that_is_asked_for(base, tmp_path):
    save_pretrained(adapted(base, tiny_config()), tmp_path)
    for wish in (False, True):
        model = from_pretrained(hf.AutoModel, tmp_path, is_trainable=wish)
        assert any(weight.requires_grad for weight in model.parameters()) == wish


def test_other_heads_on_the_base_are_refused(base, tmp_path):
    save_pretrained(adapted(base, tiny_config()), tmp_path / "adapter")
    other = attach(hf.BertModel.from_pretrained(base), tiny_config(threshold=0.5))
    with pytest.raises(ValueError, match=r"BertModel must have the heads that the adapter in .*"):
        from_pretrained(other, tmp_path / "adapter")
    assert not hasattr(other, "peft_config")
    from_pretrained(detach(other), tmp_path / "adapter")


def test_a_base_that_was_saved_with_the_heads_has_them_once(tmp_path):
    jumping, inputs = tiny_jump_model("bert"), tiny_inputs("bert")
    jumping.save_pretrained(tmp_path / "base")
    model = lora(from_pretrained(hf.BertModel, tmp_path / "base"))
    want = run(model, inputs)
    save_pretrained(model, tmp_path / "adapter")
    again = from_pretrained(hf.AutoModel, tmp_path / "adapter")
    assert torch.equal(run(again, inputs), want)
    assert attached_config(again) == tiny_config()


@pytest.mark.slow
def test_adapters_that_transformers_added_carry_them_too(base, tmp_path):
    model, inputs = attach(hf.BertModel.from_pretrained(base), tiny_config()), tiny_inputs("bert")
    model.add_adapter(peft.LoraConfig(target_modules=["query"], init_lora_weights=False))
    want = run(model.eval(), inputs)
    save_pretrained(model, tmp_path / "adapter")
    again = from_pretrained(hf.AutoModel, tmp_path / "adapter").eval()
    assert torch.equal(run(again, inputs), want)


def test_an_adapter_of_no_model_wants_one(tmp_path):
    model, inputs = lora(tiny_jump_model("bert")), tiny_inputs("bert")
    save_pretrained(model, tmp_path)  # its base was never saved
    with pytest.raises(ValueError, match=r"no base model: use from_pretrained\(MODEL, FOLDER\)"):
        from_pretrained(hf.AutoModel, tmp_path)
    again = from_pretrained(tiny_model("bert"), tmp_path).eval()
    assert torch.equal(run(again, inputs), run(model, inputs))


def test_its_card_says_how_to_load_it(base, tmp_path):
    model, inputs = adapted(base, tiny_config()), tiny_inputs("bert")
    folder = tmp_path / "adapter"
    for _ in range(2):  # the second card is written over the first
        save_pretrained(model, folder)
    text = (folder / "README.md").read_text(encoding="utf-8")
    card = ModelCard(text)
    assert card.data.library_name == "peft" and "jat_graph" in card.data.tags
    assert "More Information Needed" not in text and "jump heads" in text
    (lines,) = re.findall(r"```python\n(.*?)```", card.text, re.DOTALL)
    found: dict[str, Any] = {}
    exec(lines.replace("FOLDER", str(folder)), found)
    assert torch.equal(run(found["model"].eval(), inputs), run(model, inputs))
