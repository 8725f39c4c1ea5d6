"""Loading: new heads, labels, and models that do not fit."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertForSequenceClassification,
    XLNetConfig,
    XLNetModel,
)

from jat_graph.files import check_model_name
from jat_graph.tasks import get_task
from jat_graph.training import train
from jat_graph.training.loading import load_for_training, load_trained, trained_length
from jat_graph.training.objectives import objective_for
from jat_graph.training.objectives.base import Objective
from jat_graph.training.options import TrainingOptions
from tests.training.support import Options


def classifier(tiny_model: str, folder: Path, labels: int) -> str:
    model = BertForSequenceClassification.from_pretrained(tiny_model, num_labels=labels)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder)
    return str(folder)


def objective(path: str, task: str, **changes: Any) -> Objective[Any]:
    return objective_for(get_task(task), TrainingOptions(path, task, "unused", **changes))


def test_the_head_follows_the_seed(tiny_model: str) -> None:
    heads = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        heads.append(load_for_training(objective(tiny_model, "mnli")).classifier.weight)
    assert heads[0].shape == (3, 32)
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])


def test_regression_has_one_output(tiny_model: str) -> None:
    model = load_for_training(objective(tiny_model, "stsb"))
    assert (model.config.num_labels, model.config.problem_type) == (1, "regression")


def test_a_fitting_head_is_kept_and_another_is_new(tiny_model: str, tmp_path: Path) -> None:
    two = classifier(tiny_model, tmp_path / "two", 2)
    kept = load_for_training(objective(two, "cola"))
    stored = BertForSequenceClassification.from_pretrained(two)
    assert torch.equal(kept.classifier.weight, stored.classifier.weight)
    assert load_for_training(objective(two, "mnli")).num_labels == 3


def test_weights_missing_below_the_head_are_named(
    tiny_model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    AutoModel.from_pretrained(tiny_model, add_pooling_layer=False).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path)
    with caplog.at_level(logging.WARNING, logger="jat_graph"):
        load_for_training(objective(str(tmp_path), "cola"))
    assert "bert.pooler.dense.weight" in caplog.text


def test_a_folder_that_lacks_the_model_is_not_asked_for_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    check_model_name("owner/model")
    with pytest.raises(ValueError, match="got 'runs/model': no such folder"):
        check_model_name("runs/model")
    (tmp_path / "runs" / "model").mkdir()
    check_model_name("runs/model")


def test_wrong_models_are_one_clear_line(tiny_model: str, tmp_path: Path) -> None:
    three = classifier(tiny_model, tmp_path / "three", 3)
    for path, words in (
        (three, "must have 2 labels for task cola, got 3"),
        (tiny_model, "must be a trained classifier (train it first), got BertModel"),
        ("/nowhere/model", "a folder or a Hub name to load, got '/nowhere/model': no such folder"),
        (str(tmp_path), "model must be a folder or a Hub name to load"),
    ):
        with pytest.raises(ValueError, match=re.escape(words)) as caught:
            load_trained(objective(path, "cola"))
        assert "\n" not in str(caught.value)


def test_labels_of_other_names_are_told(
    tiny_model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load_for_training(objective(tiny_model, "rte")).save_pretrained(tmp_path / "rte")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "rte")
    unnamed = classifier(tiny_model, tmp_path / "unnamed", 2)
    caplog.clear()
    load_trained(objective(str(tmp_path / "rte"), "rte", max_length=64))
    load_trained(objective(str(tmp_path / "rte"), "qnli", max_length=64))  # which has the same
    load_trained(objective(unnamed, "cola", max_length=64))
    assert not caplog.messages
    load_trained(objective(str(tmp_path / "rte"), "cola", max_length=64))
    (told,) = caplog.messages
    assert "rte' has the labels entailment, not_entailment, and task cola has" in told
    assert told.endswith("unacceptable, acceptable: they are taken in this order")


def test_a_cut_off_file_of_weights_is_named(tiny_model: str, tmp_path: Path) -> None:
    folder = classifier(tiny_model, tmp_path / "cut", 2)
    weights = Path(folder, "model.safetensors")
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"cut' cannot be loaded: ") as caught:
        load_trained(objective(folder, "cola"))
    assert "\n" not in str(caught.value)


def test_a_model_remembers_the_length_of_its_training(tiny_model: str, tmp_path: Path) -> None:
    assert trained_length(tiny_model) is None
    load_for_training(objective(tiny_model, "cola", max_length=24)).save_pretrained(tmp_path)
    assert trained_length(str(tmp_path)) == 24


@pytest.mark.parametrize("from_scratch", [False, True])
def test_xlnet_is_trained_which_has_no_limit_of_positions(
    from_scratch: bool, options: Options, tiny_model: str, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    config = XLNetConfig(vocab_size=len(tokenizer), d_model=16, n_layer=1, n_head=2, d_inner=32)
    assert config.max_position_embeddings == -1
    home = tmp_path / "xlnet"
    XLNetModel(config).save_pretrained(home)
    tokenizer.save_pretrained(home)
    chosen = options(model=str(home), epochs=1, max_length=99, from_scratch=from_scratch)
    assert train(chosen, None).metrics["validation"]
    saved = tmp_path / "run" / "model"
    assert AutoModel.from_pretrained(saved).config.max_position_embeddings == -1
    assert AutoTokenizer.from_pretrained(saved).model_max_length == 99
