"""Texts and their graphs go through the loaders of torch and of PyG, and through a Trainer."""

from functools import partial
from typing import Any

import networkx as nx
import pytest
import torch
import transformers as hf
from torch.testing import assert_close
from torch.utils.data import DataLoader
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import DataLoader as GraphLoader
from torch_geometric.nn import RGCNConv

from jat_graph import JatConfig, attach, detach, using_graphs
from jat_graph.training import GraphCollator
from tests.training.test_strengths import JatTrainer

TEXTS = (["Unbelievable", "dogs", "bark"], ["Marie Curie", "was born in", "Warsaw", "long", "ago"])


@pytest.fixture(params=["right", "left"])
def tokenizer(request: Any, minilm_path: str) -> Any:
    return hf.AutoTokenizer.from_pretrained(minilm_path, padding_side=request.param)


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
    model = hf.BertForSequenceClassification(hf.BertConfig(num_hidden_layers=2, **sizes)).eval()
    conv = partial(RGCNConv, num_relations=3)
    return attach(model, JatConfig(heads=2, strength=0.5), conv=conv)


@torch.no_grad()
def by_hand(model: Any, tokenizer: Any) -> torch.Tensor:
    encoding = tokenizer(list(TEXTS), is_split_into_words=True, padding=True, return_tensors="pt")
    words = [encoding.word_ids(row) for row in range(len(TEXTS))]
    with using_graphs(model, [graph_of(len(text)) for text in TEXTS], word_ids=words):
        return model(**encoding).logits


def test_loaders_give_what_the_model_takes(tokenizer):
    model, collator = tiny(), GraphCollator(tokenizer)
    batches = [collator(next(iter(GraphLoader(rows_of(as_data=True), batch_size=2))))]
    for as_data in (False, True):
        batches += DataLoader(rows_of(as_data), batch_size=2, collate_fn=collator)
    for batch in batches:
        assert batch["labels"].tolist() == [0, 1]
        with torch.no_grad():
            assert_close(model(**batch).logits, by_hand(model, tokenizer))


@torch.no_grad()
def test_tokenized_rows_have_word_ids_or_graphs_of_tokens(tokenizer):
    model, words, tokens = tiny(), [], []
    for text in TEXTS:
        row = tokenizer(text, is_split_into_words=True)
        number = len(row["input_ids"])
        words.append({**row, "graph": graph_of(len(text)), "word_ids": row.word_ids()})
        tokens.append({**row, "graph": graph_of(number), "labels": [1] * number})
    assert_close(model(**GraphCollator(tokenizer)(words)).logits, by_hand(model, tokenizer))
    batch = GraphCollator(tokenizer, hf.DataCollatorForTokenClassification(tokenizer))(tokens)
    assert batch.pop("labels").shape == batch["input_ids"].shape
    found = model(**batch | {"graphs": [row["graph"] for row in tokens]}).logits
    assert_close(model(**batch).logits, found)


@pytest.mark.parametrize("is_given", [False, True])
def test_labels_of_words_are_those_of_their_first_tokens(is_given, tokenizer):
    texts = [["unbelievable", "dogs", "bark"], ["dogs"]]
    own: list[Any] = [
        Data(edge_index=torch.zeros(2, 0).long(), num_nodes=len(text), text=text, y=torch.tensor(y))
        for text, y in zip(texts, ([7, 8, 9], [4]), strict=True)
    ]
    pads = hf.DataCollatorForTokenClassification(tokenizer)
    collator = GraphCollator(tokenizer, pads if is_given else None)
    rows = [{"text": texts[0], "graph": own[0], "labels": torch.tensor([7, 8, 9])}]
    for batch in (collator(own[:1]), collator(next(iter(GraphLoader(own[:1])))), collator(rows)):
        words = tokenizer(texts[0], is_split_into_words=True).word_ids()
        found = dict(zip(words[::-1], batch["labels"][0].tolist()[::-1], strict=True))
        assert [found[word] for word in (0, 1, 2)] == [7, 8, 9]
        assert int((batch["labels"] != -100).sum()) == 3
    pair = own[0], own[0].clone().update({"text": ["a", "b", "c"], "y": torch.tensor([1, 2, 3])})
    assert collator(pair)["labels"].shape == collator(pair)["input_ids"].shape
    for order in (own, own[::-1]):  # the one label of one word is as those beside it
        labels = collator(order)["labels"]
        assert sorted(labels[labels != -100].tolist()) == [4, 7, 8, 9]
    alone = collator(own[1:])["labels"]  # without such it is that of the text
    assert alone.tolist() == [[-100, 4, -100]] if is_given else alone.tolist() == [4]


def test_strings_have_the_words_of_the_tokenizer(minilm_path):
    collator = GraphCollator(hf.AutoTokenizer.from_pretrained(minilm_path), max_length=6)
    batch = collator([{"text": "Dogs that bark, seldom bite.", "graph": graph_of(7)}])
    assert batch["graphs"].edge_index.tolist() == [[1, 2, 3], [2, 3, 4]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [hf.Trainer, JatTrainer])
@pytest.mark.parametrize("rows", [rows_of(), rows_of(as_data=True)])
def test_a_trainer_trains(kind, rows, minilm_path, tmp_path):
    tokenizer, model = hf.AutoTokenizer.from_pretrained(minilm_path), tiny()
    options: dict[str, Any] = {"report_to": "none", "use_cpu": True, "disable_tqdm": True}
    made = {"train_dataset": rows, "data_collator": GraphCollator(tokenizer)}
    if kind is hf.Trainer and isinstance(rows[0], dict):
        with pytest.raises(ValueError, match="got label; a Trainer leaves them with remove_unused"):
            kind(model, hf.TrainingArguments(tmp_path, **options), **made).train()
        options["remove_unused_columns"] = False
    trainer = kind(model, hf.TrainingArguments(tmp_path, **options), **made)
    assert trainer.train().global_step == 3
    assert_close(torch.tensor(trainer.predict(rows).predictions), by_hand(model, tokenizer))
    if kind is JatTrainer:
        with pytest.raises(ValueError, match="must have jump heads for graphs, got a Bert"):
            kind(detach(model), trainer.args, **made).train()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"graph": None}, "a graph of PyG, and text or input_ids, got text, label;"),
        ({"text": None}, "a graph of PyG, and text or input_ids, got graph, label;"),
        ({"labels": [1, 2]}, "labels of row 1 must be one, or one for each of 5 words, got 2"),
        ({"graph": graph_of(4)}, "graph of row 1 must have 5 words, got 4"),
        ({"text": "dogs bark"}, "graph of row 1 must have 2 words, got 5"),
        ({"graph": HeteroData()}, r"got HeteroData; its to_homogeneous\(\) gives a Data"),
        ({"graph": nx.path_graph(5)}, "got Graph of networkx; torch_geometric.utils.from_networkx"),
        ({"text": ["a\ud83d"] * 5}, "text of row 1 must be Unicode text, got a lone surrogate"),
        ({"text": None, "input_ids": [5]}, "row 1 must have the 1 tokens as nodes, or word_ids"),
        ({"graph": graph_of(5, edge_type=torch.rand(4))}, r"\[4\], got torch.float32 \[4\]"),
        ({"graph": graph_of(5, edge_attr=torch.ones(4).log().log())}, "edge_attr must be finite"),
        ({"graph": graph_of(5, edge_type=None)}, "must all have edge_type and edge_attr, or none"),
    ],
)
def test_rows_that_do_not_fit_are_refused(change, message, minilm_path):
    collator, rows = GraphCollator(hf.AutoTokenizer.from_pretrained(minilm_path)), rows_of()
    with pytest.raises(ValueError, match=message):
        collator([rows[0], rows[1] | change])
    with pytest.raises(ValueError, match=r"row 0 must have a graph of PyG, .* got HeteroData"):
        collator([HeteroData()])


def test_only_who_has_texts_cut_off_loses_edges_unsaid(minilm_path):
    tokenizer, graph = hf.AutoTokenizer.from_pretrained(minilm_path), graph_of(4)
    tokens = tokenizer("dogs bark at cats", truncation=True, max_length=4)
    ready = [{**tokens, "word_ids": tokens.word_ids(), "graph": graph}]
    with pytest.warns(UserWarning, match="which are left out: truncate texts less"):
        assert GraphCollator(tokenizer)(ready)["graphs"].edge_index.tolist() == [[1], [2]]
    cut = GraphCollator(tokenizer, max_length=4)([{"text": "dogs bark at cats", "graph": graph}])
    assert cut["graphs"].edge_index.tolist() == [[1], [2]]
