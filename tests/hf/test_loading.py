"""Saved models keep their jump heads, and never load without them unnoticed."""

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from transformers import AutoModel, PreTrainedModel

from jat_graph import JatConfig
from jat_graph.hf import attach, attached_config, detach, disabled, from_pretrained, summary
from tests.hf.models import (
    ARCHITECTURES,
    run,
    tiny_config,
    tiny_inputs,
    tiny_jump_model,
    tiny_model,
)
from tests.hf.test_adapter import tiny_clip
from tests.hf.test_interface_training import gradients

ROOT = Path(__file__).resolve().parents[2]


def saved(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def settings_in(folder: Path) -> Any:
    return json.loads((folder / "config.json").read_text())


BY_NAME = [(name, {}) for name in ARCHITECTURES] + [
    ("bert", {"layers": (0, 2), "threshold": ((0.5, 1.0), (2.0, 3.0))}),
    ("bart", {"layers": (1, 2)}),
    ("gpt2", {"pattern": "window:3"}),
    ("bert", {"graph": "stones", "threshold": 0.5, "strength": (0.5, 0.2, 0.1)}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fields"), BY_NAME, ids=str)
def test_heads_without_weights_come_back_and_by_name_too(name, fields, tmp_path):
    model, inputs = tiny_jump_model(name, **fields), tiny_inputs(name)
    config, jumping = attached_config(model), run(model, inputs)
    with disabled(model):
        base = run(model, inputs)
    folder = saved(model, tmp_path / "first")
    kwargs = {"add_pooling_layer": False} if name == "vit" else {}
    auto = hf.AutoModelForCausalLM if name in ("gpt2", "llama") else AutoModel
    ours = from_pretrained(auto, folder, **kwargs)
    asked = auto.from_pretrained(folder, attn_implementation="jat", **kwargs)
    plain = auto.from_pretrained(folder, **kwargs)  # its configuration asks
    for loaded in (ours, asked, plain):
        assert torch.equal(run(loaded, inputs), jumping)
    twins = [ours, plain, copy.deepcopy(asked), pickle.loads(pickle.dumps(asked))]
    for number, loaded in enumerate((ours, asked)):
        again = saved(loaded, tmp_path / str(number))
        assert settings_in(again)["jat"] == settings_in(folder)["jat"]
        assert settings_in(again)["attn_implementation"] == "jat (import jat_graph.hf first)"
        twins += [from_pretrained(type(model), again, **kwargs)]
        twins += [auto.from_pretrained(again, **kwargs)]
    for twin in twins:
        assert attached_config(twin) == config
        assert torch.equal(run(twin, inputs), jumping)
        with disabled(twin):
            assert torch.equal(run(twin, inputs), base)
        assert summary(twin) == summary(model)
        assert detach(twin).config._attn_implementation == "sdpa"
        assert torch.equal(run(twin, inputs), base)
        assert "jat" not in twin.config.to_dict()
    assert torch.equal(run(asked, inputs), jumping)
    asked.set_attn_implementation("sdpa")
    assert torch.equal(run(asked, inputs), base)


FRESH = """
import sys
from transformers import AutoModel
for folder in sys.argv[1:]:
    try:
        AutoModel.from_pretrained(folder)
    except ValueError as error:
        assert "import jat_graph.hf first" in str(error), error
    else:
        raise SystemExit(f"{folder} loaded without its jump heads")
print("all refused")
"""


def in_a_fresh_process(code: str, *arguments: Path) -> str:
    """Return what some code prints."""
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def trainer_checkpoint(folder: Path) -> Path:
    """Train a classifier for one step and return its checkpoint."""
    torch.manual_seed(0)
    model = hf.BertForSequenceClassification(tiny_model("bert").config)
    data = [{"input_ids": row, "labels": 0} for row in tiny_inputs("bert")["input_ids"]]
    settings = hf.TrainingArguments(
        output_dir=str(folder), max_steps=1, save_steps=1, use_cpu=True, disable_tqdm=True
    )
    hf.Trainer(model=attach(model, tiny_config()), args=settings, train_dataset=data).train()
    return folder / "checkpoint-1"


@pytest.mark.slow
def test_without_the_library_every_save_refuses_to_load(tmp_path):
    folders = [saved(tiny_jump_model("bert"), tmp_path / "first")]
    for again in ("second", "third"):
        folders.append(saved(from_pretrained(AutoModel, folders[-1]), tmp_path / again))
    folders.append(saved(attach(tiny_clip()[0], tiny_config(heads=2)), tmp_path / "clip"))
    folders.append(trainer_checkpoint(tmp_path / "trained"))
    assert in_a_fresh_process(FRESH, *folders) == "all refused"


STARTED = """
import pickle, sys
import jat_graph.hf
from transformers import AttentionInterface
assert "jat" in AttentionInterface().valid_keys()
unused = {"numba", "pandas", "torch_geometric"} & set(sys.modules)
assert not unused, unused
model, inputs, wanted = pickle.load(open(sys.argv[1], "rb"))
assert (model(**inputs).last_hidden_state == wanted).all()
print("ready")
"""


@pytest.mark.slow
def test_a_fresh_process_starts_lightly_and_runs_a_pickled_model(tmp_path):
    model, inputs = tiny_jump_model("bert"), tiny_inputs("bert")
    (tmp_path / "model").write_bytes(pickle.dumps((model, inputs, run(model, inputs))))
    assert in_a_fresh_process(STARTED, tmp_path / "model") == "ready"


@pytest.mark.parametrize("first", [summary, attached_config, None])
def test_by_name_they_are_saved_before_any_call(first, tmp_path):
    model, inputs = tiny_jump_model("bert"), tiny_inputs("bert")
    loaded = AutoModel.from_pretrained(saved(model, tmp_path / "first"))
    assert first is None or first(loaded) == first(model)  # whoever asks for them attaches them
    saved(loaded, tmp_path / "second")
    needed = settings_in(tmp_path / "second")["attn_implementation"]
    assert needed == "jat (import jat_graph.hf first)"
    again = AutoModel.from_pretrained(tmp_path / "second")
    assert torch.equal(run(again, inputs), run(model, inputs))


def test_by_name_they_train_as_attached_ones_do(tmp_path):
    model, inputs = tiny_jump_model("bert").train(), tiny_inputs("bert")
    loaded = AutoModel.from_pretrained(saved(model, tmp_path), attn_implementation="jat").train()
    loaded.activation_checkpointing_enable()
    wanted, got = gradients(model, inputs), gradients(loaded, inputs)
    assert got.keys() == wanted.keys()
    assert all(torch.equal(got[name], grad) for name, grad in wanted.items())


def test_what_cannot_come_by_name_alone_says_so_at_the_first_call(tmp_path):
    wanted = "jat_graph.from_pretrained"
    silent = tiny_config(graph="stones", threshold=0.5, strength=0.5, excluded_token_ids=(1,))
    cases = [
        ("bert", JatConfig.stones()),
        ("bert", tiny_config(conv="GCNConv")),
        ("distilbert", tiny_config(layers=(1,))),  # whose modules do not know their layer
        ("bert", silent),
    ]
    for number, (name, config) in enumerate(cases):
        model, inputs = attach(tiny_model(name), config), tiny_inputs(name)
        want, folder = run(model, inputs), saved(model, tmp_path / str(number))
        loaded = AutoModel.from_pretrained(folder, attn_implementation="jat")
        for _ in range(2):
            with pytest.raises(ValueError, match=wanted) as caught:
                run(loaded, inputs)
            assert "\n" not in str(caught.value)
        assert torch.equal(run(from_pretrained(AutoModel, folder), inputs), want)
    decoder = saved(tiny_jump_model("gpt2"), tmp_path / "gpt2")
    loaded = hf.AutoModelForCausalLM.from_pretrained(decoder, attn_implementation="jat")
    with pytest.raises(ValueError, match=wanted):
        loaded.generate(tiny_inputs("gpt2")["input_ids"], max_new_tokens=2)
    plain = AutoModel.from_pretrained(
        saved(tiny_model("bert"), tmp_path / "plain"), attn_implementation="jat"
    )
    with pytest.raises(ValueError, match="no settings of heads"):
        run(plain, tiny_inputs("bert"))


@pytest.mark.parametrize("kind", ["strengths", "layers"])
def test_what_heads_have_learned_comes_back(kind, tmp_path):
    settings: dict[str, Any] = {
        "strengths": JatConfig.stones(excluded_token_ids=(17, 29)),
        "layers": tiny_config(conv="GCNConv", strength="learned"),
    }
    model, inputs = attach(tiny_model("bert"), settings[kind]), tiny_inputs("bert")
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if any(part in path for part in ("strength", "jump_conv")):
                weight.add_(0.3)
    want = run(model, inputs)
    with disabled(model):
        assert not torch.allclose(run(model, inputs), want, atol=1e-4)
    folder = saved(model, tmp_path)
    loaded, report = from_pretrained(AutoModel, folder, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys"))
    assert torch.equal(run(loaded, inputs), want)


@pytest.mark.slow
def test_a_model_built_from_a_saved_configuration_has_its_heads(tmp_path):
    model, inputs = tiny_jump_model("bert"), tiny_inputs("bert")
    built = AutoModel.from_config(hf.AutoConfig.from_pretrained(saved(model, tmp_path))).eval()
    built.load_state_dict(model.state_dict())
    with pytest.raises(ValueError, match="already has jump heads"):
        attach(built, tiny_config())
    assert torch.equal(run(built, inputs), run(model, inputs))


def test_arguments_of_transformers_are_passed_on(tmp_path):
    folder = saved(tiny_jump_model("bert"), tmp_path)
    half = from_pretrained(AutoModel, str(folder), dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
    eager = from_pretrained(AutoModel, folder, attn_implementation="eager")
    assert detach(eager).config._attn_implementation == "eager"
    config = hf.AutoConfig.from_pretrained(folder, num_labels=5)
    classifier = from_pretrained(
        hf.AutoModelForSequenceClassification, folder, config=config, local_files_only=True
    )
    assert classifier.num_labels == 5
    assert attached_config(classifier) == tiny_config()
    model, report = from_pretrained(AutoModel, folder, output_loading_info=True)
    assert attached_config(model) == tiny_config()
    assert not report["missing_keys"]


def test_a_model_without_jump_heads_is_refused(tmp_path):
    folder = saved(tiny_model("bert"), tmp_path)
    with pytest.raises(ValueError, match=r"saved without heads of jat_graph"):
        from_pretrained(AutoModel, folder)
    with pytest.raises(ValueError, match=r"got '.*nowhere': no such folder"):
        from_pretrained(AutoModel, tmp_path / "nowhere", local_files_only=True)
    with pytest.raises(ValueError, match="must hold an adapter when a model is given, got none"):
        from_pretrained(tiny_model("bert"), folder)


@pytest.mark.parametrize(
    "arguments", [("folder",), (None, "folder"), (AutoModel,), (AutoModel, "")]
)
def test_what_cannot_load_anything_is_refused_in_one_line(arguments):
    wanted = r"takes a class of transformers and a folder, as in from_pretrained\(AutoModel, '.*'\)"
    with pytest.raises(ValueError, match=wanted) as caught:
        from_pretrained(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"version": 99}, "version must be at most 3 .* got 99"),
        ({"color": "red"}, "unknown config field 'color'"),
        ("red", "saved without heads of jat_graph"),
    ],
)
def test_settings_of_another_version_are_refused(settings, message, tmp_path):
    folder = saved(tiny_jump_model("bert"), tmp_path)
    config = settings_in(folder)
    config["jat"] = config["jat"] | settings if isinstance(settings, dict) else settings
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        from_pretrained(AutoModel, folder)
    if isinstance(settings, dict):  # the base is there all the same
        with pytest.warns(UserWarning, match="runs without them"):
            AutoModel.from_pretrained(folder, attn_implementation="sdpa")
