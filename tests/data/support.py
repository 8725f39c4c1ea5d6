"""A tokenizer for the tiny models, and the plain definition of a text's graph."""

from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from torch_geometric.data import Data
from transformers import PreTrainedModel, PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
PIECES = ["##s", "##ed", "##ing", "##er", "##ly"]
STEMS = [first + rest for first in "bdfgkl" for rest in ("ark", "ook", "ump", "ill")]
TEXTS = [
    "barks dook",
    "fillingly gump kooked lark barker",
    "dill",
    "gark book lumps killed dumply bill fook garkings barking",
    "dook dook dook",
]


# States of nodes, and from source and target of each edge to a weight of each head.
SlowGraph = tuple[Tensor, dict[tuple[int, int], list[float]]]


def tiny_tokenizer(**settings: Any) -> PreTrainedTokenizerFast:
    """Return a tokenizer of words in pieces, with fewer of them than the tiny models know."""
    vocabulary = {piece: number for number, piece in enumerate(SPECIAL + STEMS + PIECES)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{"pad_token": "[PAD]", "model_max_length": 64} | settings
    )


def attention_maps(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, text: str | list[str]
) -> tuple[list[Tensor], list[Tensor], list[int | None]]:
    """Return states [n, D] and attention [H, n, n] of each layer, and the words, of one text."""
    encoded = tokenizer(text, is_split_into_words=isinstance(text, list), return_tensors="pt")
    model.eval()
    with torch.no_grad():
        outputs = model(**encoded, output_attentions=True, output_hidden_states=True)
    found = outputs.hidden_states, outputs.attentions
    states, rows = ([part[0] for part in parts] for parts in found)
    return states, rows, encoded.word_ids(0)


def slow_graph(
    hidden: Tensor,  # [n, D]
    maps: list[Tensor],  # [n, n] of each head
    max_neighbors: int | None,
    words: list[int | None] | None = None,
) -> SlowGraph:
    """Join pair by pair."""
    groups = [[token] for token in range(len(hidden))]
    if words is not None:
        numbers = sorted({word for word in words if word is not None})
        groups = [[t for t, word in enumerate(words) if word == n] for n in numbers]
    nodes, joined = range(len(groups)), set()
    weights = [
        [
            [
                sum(float(own[a, b]) for a in groups[i] for b in groups[k]) / len(groups[i])
                for k in nodes
            ]
            for i in nodes
        ]
        for own in maps
    ]
    for own in weights:
        for i in nodes:
            others = sorted((own[i][k] for k in nodes if k != i), reverse=True)
            last = others[:max_neighbors][-1] if others else 0.0
            joined |= {(k, i) for k in nodes if k != i and own[i][k] > 0 and own[i][k] >= last}
    x = [hidden[group].mean(0) for group in groups]
    edges = {(k, i): [own[i][k] for own in weights] for k, i in joined}
    return torch.stack(x) if x else hidden[:0], edges


def assert_is(graph: Data, wanted: SlowGraph, tolerance: float = 1e-10) -> None:
    """Compare a graph with its definition."""
    x, edges = wanted
    torch.testing.assert_close(graph.x, x, rtol=tolerance, atol=tolerance)
    pairs = [(k, i) for k, i in graph.edge_index.T.tolist()]
    assert len(set(pairs)) == len(pairs) and set(pairs) == set(edges)
    weights = torch.tensor([edges[pair] for pair in pairs], dtype=graph.edge_attr.dtype)
    torch.testing.assert_close(
        graph.edge_attr, weights.reshape(graph.edge_attr.shape), rtol=tolerance, atol=tolerance
    )
