"""Texts and their graphs go through the loaders of torch and of PyG, and through a Trainer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader as GraphLoader
from torch_geometric.nn import RGCNConv
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    DataCollatorForLanguageModeling,
    DataCollatorForTokenClassification,
    Trainer,
    TrainingArguments,
)

from jat_graph import JatConfig, attach, using_graphs
from jat_graph.training import GraphCollator, JatTrainerMixin

TEXTS = (["Unbelievable", "dogs", "bark"], ["Marie Curie", "was born in", "Warsaw", "long", "ago"])
KINDS = 3


class JatTrainer(JatTrainerMixin, Trainer):
    """A Trainer of somebody's own."""


@pytest.fixture(params=["right", "left"])
def tokenizer(request: Any, minilm_path: str) -> Any:
    return AutoTokenizer.from_pretrained(minilm_path, padding_side=request.param)


def graph_of(nodes: int, **more: Any) -> Data:
    forward = torch.arange(nodes - 1)
    edges = torch.cat([torch.stack([forward, forward + 1]), torch.stack([forward + 1, forward])], 1)
    kinds = torch.arange(edges.size(1)) % KINDS
    return Data(edge_index=edges, edge_type=kinds, num_nodes=nodes, **more)


def rows_of() -> list[dict[str, Any]]:
    return [
        {"text": text, "graph": graph_of(len(text)), "label": number % 2}
        for number, text in enumerate(TEXTS)
    ]


def tiny(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForSequenceClassification(BertConfig(num_hidden_layers=2, **sizes)).eval()
    conv = partial(RGCNConv, num_relations=KINDS)
    return attach(model, JatConfig(heads=2, strength=0.5), conv=conv)


@torch.no_grad()
def by_hand(model: Any, tokenizer: Any) -> torch.Tensor:
    encoding = tokenizer(list(TEXTS), is_split_into_words=True, padding=True, return_tensors="pt")
    words = [encoding.word_ids(row) for row in range(len(TEXTS))]
    with using_graphs(model, [graph_of(len(text)) for text in TEXTS], word_ids=words):
        return model(**encoding).logits


def test_a_loader_of_torch_gives_what_the_model_takes(tokenizer: Any) -> None:
    model = tiny()
    (batch,) = DataLoader(rows_of(), batch_size=2, collate_fn=GraphCollator(tokenizer))
    assert batch["labels"].tolist() == [0, 1]
    assert batch["graphs"].num_graphs == 2
    with torch.no_grad():
        out = model(**batch)
    assert_close(out.logits, by_hand(model, tokenizer))
    assert out.loss.isfinite()
    if tokenizer.padding_side == "right":  # from the left it moves BERT's positions
        single = [model(**GraphCollator(tokenizer)([row])).logits for row in rows_of()]
        assert_close(torch.cat(single), out.logits, rtol=1e-4, atol=1e-5)


def test_loaders_of_pyg_carry_texts(tokenizer: Any) -> None:
    model, collator = tiny(), GraphCollator(tokenizer)
    data = [graph_of(len(text), text=text, y=torch.tensor([n])) for n, text in enumerate(TEXTS)]
    (graphs,) = GraphLoader(data, batch_size=2)
    (direct,) = DataLoader(data, batch_size=2, collate_fn=collator)
    wanted = by_hand(model, tokenizer)
    for batch in (collator(graphs), direct):
        assert batch["labels"].tolist() == [0, 1]
        with torch.no_grad():
            assert_close(model(**batch).logits, wanted)


def test_tokenized_rows_have_word_ids_or_graphs_of_tokens(tokenizer: Any) -> None:
    model, collator = tiny(), GraphCollator(tokenizer)
    rows, by_token = [], []
    for row in rows_of():
        encoding = tokenizer(row["text"], is_split_into_words=True)
        words = {"word_ids": encoding.word_ids(), "graph": row["graph"]}
        rows.append({**encoding, **words})
        by_token.append({**encoding, "graph": graph_of(len(encoding["input_ids"]))})
    with torch.no_grad():
        assert_close(model(**collator(rows)).logits, by_hand(model, tokenizer))
        batch = collator(by_token)
        found = model(**batch).logits
        encoding = {name: batch[name] for name in ("input_ids", "attention_mask")}
        with using_graphs(model, [row["graph"] for row in by_token]):
            assert_close(model(**encoding).logits, found)


def test_strings_have_the_words_of_the_tokenizer(minilm_path: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    collator = GraphCollator(tokenizer, max_length=6)
    batch = collator([{"text": "Dogs that bark, seldom bite.", "graph": graph_of(7)}])
    assert batch["input_ids"].shape == (1, 6)
    edges = batch["graphs"].edge_index
    assert edges[:, edges[0] < edges[1]].tolist() == [[1, 2, 3], [2, 3, 4]]  # ", " is a word


@pytest.mark.parametrize(
    "kind", [DataCollatorForTokenClassification, DataCollatorForLanguageModeling]
)
def test_other_collators_pad_and_label(tokenizer: Any, kind: Any) -> None:
    rows = []
    for row in rows_of():
        encoding = tokenizer(row["text"], is_split_into_words=True)
        labels = {"labels": [0] * len(encoding["input_ids"])}
        labels = labels if kind is DataCollatorForTokenClassification else {}
        words = {"word_ids": encoding.word_ids(), "graph": row["graph"]}
        rows.append({**encoding, **words, **labels})
    batch = GraphCollator(tokenizer, kind(tokenizer))(rows)
    assert batch["labels"].shape == batch["input_ids"].shape
    assert batch["graphs"].num_graphs == 2


@pytest.mark.parametrize("mixed_in", [False, True])
@pytest.mark.parametrize("as_data", [False, True])
def test_a_trainer_trains_and_evaluates(
    mixed_in: bool, as_data: bool, minilm_path: str, tmp_path: Path
) -> None:
    tokenizer, model = AutoTokenizer.from_pretrained(minilm_path), tiny()
    rows: Any = rows_of()
    if as_data:
        rows = [row["graph"].clone() for row in rows]
        for number, (row, text) in enumerate(zip(rows, TEXTS, strict=True)):
            row.text, row.y = text, torch.tensor([number])
    options: dict[str, Any] = {} if mixed_in else {"remove_unused_columns": False}
    arguments = TrainingArguments(
        tmp_path, num_train_epochs=2, report_to="none", use_cpu=True, disable_tqdm=True, **options
    )
    before = {name: p.clone() for name, p in model.named_parameters()}
    made: dict[str, Any] = {"train_dataset": rows, "eval_dataset": rows}
    made["data_collator"] = GraphCollator(tokenizer)
    trainer = (JatTrainer if mixed_in else Trainer)(model, arguments, **made)
    trainer.train()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert any(".jump_conv." in name for name in moved)
    assert_close(torch.tensor(trainer.predict(rows).predictions), by_hand(model, tokenizer))


def test_a_trainer_that_drops_graphs_says_so(minilm_path: str, tmp_path: Path) -> None:
    collator = GraphCollator(AutoTokenizer.from_pretrained(minilm_path))
    arguments = TrainingArguments(tmp_path, report_to="none", use_cpu=True, disable_tqdm=True)
    trainer = Trainer(tiny(), arguments, train_dataset=rows_of(), data_collator=collator)
    with pytest.raises(ValueError, match="got label; a Trainer leaves them there with remove_unu"):
        trainer.train()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"graph": None}, "row 1 must have a graph of PyG, and text or input_ids, got text, graph"),
        ({"text": None}, "row 1 must have a graph of PyG, and text or input_ids"),
        ({"graph": graph_of(4)}, "graph of row 1 must have 5 words, got 4"),
        (
            {"text": None, "input_ids": [5, 6]},
            "graph of row 1 must have the 2 tokens as nodes, or word_ids beside it, got 5 nodes",
        ),
        (
            {"text": None, "input_ids": [5, 6], "word_ids": [0]},
            "word_ids of row 1 must be 2, got 1",
        ),
        ({"graph": Data(graph_of(5).x, graph_of(5).edge_index, num_nodes=5)}, "all have edge_type"),
    ],
)
def test_rows_that_do_not_fit_are_refused(change: Any, message: str, minilm_path: str) -> None:
    collator = GraphCollator(AutoTokenizer.from_pretrained(minilm_path))
    rows = rows_of()
    rows[1] |= change
    with pytest.raises(ValueError, match=message):
        collator(rows)
