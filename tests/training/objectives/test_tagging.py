"""The first token of each word carries its tag, and tags are put together again."""

import json
import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from jat_graph.tasks import TaggingTask, WordTask, get_task
from jat_graph.training import TrainingOptions, evaluate, train
from jat_graph.training.data import load_splits
from jat_graph.training.objectives import objective_for
from jat_graph.training.objectives.base import Cut
from jat_graph.training.objectives.tagging import Tagging, _words
from tests.training.support import JUMP, Options, without_dropout

TASK = get_task("conll2003")


def made(options: TrainingOptions, *sentences: str) -> tuple[Tagging, Any]:
    """Return the objective and encoded sentences of "word/tag"s."""
    pairs = [[word.rsplit("/", 1) for word in line.split()] for line in sentences]
    rows = [{"tokens": [w for w, _ in line], "tags": [t for _, t in line]} for line in pairs]
    objective = objective_for(TASK, options)
    assert isinstance(objective, Tagging)
    return objective, objective.encode(Dataset.from_list(rows), None)


def logits_for(labels: Any, chosen: Any) -> np.ndarray[Any, Any]:
    """Return scores that are highest for what is chosen where a word begins, else for O."""
    wanted = np.where(labels >= 0, chosen, 0)
    return np.eye(len(TASK.labels), dtype=np.float32)[wanted]


# --- words and tokens ----------------------------------------------------------------------------


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[list[str], list[tuple[int, int]], list[int]]:
    """Draw words, tokens that they are cut into, and the word that each token is the first of."""
    words = draw(st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=5))
    offsets, owners, start = [(0, 0)], [-1], 0
    for number, word in enumerate(words):
        blank = number > 0
        borders = sorted(draw(st.sets(st.integers(1, len(word)), max_size=2)) | {len(word)})
        with_blank = blank and draw(st.booleans())  # as in GPT-2
        if blank and not with_blank and draw(st.booleans()):
            offsets.append((start - 1, start))  # a token for the blank only, as in XLM-RoBERTa
            owners.append(-1)
        if draw(st.integers(0, 9)):  # else the tokenizer has nothing for this word
            begins = [start - with_blank, *(start + border for border in borders)]
            offsets += pairwise(begins)
            owners += [number] + [-1] * (len(borders) - 1)
        start += len(word) + 1
    return words, [*offsets, (0, 0)], [*owners, -1]


@given(cut_texts())
def test_each_word_has_its_first_token(case: Any) -> None:
    words, offsets, owners = case
    assert _words(offsets, words).tolist() == owners


def test_real_sentences_are_cut_as_ready_made_words_are(data_dir: Path, minilm_path: str) -> None:
    rows = get_task("wnut17").load(data_dir, ["validation"])["validation"]
    options = TrainingOptions(minilm_path, "wnut17", "unused", max_length=512)
    split = objective_for(get_task("wnut17"), options).encode(rows, None)
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    found = tokenizer(list(rows["tokens"]), is_split_into_words=True)
    assert split.features["input_ids"] == found["input_ids"]
    for number, owners in enumerate(split.notes["words"]):
        names = [-1 if name is None else name for name in found.word_ids(number)]
        first = [-1 if name in names[:at] else name for at, name in enumerate(names)]
        assert owners.tolist() == first


def test_labels_are_told_to_first_tokens(options: Options) -> None:
    objective, split = made(options(task="conll2003"), "a/O book-pencil/B-MISC is/I-MISC the/O")
    names = objective.tokenizer.convert_ids_to_tokens(split.features["input_ids"][0])
    assert names == ["[CLS]", "a", "book", "[UNK]", "pencil", "is", "the", "[SEP]"]
    inside = TASK.labels.index("B-MISC")
    assert split.features["labels"][0] == [-100, 0, inside, -100, -100, inside + 1, 0, -100]


def test_padding_has_no_label(options: Options) -> None:
    objective, split = made(options(task="conll2003"), "a/O book/B-MISC is/O", "book/B-MISC")
    objective.tokenizer.padding_side = "left"
    batch = objective.collate(split.features.to_list())
    inside = TASK.labels.index("B-MISC")
    assert batch["labels"].tolist() == [[-100, 0, inside, 0, -100], [-100, inside] + [-100] * 3]
    assert batch["attention_mask"].tolist() == [[1] * 5, [1, 1, 1, 0, 0]]


# --- scores --------------------------------------------------------------------------------------


def test_right_tags_give_the_right_spans(options: Options) -> None:
    lines = ("a/O book-pencil/B-MISC is/I-MISC", "book/B-PER the/B-PER")
    objective, split = made(options(task="conll2003"), *lines)
    labels = objective.collate(split.features.to_list())["labels"].numpy()
    answers = objective.answers(logits_for(labels, labels), labels, split)
    assert answers.said == answers.right == [[["MISC", 1, 3]], [["PER", 0, 1], ["PER", 1, 2]]]
    json.dumps(answers.said)
    assert objective.judge(logits_for(labels, labels), labels, split)[0]["f1"] == 1.0
    nothing = objective.judge(logits_for(labels, 0), labels, split)[0]
    assert nothing == {"f1": 0.0, "precision": 0.0, "recall": 0.0}


def test_words_that_are_cut_off_are_outside(
    options: Options, caplog: pytest.LogCaptureFixture, conll_dir: str
) -> None:
    lines = ("book/B-MISC is/I-MISC the/O a/B-PER", "a/O")
    objective, split = made(options(task="conll2003", max_length=4), *lines)
    assert split.cut == Cut(1, 2, 2, 9)
    labels = objective.collate(split.features.to_list())["labels"].numpy()
    answers = objective.answers(logits_for(labels, labels), labels, split)
    assert answers.said == [[["MISC", 0, 2]], []]
    assert answers.right == [[["MISC", 0, 2], ["PER", 3, 4]], []]
    chosen = options(task="conll2003", max_length=4, data_dir=conll_dir)
    with caplog.at_level(logging.WARNING):
        load_splits(objective_for(TASK, chosen), ("validation",))
    assert caplog.records[0].getMessage().startswith("max_length=4 cuts texts: of validation, ")


def test_tags_of_single_words_are_numbers_and_what_is_cut_off_is_wrong(options: Options) -> None:
    task = get_task("ewt-pos")
    assert isinstance(task, WordTask)
    objective = objective_for(task, options(task="ewtpos", max_length=4))
    rows = [{"tokens": ["the", "book", "is"], "tags": ["DET", "NOUN", "AUX"]}]
    split = objective.encode(Dataset.from_list(rows), None)
    labels = objective.collate(split.features.to_list())["labels"].numpy()
    logits = np.eye(len(task.labels), dtype=np.float32)[np.where(labels >= 0, labels, 0)]
    scores, answers = objective.judge(logits, labels, split)
    number = task.labels.index
    assert answers is not None and answers.said == [[number("DET"), number("NOUN"), -1]]
    assert answers.right == [[number("DET"), number("NOUN"), number("AUX")]]
    assert scores == {"accuracy": pytest.approx(2 / 3)}


def test_scores_must_be_numbers(options: Options) -> None:
    objective, split = made(options(task="conll2003"), "a/O")
    labels = objective.collate(split.features.to_list())["labels"].numpy()
    with pytest.raises(ValueError, match="finite"):
        objective.judge(logits_for(labels, labels) * np.nan, labels, split)[0]


def test_a_limit_that_special_tokens_fill_is_refused(options: Options) -> None:
    words = "max_length must be at least 3 for task conll2003 and 2 special tokens, got 2"
    with pytest.raises(ValueError, match=f"^{words}$"):
        made(options(task="conll2003", max_length=2), "a/O")


# --- runs ----------------------------------------------------------------------------------------


def test_a_model_learns_what_things_are(options: Options, conll_dir: str) -> None:
    chosen = options(task="conll2003", data_dir=conll_dir, learning_rate=1e-2, warmup=0.0)
    result = train(chosen, JUMP, progress=False)
    assert result.primary is not None and result.primary > 0.9
    model = str(Path(chosen.output_dir, "model"))
    found = evaluate(model, "conll2003", conll_dir, max_length=16, device="cpu", progress=False)
    assert found == result.metrics
    answers = json.loads(Path(chosen.output_dir, "answers.json").read_text())["validation"]
    assert isinstance(TASK, TaggingTask)
    assert TASK.measure(answers["said"], answers["right"]) == found["validation"]
    with pytest.raises(ValueError, match=r"must have 13 labels for task wnut17, got 9$"):
        evaluate(model, "wnut17", conll_dir, device="cpu", progress=False)


def test_accumulated_batches_weigh_by_their_words(
    options: Options, conll_dir: str, tmp_path: Path
) -> None:
    model = without_dropout(options().model, tmp_path)
    settings = {"task": "conll2003", "data_dir": conll_dir, "model": model, "epochs": 1}
    settings |= {"save_steps": 1, "select_best": False, "max_train_samples": 64}
    whole = train(options(**settings), JUMP, progress=False)
    parts = options(**settings, batch_size=4, gradient_accumulation=4, output_dir=tmp_path / "4")
    found = [row["loss"] for row in train(parts, JUMP, progress=False).history]
    assert len(found) == 4
    assert found == pytest.approx([row["loss"] for row in whole.history], rel=2e-5)


def test_tokens_without_a_label_change_no_loss(options: Options) -> None:
    from transformers import AutoModelForTokenClassification

    objective, split = made(options(task="conll2003"), "a/O book-pencil/B-MISC", "the/O")
    torch.manual_seed(0)
    settings = {"num_labels": len(TASK.labels)}
    model = AutoModelForTokenClassification.from_pretrained(objective.options.model, **settings)
    batch = objective.collate(split.features.to_list())
    with torch.no_grad():
        output = model.eval()(**batch)
    assert (batch["labels"] >= 0).sum() == 3
    torch.testing.assert_close(objective.loss(output, batch["labels"]), output.loss)
    share = objective.loss(output, batch["labels"], num_items_in_batch=6)
    torch.testing.assert_close(share, output.loss / 2)
