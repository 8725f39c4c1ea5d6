"""Blocks hold every token once, and scores are those of whole documents."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig

from jat_graph.config import JatConfig, PairGraph
from jat_graph.tasks import LanguageModelTask, get_task
from jat_graph.training import TrainingOptions, evaluate, train
from jat_graph.training.loading import load_for_training
from jat_graph.training.objectives import objective_for
from jat_graph.training.objectives.language_modelling import LanguageModelling
from tests.training.support import Options, same_weights, weights

CHORALES = get_task("chorales")
CAUSAL = JatConfig(PairGraph(threshold=0.0, key_selection="strided", key_step=2), heads=1)


def modelling(model: str, max_length: int, task: str = "chorales") -> LanguageModelling:
    options = TrainingOptions(model, task, "unused", max_length=max_length)
    found = objective_for(get_task(task), options)
    assert isinstance(found, LanguageModelling)
    return found


@given(
    documents=st.lists(st.lists(st.integers(0, 9), max_size=30), min_size=1, max_size=5),
    max_length=st.integers(2, 12),
)
def test_each_token_but_the_first_is_predicted_once(
    documents: list[list[int]], max_length: int
) -> None:
    objective = modelling("unused", max_length)
    split = objective.encode(Dataset.from_dict({"tokens": documents}), None)
    blocks = split.features["input_ids"]
    assert all(2 <= len(block) <= max_length for block in blocks)
    said = [token for block in blocks for token in block[1:]]
    assert said == [token for document in documents for token in document[1:]]
    assert split.notes["units"] == len(said)


@given(text=st.text("ab cno\n", min_size=1, max_size=40))
def test_characters_are_counted_to_the_last_token(text: str, tiny_model: str) -> None:
    objective = modelling(tiny_model, 4, "tinyshakespeare")
    text = f"the {text} book"
    split = objective.encode(Dataset.from_dict({"text": [text]}), None)
    assert split.notes["units"] == len(text) - len("the")


def test_a_block_has_a_token_to_predict() -> None:
    with pytest.raises(
        ValueError, match=r"^max_length must be at least 2 to predict tokens, got 1"
    ):
        modelling("unused", 1).encode(Dataset.from_dict({"tokens": [[1, 2, 3]]}), None)


def test_a_limit_counts_blocks() -> None:
    rows = Dataset.from_dict({"tokens": [list(range(100))]})
    assert len(modelling("unused", 5).encode(rows, 7).features) == 7


@pytest.fixture(scope="session")
def music_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder with short chorales that go up or down by one pitch."""
    folder = tmp_path_factory.mktemp("music")
    chorales = [
        [[p + step * way, p - step * way] for step in range(5 + p % 4)]
        for p, way in ((p, (-1) ** p) for p in range(50, 74))
    ]
    content = {"train": chorales, "valid": chorales[::3], "test": chorales[::4]}
    (folder / "jsb-chorales-16th.json").write_text(json.dumps(content))
    return str(folder)


def save_config(config: GPT2Config | LlamaConfig, folder: Path) -> str:
    config.save_pretrained(folder)
    return str(folder)


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
CONFIGS = {
    "gpt2": GPT2Config(**SMALL, max_position_embeddings=16, resid_pdrop=0.0, attn_pdrop=0.0),
    "llama": LlamaConfig(**SMALL, intermediate_size=64, num_key_value_heads=2),
}


@pytest.fixture(params=CONFIGS)
def music(
    request: pytest.FixtureRequest, music_dir: str, tmp_path: Path, options: Options
) -> dict[str, Any]:
    """Options of a small decoder on the chorales."""
    return {
        "model": save_config(CONFIGS[request.param], tmp_path / request.param),
        "task": "chorales",
        "data_dir": music_dir,
        "from_scratch": True,
        "max_length": 24,
        "batch_size": 4,
        "epochs": 3,
        "learning_rate": 1e-2,
    }


def perplexity(model: GPT2LMHeadModel, documents: list[list[int]]) -> float:
    """One token at a time, from the whole beginning of its document."""
    losses = []
    for tokens in documents:
        for place in range(1, len(tokens)):
            logits = model(input_ids=torch.tensor([tokens[:place]])).logits[0, -1]
            losses.append(-logits.double().log_softmax(-1)[tokens[place]].item())
    return math.exp(sum(losses) / len(losses))


@pytest.mark.parametrize("config", [None, CAUSAL])
def test_a_decoder_from_scratch(
    music: dict[str, Any], config: JatConfig | None, options: Options
) -> None:
    chosen = options(**music | {"max_length": 40})
    result = train(chosen, config, progress=False)
    first, last = result.history[0], result.history[-1]
    assert last["validation_perplexity"] < 0.7 * first["validation_perplexity"]
    assert result.best_step == result.steps
    model = str(Path(chosen.output_dir, "model"))
    assert set(result.metrics["test"]) == {"perplexity", "bits_per_token"}
    found = evaluate(
        model, "chorales", chosen.data_dir, max_length=40, device="cpu", progress=False
    )
    assert found == result.metrics


def test_perplexity_is_that_of_one_token_after_the_other(
    music: dict[str, Any], options: Options
) -> None:
    from transformers import AutoModelForCausalLM

    chosen = options(**music | {"max_length": 40, "epochs": 1})
    result = train(chosen, progress=False)
    model = AutoModelForCausalLM.from_pretrained(Path(chosen.output_dir, "model")).eval()
    rows = CHORALES.load(Path(chosen.data_dir or ""), ("test",))["test"]["tokens"]
    found = result.metrics["test"]
    with torch.no_grad():
        want = perplexity(model, rows)
    assert found["perplexity"] == pytest.approx(want, rel=1e-5)
    assert found["bits_per_token"] == pytest.approx(math.log2(want), rel=1e-5)


def test_accumulated_batches_count_each_token_once(
    music: dict[str, Any], options: Options, tmp_path: Path
) -> None:
    # Blocks differ in length: a mean of means would be another step.
    plain = {"epochs": 1, "select_best": False, "max_train_samples": 8}
    train(options(**music | plain | {"batch_size": 8}), progress=False)
    halves = {"batch_size": 2, "gradient_accumulation": 4, "output_dir": str(tmp_path / "halves")}
    train(options(**music | plain | halves), progress=False)
    one, other = weights(options().output_dir), weights(str(tmp_path / "halves"))
    assert all(torch.allclose(one[name], other[name], atol=2e-5) for name in one)


def test_weights_from_scratch_follow_the_seed(
    music: dict[str, Any], options: Options, tmp_path: Path
) -> None:
    short = music | {"max_train_samples": 4, "max_eval_samples": 4, "epochs": 1}
    train(options(**short), progress=False)
    again = options(**short, output_dir=str(tmp_path / "again"))
    other = options(**short, output_dir=str(tmp_path / "other"), seed=1)
    train(again, progress=False), train(other, progress=False)
    assert same_weights(options().output_dir, again.output_dir)
    assert not same_weights(options().output_dir, other.output_dir)


def test_what_does_not_fit_is_one_clear_line(
    options: Options, tiny_model: str, music_dir: str, tmp_path: Path
) -> None:
    music: dict[str, Any] = {"task": "chorales", "data_dir": music_dir}
    bare = save_config(CONFIGS["gpt2"], tmp_path / "bare")
    GPT2LMHeadModel(GPT2Config(**SMALL, vocab_size=99)).save_pretrained(tmp_path / "few")
    cases = {
        "must be a decoder for task chorales, got BertLMHeadModel, which sees later": {
            **music,
            "from_scratch": True,
        },
        "has no weights: from_scratch draws them": {**music, "model": bare},
        "must have a vocabulary of 130 tokens for task chorales, got 99": {
            **music,
            "model": str(tmp_path / "few"),
        },
        "no tokenizer for model": {"task": "cola", "model": bare, "from_scratch": True},
    }
    for words, changes in cases.items():
        with pytest.raises(ValueError, match=words) as caught:
            load_for_training(objective_for(get_task(changes["task"]), options(**changes)))
        assert "\n" not in str(caught.value)


def test_text_with_a_tokenizer(options: Options, tiny_model: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = tmp_path / "gpt2"
    model = save_config(CONFIGS["gpt2"], folder)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder)
    (tmp_path / "input.txt").write_text("the book costs more than a pencil\n" * 50)
    chosen = options(
        model=model,
        task="tinyshakespeare",
        data_dir=str(tmp_path),
        from_scratch=True,
        epochs=1,
        max_length=32,
    )
    metrics = train(chosen, progress=False).metrics["validation"]
    assert set(metrics) == {"perplexity", "bits_per_character"}
    config = json.loads(Path(chosen.output_dir, "model", "config.json").read_text())
    assert config["vocab_size"] == len(AutoTokenizer.from_pretrained(tiny_model))
    assert isinstance(get_task("tinyshakespeare"), LanguageModelTask)
