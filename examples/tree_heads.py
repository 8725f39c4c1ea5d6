"""Put dependency trees into the heads of a pretrained model, and label the words.

``python -m examples.tree_heads --data-dir DIR --model MINILM`` reads UD English EWT and fine-tunes
the model to say which relation each word has to its head: subject, object, or is it the root?
``--label pos`` asks for its part of speech. The same model is trained three times a seed: as it is,
with heads that jump along the gold tree, and with heads that jump along a tree of random heads,
which has as many edges and says nothing. How strongly heads jump is learned, from not at all.

The tree is given in training and in the test: the question is whether heads can use what they are
told. Within a seed all variants begin at the same weights and see the same sentences in the same
order. A line for each gives the mean over the seeds, their standard deviation, and what it is above
the model as it is, with 95 % intervals. ``--json`` writes all of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import scatter, to_undirected
from transformers import AutoModel, AutoTokenizer, get_linear_schedule_with_warmup

import jat_graph
from examples.options import example, option
from examples.word_scores import WordScores, settings_of
from jat_graph.core.files import check_target
from jat_graph.looking.probes.treebank import Sentence, read_treebank
from jat_graph.training import parameter_groups

PAIRS = jat_graph.JatConfig(
    jat_graph.PairGraph(standardize=True, threshold=4.0), heads="all", strength="learned"
)
LABELS = ("relation", "pos")
VARIANTS = ("no jumps", "gold tree", "random tree")
BATCH, LONGEST, STRENGTH_LR = 16, 32, 1e-2
TREE_SEED = 0  # of the random heads, which are the same for all seeds of the training


class Labelled(NamedTuple):
    """Words, the class of each, and the tree that heads jump along."""

    words: Sequence[str]
    classes: list[int]  # -1 for a label that no sentence of the training data has
    heads: Sequence[int] | None  # from 0, with -1 for the root; None without jumps


class Labeller(nn.Module):
    """A pretrained model that labels words, in the state of their first token."""

    def __init__(self, path: str, jumps: bool, num_labels: int) -> None:
        super().__init__()
        self.base = AutoModel.from_pretrained(path)
        self.classify = nn.Linear(self.base.config.hidden_size, num_labels)
        if jumps:
            jat_graph.attach(self.base, PAIRS)

    def forward(self, encoding: Any, firsts: Tensor, graphs: list[Data] | None) -> Tensor:
        """Return logits of the words at ``firsts``, bool ``[B, L]``, along graphs if given."""
        if graphs is None:
            states = self.base(**encoding).last_hidden_state
        else:
            words = [encoding.word_ids(row) for row in range(len(graphs))]
            with jat_graph.using_graphs(self.base, graphs, word_ids=words):
                states = self.base(**encoding).last_hidden_state
        logits: Tensor = self.classify(states[firsts])
        return logits


@dataclass
class Options:
    """What is asked for."""

    model: str = option("folder or Hub name of an encoder")
    data_dir: Path = option("folder of UD English EWT")
    label: str = option("relation or pos", LABELS[0])
    trees: int = option("trees to train on", 600)
    test_trees: int = 500
    epochs: int = 2
    learning_rate: float = 1e-4
    seeds: int = 5
    json: Path | None = option("file for scores and counts", None)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train each variant; yield a line for each."""
    if args.label not in LABELS:
        raise ValueError(f"label must be {' or '.join(LABELS)}, got {args.label!r}")
    check_target(args.json)
    train, test = (
        read_treebank(args.data_dir, split=split, lengths=range(1, LONGEST + 1))
        for split in ("train", "dev")
    )
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    labels = sorted({name for tree in train for name in labels_of(tree, args.label)})
    train, test = train[: args.trees], test[: args.test_trees]
    scores = WordScores(VARIANTS[0], [len(tree) for tree in test])
    for variant in VARIANTS:
        start = time.perf_counter()
        parts = [make_sentences(trees, args.label, labels, variant) for trees in (train, test)]
        for seed in range(args.seeds):
            torch.manual_seed(seed)
            model = Labeller(args.model, variant != VARIANTS[0], len(labels))
            fit(model, parts[0], tokenizer, args.epochs, args.learning_rate, seed)
            counts = count_right(model, parts[1], tokenizer)
            scores.right.setdefault(variant, []).append(counts)
        seconds = (time.perf_counter() - start) / args.seeds
        if args.json is not None:
            more = {"jumps": PAIRS.to_dict(), "strength_lr": STRENGTH_LR}
            scores.save(args.json, settings_of(args, **more))
        yield f"{scores.told(variant)}, {seconds:.0f} s a seed"


def labels_of(tree: Sentence, label: str) -> Sequence[str]:
    """Return what is to be told of each word."""
    if label == "pos":
        return tree.tags
    return [name.partition(":")[0] for name in tree.relations]  # without subtypes


def make_sentences(
    trees: list[Sentence], label: str, labels: list[str], variant: str
) -> list[Labelled]:
    """Return sentences with the heads that an variant gives them."""
    draw = random.Random(TREE_SEED)
    heads: dict[str, Callable[[Sentence], Sequence[int] | None]] = {
        "no jumps": lambda tree: None,
        "gold tree": lambda tree: tree.heads,
        "random tree": lambda tree: random_heads(len(tree), draw),
    }
    numbers = {name: number for number, name in enumerate(labels)}
    return [
        Labelled(
            tree.words,
            [numbers.get(name, -1) for name in labels_of(tree, label)],
            heads[variant](tree),
        )
        for tree in trees
    ]


def random_heads(num_words: int, draw: random.Random) -> list[int]:
    """Return the heads of a tree, each tree and each root as likely as any other."""
    tree = nx.random_labeled_rooted_tree(num_words, seed=draw)
    heads = dict(nx.bfs_predecessors(tree, tree.graph["root"]))
    return [heads.get(word, -1) for word in range(num_words)]


def encode(sentences: list[Labelled], tokenizer: Any) -> tuple[Any, Tensor, Tensor]:
    """Return tokens, which of them begin a word ``[B, L]``, and which word each belongs to."""
    encoding = tokenizer(
        [list(sentence.words) for sentence in sentences],
        is_split_into_words=True,
        truncation=True,
        max_length=128,
        padding=True,
        return_tensors="pt",
    )
    ids = [encoding.word_ids(row) for row in range(len(sentences))]
    words = torch.tensor([[-1 if word is None else word for word in row] for row in ids])
    firsts = (words >= 0) & (words != F.pad(words, (1, 0), value=-1)[:, :-1])
    return encoding, firsts, words


def tree_graph(heads: Sequence[int]) -> Data:
    """Return the tree between words, without a direction."""
    edges = [(word, head) for word, head in enumerate(heads) if head >= 0]
    index = torch.tensor(edges, dtype=torch.long).view(-1, 2).T  # one word has no edges
    return Data(edge_index=to_undirected(index), num_nodes=len(heads))


def predict(
    model: Labeller, sentences: list[Labelled], tokenizer: Any
) -> tuple[Tensor, Tensor, Tensor]:  # [words, labels], [words], [words]
    """Return logits and classes of the words of some sentences, and whose words they are."""
    encoding, firsts, words = encode(sentences, tokenizer)
    graphs = [tree_graph(one.heads) for one in sentences if one.heads is not None]
    logits = model(encoding, firsts, graphs or None)
    rows = firsts.nonzero()[:, 0]
    indices = zip(rows.tolist(), words[firsts].tolist(), strict=True)
    return logits, torch.tensor([sentences[row].classes[word] for row, word in indices]), rows


def fit(
    model: Labeller, sentences: list[Labelled], tokenizer: Any, epochs: int, rate: float, seed: int
) -> None:
    """Train on the sentences, strengths with a learning rate of their own."""
    groups = parameter_groups(model, lr=rate, strength_lr=STRENGTH_LR, weight_decay=0.01)
    optimizer = torch.optim.AdamW(groups)
    steps = epochs * -(-len(sentences) // BATCH)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    # Dropout draws other numbers where heads jump; the order must not hang on them.
    draw = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(epochs):
        order = torch.randperm(len(sentences), generator=draw).tolist()
        for start in range(0, len(sentences), BATCH):
            own = [sentences[index] for index in order[start : start + BATCH]]
            logits, classes, _ = predict(model, own, tokenizer)
            optimizer.zero_grad()
            F.cross_entropy(logits, classes).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()


@torch.no_grad()
def count_right(model: Labeller, sentences: list[Labelled], tokenizer: Any) -> list[int]:
    """Return how many words of each sentence are right."""
    model.eval()
    found: list[int] = []
    for start in range(0, len(sentences), BATCH):
        own = sentences[start : start + BATCH]
        logits, classes, rows = predict(model, own, tokenizer)
        right = (logits.argmax(-1) == classes).long()
        found += scatter(right, rows, dim_size=len(own), reduce="sum").tolist()
    return found


if __name__ == "__main__":
    main()
