"""A model that was saved with heads never runs without them unsaid, whoever loads it."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from transformers import AutoModel

from jat_graph import JatConfig, attach, detach, from_pretrained
from jat_graph.hf import save_pretrained
from tests.hf.models import run, tiny_config, tiny_inputs, tiny_model

peft: Any = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings(
    "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"
)

KINDS: dict[str, Any] = {
    "pairs": tiny_config(),
    "stones": JatConfig.stones(),  # with weights of their own
    "clusters": JatConfig.clustered(),
}
INPUTS = tiny_inputs("bert")


def as_sentence_transformers_does(folder: Path, **model_kwargs: Any) -> Any:
    config = hf.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    return AutoModel.from_pretrained(folder, config=config, **model_kwargs)


def in_a_pipeline(folder: Path, **model_kwargs: Any) -> Any:
    hf.BertTokenizer(vocab={"[UNK]": 0, "[PAD]": 1}).save_pretrained(folder)
    return hf.pipeline("feature-extraction", str(folder), model_kwargs=model_kwargs).model


WAYS = [(kind, "sdpa", AutoModel.from_pretrained) for kind in KINDS]
WAYS += [("pairs", "eager", load) for load in (as_sentence_transformers_does, in_a_pipeline)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "attention", "loader"), WAYS)
def test_whoever_loads_a_model_without_its_heads_is_told(kind, attention, loader, tmp_path):
    model = attach(tiny_model("bert"), KINDS[kind])
    model.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=r"runs without them: jat_graph\.from_pretrained") as said:
        plain = loader(tmp_path, attn_implementation=attention)
    assert all(str(tmp_path) in str(one.message) for one in said)
    attached = attach(copy.deepcopy(plain), KINDS[kind])
    run(attached, INPUTS)  # nothing more is said, nor here
    detach(attached).save_pretrained(tmp_path / "base")
    assert "jat" not in (tmp_path / "base" / "config.json").read_text()
    base = run(tiny_model("bert"), INPUTS)
    torch.testing.assert_close(run(plain, INPUTS), base, rtol=0, atol=1e-5)
    again = from_pretrained(AutoModel, tmp_path, attn_implementation=attention)
    assert torch.equal(run(again, INPUTS), run(model, INPUTS))


def test_peft_alone_refuses_adapters_and_ours_come_side_by_side(tmp_path):
    tiny_model("bert").save_pretrained(tmp_path / "base")
    base, folder = hf.BertModel.from_pretrained(tmp_path / "base"), tmp_path / "adapters"
    options = {"init_lora_weights": False, "task_type": "FEATURE_EXTRACTION"}
    first, second = (peft.LoraConfig(target_modules=[x], **options) for x in ("query", "key"))
    model = peft.get_peft_model(attach(base, tiny_config()), first)
    model.add_adapter("second", second)
    for _ in range(2):
        save_pretrained(model, folder)
    plain = hf.BertModel.from_pretrained(tmp_path / "base")
    for load in (
        lambda: peft.PeftModel.from_pretrained(plain, str(folder)),
        lambda: peft.PeftModel.from_pretrained(plain, str(folder / "second")),
        lambda: plain.load_adapter(str(folder)),
        lambda: AutoModel.from_pretrained(folder),
    ):
        with pytest.raises(ValueError, match=r"'jump heads: load it with jat_graph\.from_pre.*'"):
            load()
    again = from_pretrained(AutoModel, folder)
    assert from_pretrained(again, folder / "second", adapter_name="second") is again
    for name, config in again.peft_config.items():
        model.set_adapter(name)
        again.set_adapter(name)
        assert config.task_type == "FEATURE_EXTRACTION"
        assert torch.equal(run(again.eval(), INPUTS), run(model.eval(), INPUTS))
