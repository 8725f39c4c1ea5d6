"""Nothing of another library is replaced, and what others keep in a configuration stays."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

import jat_graph
from jat_graph import JatConfig, attach, detach
from jat_graph.hf import attached_config, from_pretrained
from tests.hf.models import run, tiny_config, tiny_inputs, tiny_jump_model, tiny_model
from tests.hf.test_adapter import run_clip, tiny_clip

ROOT = Path(__file__).resolve().parents[2]

IMPORTED = """
import importlib, inspect, pkgutil, sys, types, warnings
warnings.simplefilter("ignore")
import torch, transformers
import torch_geometric  # which replaces torch.select itself
from transformers import (
    AttentionInterface, AttentionMaskInterface, AutoConfig, AutoModel, AutoTokenizer,
    BertModel, DynamicCache, GenerationMixin, GPT2LMHeadModel, PreTrainedConfig, PreTrainedModel,
    PreTrainedTokenizerBase, Trainer, TrainerCallback, TrainingArguments, pipeline,
)
import transformers.integrations.sdpa_attention, transformers.masking_utils
try:
    import peft
except ImportError:
    pass
import torch.nn.functional, torch.utils.checkpoint, torch.utils.data, torch.optim

def theirs(name):
    return name.split(".")[0] in ("torch", "transformers", "peft")

def attributes():
    found = {}
    for name, module in list(sys.modules.items()):
        if theirs(name) and isinstance(module, types.ModuleType) and not name.startswith("torch._"):
            for key, value in list(vars(module).items()):
                if not isinstance(value, types.ModuleType):
                    found[name, key] = value
                if inspect.isclass(value) and theirs(value.__module__):
                    found |= {(name, key, inner): v for inner, v in list(vars(value).items())}
    return found

# What Python and torch fill in themselves, as numbers of hooks, and what one registers with.
own = "_abc_impl __abstractmethods__ __annotations__ __subclasshook__ __doc__ next_id".split()
before = attributes()
registered = [dict(x._global_mapping) for x in (AttentionInterface, AttentionMaskInterface)]
import jat_graph
for module in pkgutil.walk_packages(jat_graph.__path__, "jat_graph."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            assert not error.name.startswith("jat_graph"), error
after = attributes()
changed = [k for k, v in before.items() if after.get(k) is not v and k[-1] not in own]
added = [k for k in after if len(k) == 3 and k[:2] in before and k not in before]
added = [k for k in added if k[-1] not in own]
ours = [".".join(k) for k, v in after.items() if k not in before and inspect.isroutine(v)
        and (getattr(v, "__module__", None) or "").startswith("jat_graph")]
for x, names in zip((AttentionInterface, AttentionMaskInterface), registered):
    assert {k: v for k, v in x._global_mapping.items() if k in names} == names
assert len(before) > 10000
print(changed, added, ours)
"""


@pytest.mark.slow
def test_importing_all_of_it_changes_no_attribute_of_other_libraries():
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout.strip()) == (0, "[] [] []"), done.stderr[-2000:]


@pytest.mark.parametrize(
    ("name", "value"),
    [("triplet", {"heads": 3}), ("jat", {"heads": 2, "color": "red"}), ("attention_filter", "low")],
)
def test_what_somebody_else_keeps_in_a_configuration_stays(name, value, tmp_path):
    model, inputs = tiny_model("bert"), tiny_inputs("bert")
    setattr(model.config, name, value)
    model.save_pretrained(tmp_path / "plain")
    loaded = hf.AutoModel.from_pretrained(tmp_path / "plain")
    assert getattr(loaded.config, name) == value
    assert torch.equal(run(loaded, inputs), run(model, inputs))
    assert jat_graph.summary(loaded) == "BertModel has no jump heads"
    if name != "jat":
        jumping = run(attach(loaded, tiny_config()), inputs)
        loaded.save_pretrained(tmp_path / "jumping")
        again = from_pretrained(hf.AutoModel, tmp_path / "jumping")
        assert torch.equal(run(again, inputs), jumping)
        assert getattr(detach(again).config, name) == value
    else:
        with pytest.raises(ValueError, match=r"config\.jat must be free"):
            attach(loaded, tiny_config())


def test_models_of_one_configuration_are_each_right(tmp_path):
    shared = tiny_model("bert").config
    before = shared.to_dict()
    models = []
    for seed in range(3):
        torch.manual_seed(seed)
        models.append(hf.BertModel(shared).eval())
    inputs = tiny_inputs("bert")
    plain = [run(model, inputs) for model in models]
    configs: list[Any] = [tiny_config(threshold=0.0), JatConfig.stones(strength=0.5, threshold=0.5)]
    configs.append(JatConfig.clustered(keys=2, size=2, segment=4, dense_below=0))
    for model, config in zip(models, configs, strict=True):
        attach(model, config)
    assert shared.to_dict() == before and shared._attn_implementation == "sdpa"
    jumping = [run(model, inputs) for model in models]
    for number, model in enumerate(models):
        assert not torch.equal(jumping[number], plain[number])
        model.save_pretrained(tmp_path / str(number))
    left = set(range(3))
    for gone in (1, 0, 2):
        detach(models[gone]).save_pretrained(tmp_path / "plain")
        assert "jat" not in (tmp_path / "plain" / "config.json").read_text()
        assert torch.equal(run(models[gone], inputs), plain[gone])
        left.remove(gone)
        assert all(torch.equal(run(models[number], inputs), jumping[number]) for number in left)
        loaded = from_pretrained(hf.AutoModel, tmp_path / str(gone))
        assert torch.equal(run(loaded, inputs), jumping[gone])
    assert attached_config(hf.BertModel(shared)) is None


def test_two_towers_share_no_settings_with_their_twins():
    model, inputs = tiny_clip()
    twin = hf.CLIPModel(model.config).eval()
    want = run_clip(twin, inputs)
    attach(model, tiny_config(threshold=0.0, heads=2))
    assert torch.equal(run_clip(twin, inputs), want)


def test_what_a_configuration_learns_while_heads_are_on_stays(tmp_path):
    model = tiny_jump_model("bert")
    model.resize_token_embeddings(60)
    detach(model).save_pretrained(tmp_path)
    assert hf.AutoModel.from_pretrained(tmp_path).config.vocab_size == 60
