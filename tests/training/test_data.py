"""Splits as token ids."""

from datasets import Dataset

from jat_graph.tasks import get_task
from jat_graph.training.data import dev_splits, draw, encode, load_splits
from jat_graph.training.loading import load_tokenizer


def test_dev_sets() -> None:
    assert dev_splits(get_task("cola")) == ("validation",)
    assert len(dev_splits(get_task("mnli"))) == 2


def test_subsets_are_random_and_always_the_same() -> None:
    rows = Dataset.from_dict({"x": list(range(100))})
    first, again = draw(rows, 10)["x"], draw(rows, 10)["x"]
    assert list(first) == list(again) != list(range(10))
    assert draw(rows, None) is draw(rows, 100) is rows


def test_only_the_splits_asked_for(tiny_model: str, cola_dir: str) -> None:
    tokenizer = load_tokenizer(tiny_model, 16)
    splits = load_splits(
        get_task("cola"),
        ("validation",),
        tokenizer,
        data_dir=cola_dir,
        max_length=5,
        max_eval_samples=7,
    )
    assert list(splits) == ["validation"]
    assert len(splits["validation"]) == 7
    assert max(map(len, splits["validation"]["input_ids"])) == 5


def test_pairs_are_encoded_together(tiny_model: str) -> None:
    task = get_task("rte")
    first, second = task.text_columns
    rows = Dataset.from_dict({first: ["book"], second: ["the pencil"], "label": [1]})
    row = encode(rows, task, load_tokenizer(tiny_model, 16), 16)[0]
    assert len(row["input_ids"]) == 6  # [CLS] book [SEP] the pencil [SEP]
    assert row["labels"] == 1
