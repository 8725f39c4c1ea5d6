"""Texts and their graphs go through the loaders of torch and of PyG, and through a Trainer."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader as GraphLoader
from torch_geometric.nn import RGCNConv
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    DataCollatorForTokenClassification,
    Trainer,
    TrainingArguments,
)

from jat_graph import JatConfig, attach, using_graphs
from jat_graph.training import GraphCollator, JatTrainerMixin

TEXTS = (["Unbelievable", "dogs", "bark"], ["Marie Curie", "was born in", "Warsaw", "long", "ago"])


class JatTrainer(JatTrainerMixin, Trainer):
    """A Trainer of somebody's own."""


@pytest.fixture(params=["right", "left"])
def tokenizer(request: Any, minilm_path: str) -> Any:
    return AutoTokenizer.from_pretrained(minilm_path, padding_side=request.param)


def graph_of(nodes: int, **more: Any) -> Data:
    forward = torch.arange(nodes - 1)
    kinds = {"edge_type": forward % 3} | more
    return Data(edge_index=torch.stack([forward, forward + 1]), num_nodes=nodes, **kinds)


def rows_of(as_data: bool = False) -> Any:
    if as_data:
        return [graph_of(len(x), text=x, y=torch.tensor([n])) for n, x in enumerate(TEXTS)]
    return [{"text": x, "graph": graph_of(len(x)), "label": n} for n, x in enumerate(TEXTS)]


def tiny() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForSequenceClassification(BertConfig(num_hidden_layers=2, **sizes)).eval()
    config = JatConfig(heads=2, strength=0.5)
    return attach(model, config, conv=partial(RGCNConv, num_relations=3))


@torch.no_grad()
def by_hand(model: Any, tokenizer: Any) -> Tensor:
    encoding = tokenizer(list(TEXTS), is_split_into_words=True, padding=True, return_tensors="pt")
    words = [encoding.word_ids(row) for row in range(len(TEXTS))]
    with using_graphs(model, [graph_of(len(text)) for text in TEXTS], word_ids=words):
        return model(**encoding).logits


def test_loaders_give_what_the_model_takes(tokenizer: Any) -> None:
    model, collator = tiny(), GraphCollator(tokenizer)
    batches = [collator(next(iter(GraphLoader(rows_of(as_data=True), batch_size=2))))]
    for as_data in (False, True):
        batches += DataLoader(rows_of(as_data), batch_size=2, collate_fn=collator)
    for batch in batches:
        assert batch["labels"].tolist() == [0, 1]
        with torch.no_grad():
            assert_close(model(**batch).logits, by_hand(model, tokenizer))


def test_tokenized_rows_have_word_ids_or_graphs_of_tokens(tokenizer: Any) -> None:
    model, pad = tiny(), DataCollatorForTokenClassification(tokenizer)
    rows, tokens = [], []
    for row in rows_of():
        encoding = tokenizer(row["text"], is_split_into_words=True)
        number = len(encoding["input_ids"])
        rows.append({**encoding, "graph": row["graph"], "word_ids": encoding.word_ids()})
        tokens.append({**encoding, "graph": graph_of(number), "labels": [1] * number})
    batch = GraphCollator(tokenizer, pad)(tokens)
    assert batch.pop("labels").shape == batch["input_ids"].shape
    with torch.no_grad():
        assert_close(model(**GraphCollator(tokenizer)(rows)).logits, by_hand(model, tokenizer))
        found = model(**batch | {"graphs": [row["graph"] for row in tokens]}).logits
        assert_close(model(**batch).logits, found)


def test_strings_have_the_words_of_the_tokenizer(minilm_path: str) -> None:
    collator = GraphCollator(AutoTokenizer.from_pretrained(minilm_path), max_length=6)
    batch = collator([{"text": "Dogs that bark, seldom bite.", "graph": graph_of(7)}])
    assert batch["input_ids"].shape == (1, 6)
    assert batch["graphs"].edge_index.tolist() == [[1, 2, 3], [2, 3, 4]]


@pytest.mark.parametrize("kind", [Trainer, JatTrainer])
@pytest.mark.parametrize("as_data", [False, True])
def test_a_trainer_trains_and_evaluates(
    kind: Any, as_data: bool, minilm_path: str, tmp_path: Path
) -> None:
    tokenizer, model, rows = AutoTokenizer.from_pretrained(minilm_path), tiny(), rows_of(as_data)
    options: dict[str, Any] = {"report_to": "none", "use_cpu": True, "disable_tqdm": True}
    made = {"train_dataset": rows, "data_collator": GraphCollator(tokenizer)}
    before = {name: p.clone() for name, p in model.named_parameters()}
    if kind is Trainer and not as_data:
        with pytest.raises(ValueError, match="got label; a Trainer leaves them with remove_unused"):
            Trainer(model, TrainingArguments(tmp_path, **options), **made).train()
        options["remove_unused_columns"] = False
    trainer = kind(model, TrainingArguments(tmp_path, num_train_epochs=2, **options), **made)
    trainer.train()
    moved = [name for name, p in model.named_parameters() if not torch.equal(p, before[name])]
    assert any(".jump_conv." in name for name in moved)
    assert_close(torch.tensor(trainer.predict(rows).predictions), by_hand(model, tokenizer))


TOKENS = {"text": None, "input_ids": [5, 6]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"graph": None}, "row 1 must have a graph of PyG, and text or input_ids, got text, graph"),
        ({"text": None}, "row 1 must have a graph of PyG, and text or input_ids"),
        ({"graph": graph_of(4)}, "graph of row 1 must have 5 words, got 4"),
        (TOKENS, "graph of row 1 must have the 2 tokens as nodes, or word_ids beside it, got 5"),
        (TOKENS | {"word_ids": [0]}, "word_ids of row 1 must be 2, got 1"),
        ({"graph": graph_of(5, edge_type=None)}, "must all have edge_type and edge_attr, or none"),
    ],
)
def test_rows_that_do_not_fit_are_refused(change: Any, message: str, minilm_path: str) -> None:
    collator, rows = GraphCollator(AutoTokenizer.from_pretrained(minilm_path)), rows_of()
    with pytest.raises(ValueError, match=message):
        collator([rows[0], rows[1] | change])
