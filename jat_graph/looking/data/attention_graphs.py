"""Texts read by a model, as a data set of graphs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.core.files import write_text
from jat_graph.core.numbers import check_choice, check_integer
from jat_graph.core.progress import track_progress
from jat_graph.looking.data.reading import (
    ATTENTION,
    GRAPH,
    EncodedTexts,
    Head,
    Texts,
    attention_heads,
    check_heads,
    check_model,
    digest,
    encode_texts,
    is_jumping,
    jump_heads,
    model_digest,
    pool_words,
    read_graphs,
    read_texts,
    write_graphs,
)

VERSION = 2  # of what is written, and how it is made
SHARD = 64  # texts of a file: what is lost when a run stops
SETTINGS_FILE = "settings.json"


class AttentionGraphs(InMemoryDataset):  # type: ignore[misc]  # PyG is not typed
    r"""The attention of a frozen model over many texts, a graph each.

    Nodes are a text's tokens, special ones too, or its words, without these; ``x`` holds their
    hidden states after a layer. An edge goes from source k to target i where, in any chosen head,
    the weight that i gives to k is above 0 and among the ``max_neighbors`` heaviest of i (what
    weighs as much as the last of them stays, too). Nothing is joined to itself. ``edge_attr`` has
    what every chosen head gives on that edge. The weight to a word is the sum over its tokens, that
    from a word the mean over them, and so are its states.

    The model reads texts of one length together, so that nothing is padded, the longest first. An
    edge takes :math:`4 (C + 4)` bytes for C chosen heads: choose few for long texts.

    Graphs are kept in a folder of ``root`` that is named after what made them: texts, model and
    settings. The same call reads them back, another one makes its own, and one that was interrupted
    goes on where it stopped. Files are safetensors and JSON; PyG's ``pre_transform`` and
    ``pre_filter``, which it pickles, are not taken.

    Args:
        root: Folder for the files.
        texts: Texts, or lists of words. What is longer than ``max_length`` is cut.
        model: A model of transformers, with jump heads or without, read in evaluation mode.
        tokenizer: Its tokenizer; a fast one if there are words.
        y: For each text its label, or one label for each of its nodes: for each word of the text,
            where nodes are words, also for those that were cut off. (default: None)
        nodes: ``"tokens"`` or ``"words"``. (default: ``"tokens"``)
        edges: ``"attention"``, the probabilities of any model; or ``"jumps"``, the graphs of jump
            heads: A of pairs, hard votes, or the walk P over stones. (default: ``"attention"``)
        heads: Pairs (layer, head), from 0; of jump heads for jumps. (default: None, all of them)
        layer: Layer whose states are ``x``, 0 for embeddings, -1 for the last one. (default: -1)
        max_neighbors: Heaviest edges into a node that each head keeps; None for all. (default: 8)
        max_length: Tokens of a text, special ones included. (default: None, what the model takes)
        batch_size: Most texts that the model reads at a time. (default: 8)
        transform: Changes a graph whenever it is taken out. (default: None)

    Attributes:
        heads: The head of each column of ``edge_attr``.

    Raises:
        ValueError: If an argument does not fit the model or the texts, or a file is damaged.
        OSError: If the folder cannot be read or written.

    Shapes:
        - **graphs:** of n nodes: ``x`` ``[n, D]``, ``edge_index`` ``[2, E]``, ``edge_attr``
          ``[E, C]``, ``y`` ``[1]`` or ``[n]``, and the ids of the nodes ``[n]``: ``input_ids`` of
          tokens, in their order, or ``word_ids``, numbers of words in the text

    Reference:
        Clark et al., *What Does BERT Look At?*, BlackboxNLP 2019, for attention from word to word.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from transformers import BertConfig, BertModel, BertTokenizer
        >>> from jat_graph.data import AttentionGraphs
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] dogs bark".split()
        >>> tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(words)})
        >>> config = BertConfig(hidden_size=32, num_attention_heads=4, attn_implementation="eager")
        >>> with TemporaryDirectory() as folder:
        ...     graphs = AttentionGraphs(folder, ["dogs bark"], BertModel(config), tokenizer)
        >>> graphs[0].x.shape, graphs.num_edge_features  # a column for each of 12 · 4 heads
        (torch.Size([4, 32]), 48)
    """

    def __init__(
        self,
        root: str | Path,
        texts: Texts,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        y: Sequence[Any] | Tensor | None = None,
        nodes: str = "tokens",
        edges: str = "attention",
        heads: Sequence[Head] | None = None,
        layer: int = -1,
        max_neighbors: int | None = 8,
        max_length: int | None = None,
        batch_size: int = 8,
        transform: Callable[[Data], Data] | None = None,
    ) -> None:
        check_choice("nodes", nodes, ("tokens", "words"))
        check_choice("edges", edges, ("attention", "jumps"))
        check_model(model)
        known = attention_heads(model) if edges == "attention" else jump_heads(model)
        depth = model.config.num_hidden_layers
        check_integer("layer", layer, least=-depth - 1, below=depth + 1)
        if max_neighbors is not None:
            check_integer("max_neighbors", max_neighbors, least=1)
        check_integer("batch_size", batch_size, least=1)
        self.heads = known if heads is None else check_heads(heads, known)
        encoded = encode_texts(texts, model, tokenizer, max_length, nodes == "words")
        if y is not None and len(y) != len(texts):
            raise ValueError(f"y must have an entry for each of {len(texts)} texts, got {len(y)}")
        super().__init__(str(root), transform)
        self._settings: dict[str, Any] = {
            "version": VERSION,
            "model": model_digest(model),
            "heads_of_ours": is_jumping(model),
            "texts": digest([encoded.inputs, encoded.words]),
            "nodes": nodes,
            "edges": edges,
            "heads": self.heads,
            "layer": layer,
            "max_neighbors": max_neighbors,
        }
        # Texts of similar length are in one file, the longest in the first.
        order = sorted(range(len(texts)), key=lambda row: -encoded.lengths[row])
        self._shards = [order[start : start + SHARD] for start in range(0, len(order), SHARD)]
        self._write(model, encoded, batch_size)
        written = [graph for path in self.processed_paths for graph in read_graphs(Path(path))]
        found = dict(zip(order, written, strict=True))
        graphs = [found[row] for row in range(len(texts))]
        if y is not None:
            for row, graph in enumerate(graphs):
                graph.y = _label(row, y[row], graph, encoded)
        self.data, self.slices = self.collate(graphs)

    @property
    def processed_dir(self) -> str:
        """Folder with the graphs of these texts, this model and these settings."""
        return str(Path(self.root) / digest(self._settings)[:16])

    @property
    def processed_file_names(self) -> list[str]:
        return [f"graphs-{number:05d}.safetensors" for number in range(len(self._shards))]

    def _write(self, model: PreTrainedModel, texts: EncodedTexts, batch_size: int) -> None:
        """Make the graphs that are not there yet."""
        files = zip(map(Path, self.processed_paths), self._shards, strict=True)
        missing = [(path, rows) for path, rows in files if not path.exists()]
        if missing:
            folder = Path(self.processed_dir)
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / SETTINGS_FILE, json.dumps(self._settings, indent=2) + "\n")
        for path, rows in track_progress(missing, "Reading texts", len(missing)):
            write_graphs(path, self._graphs(model, texts, rows, batch_size))

    def _graphs(
        self, model: PreTrainedModel, texts: EncodedTexts, rows: Sequence[int], batch_size: int
    ) -> Iterator[Data]:
        """Yield the graph of each text; of its batch nothing else is there after that."""
        own = self._settings
        kind = ATTENTION if own["edges"] == "attention" else GRAPH
        for row, states, maps in read_texts(model, texts, rows, batch_size, kind, self.heads):
            hidden = states[own["layer"]]
            ids = {"input_ids": torch.tensor(texts.inputs["input_ids"][row])}
            if texts.words is not None:
                words = torch.tensor(texts.words[row], device=hidden.device)
                numbers, hidden, maps = pool_words(words, hidden, maps)
                ids = {"word_ids": numbers}
            graph = build_graph(hidden, maps, own["max_neighbors"])
            yield graph.update(ids).cpu()


def build_graph(
    hidden: Tensor,  # [n, D]
    maps: Tensor,  # [C, n, n], query by key; overwritten
    max_neighbors: int | None,
) -> Data:
    """Return the graph with an edge (source k, target i) where any map joins i to k."""
    maps.diagonal(dim1=-2, dim2=-1).zero_()
    least = maps.new_tensor(torch.finfo(maps.dtype).tiny)  # no weight is no edge
    if max_neighbors is not None:
        heaviest = maps.topk(min(max_neighbors, maps.size(-1)), dim=-1).values
        least = heaviest[..., -1:].clamp(min=least)  # ties with the last one stay
    target, source = (maps >= least).any(0).nonzero(as_tuple=True)
    edge_index = torch.stack([source, target])
    return Data(x=hidden, edge_index=edge_index, edge_attr=maps[:, target, source].T.contiguous())


def _label(row: int, entry: Any, graph: Data, texts: EncodedTexts) -> Tensor:  # [1] or [n]
    label = torch.as_tensor(entry)
    if label.dim() == 0:
        return label.reshape(1)
    if label.numel() == 0:
        label = label.long()  # an empty list says nothing of its type, and float would win
    wanted = graph.num_nodes if texts.num_words is None else texts.num_words[row]
    if label.shape != (wanted,):
        got = list(label.shape)
        raise ValueError(f"y[{row}] must be one label or {wanted}, one a node, got shape {got}")
    return label if texts.words is None else label[graph.word_ids]
