"""Sweeps of the kind ``trees``: dependency trees in the heads of a pretrained model.

The model is fine-tuned on UD English EWT to say which relation each word has to its head, or with
``ewtpos`` its part of speech: as it is, or with heads that jump, by learned strengths, along the
gold tree, or along one of random heads, in training and in the test. Within a seed all variants
begin at the same weights and see the same sentences in the same order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import networkx as nx
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected
from transformers import AutoModel, AutoTokenizer, get_linear_schedule_with_warmup

import jat_graph
from examples import questions
from examples.sweeps import training
from examples.sweeps.definition import Run
from examples.tasks import get_task
from jat_graph.looking.probes.treebank import Sentence, read_treebank
from jat_graph.training import GraphCollator, parameter_groups

PAIRS = jat_graph.JatConfig(
    jat_graph.PairGraph(standardize=True, threshold=4.0), heads="all", strength="learned"
)
LABELS = ("ewtrelations", "ewtpos")
VARIANTS = ("no jumps", "gold tree", "random tree")
BATCH, LONGEST, STRENGTH_LR = 16, 32, 1e-2
LEFT_OUT = -100  # label of tokens that are not the first of a word
TREE_SEED = 0  # of the random heads, which are the same for all seeds of the training


class Labeller(nn.Module):
    """A pretrained model that labels words, in the state of their first token."""

    def __init__(self, path: str, jumps: bool, num_labels: int) -> None:
        super().__init__()
        self.base, self.jumps = AutoModel.from_pretrained(path), jumps
        self.classify = nn.Linear(self.base.config.hidden_size, num_labels)
        if jumps:
            jat_graph.attach(self.base, PAIRS)

    def forward(self, labels: Tensor, graphs: Any, **batch: Tensor) -> Tensor:
        """Return logits of the words ``[words, labels]``, along the graphs or without them."""
        given = {"graphs": graphs} if self.jumps else {}
        states = self.base(**batch, **given).last_hidden_state
        return self.classify(states[labels != LEFT_OUT])


def check(run: Run) -> None:
    """Refuse tasks and variants that there are not."""
    training.shape(run.model)
    if run.variant.name not in VARIANTS:
        raise ValueError(f"variants must be of {', '.join(VARIANTS)}, got {run.variant.name!r}")
    if run.task not in LABELS or run.data_dir is None:
        raise ValueError(f"tasks must be {' or '.join(LABELS)}, of --data_dir, got {run.task!r}")


def run(run: Run) -> dict[str, Any]:
    """Train a model and let it label the dev set; return its record."""
    trees = [
        read_treebank(run.data_dir, split=split, lengths=range(1, LONGEST + 1))
        for split in ("train", "dev")
    ]
    labels = sorted({name for tree in trees[0] for name in labels_of(tree, run.task)})
    counts = run.count("max_train_samples", 600), run.count("max_eval_samples", 500)
    train, test = (
        make_rows(own[:count], run.task, labels, run.variant.name)
        for own, count in zip(trees, counts, strict=True)
    )
    collator = GraphCollator(AutoTokenizer.from_pretrained(run.model), max_length=128)
    torch.manual_seed(run.seed)
    model = Labeller(str(run.model), run.variant.name != VARIANTS[0], len(labels))
    rate = run.options.get("learning_rate", 1e-4)
    fit(model, train, collator, run.count("num_train_epochs", 2), rate, run.seed)
    said, right = answer(model, test, collator)
    return {
        "scores": {"validation": get_task(run.task).measure(said, right)},
        "answers": {"validation": {"said": said, "right": right}},
    }


def labels_of(tree: Sentence, label: str) -> Sequence[str]:
    """Return what is to be told of each word."""
    if label == "ewtpos":
        return tree.tags
    return [name.partition(":")[0] for name in tree.relations]  # without subtypes


def make_rows(
    trees: list[Sentence], label: str, labels: list[str], variant: str
) -> list[dict[str, Any]]:
    """Return words, the class of each, -1 for one of no training sentence, and a tree of them."""
    draw = random.Random(TREE_SEED)
    numbers = {name: number for number, name in enumerate(labels)}
    rows = []
    for tree in trees:
        heads = random_heads(len(tree), draw) if variant == "random tree" else tree.heads
        classes = [numbers.get(name, -1) for name in labels_of(tree, label)]
        rows.append({"text": [*tree.words], "labels": classes, "graph": tree_graph(heads)})
    return rows


def random_heads(num_words: int, draw: random.Random) -> list[int]:
    """Return the heads of a tree, each tree and each root as likely as any other."""
    tree = nx.random_labeled_rooted_tree(num_words, seed=draw)
    heads = dict(nx.bfs_predecessors(tree, tree.graph["root"]))
    return [heads.get(word, -1) for word in range(num_words)]


def tree_graph(heads: Sequence[int]) -> Data:
    """Return the tree between words, without a direction."""
    edges = [(word, head) for word, head in enumerate(heads) if head >= 0]
    index = torch.tensor(edges, dtype=torch.long).view(-1, 2).T  # one word has no edges
    return Data(edge_index=to_undirected(index), num_nodes=len(heads))


def fit(
    model: Labeller, rows: list[Any], collator: GraphCollator, epochs: int, rate: float, seed: int
) -> None:
    """Train on the sentences, strengths with a learning rate of their own."""
    # Dropout draws other numbers where heads jump; the order must not hang on them.
    draw = torch.Generator().manual_seed(seed)

    def losses() -> Iterator[Tensor]:
        for _ in range(epochs):
            for order in torch.randperm(len(rows), generator=draw).split(BATCH):
                batch = collator([rows[index] for index in order.tolist()])
                asked = batch["labels"] != LEFT_OUT
                yield F.cross_entropy(model(**batch), batch["labels"][asked])

    model.train()
    steps = epochs * -(-len(rows) // BATCH)
    groups = parameter_groups(model, lr=rate, strength_lr=STRENGTH_LR, weight_decay=0.01)
    optimizer = torch.optim.AdamW(groups)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    for _ in questions.descend(model, losses(), optimizer, schedule, clip=1.0):
        pass


@torch.no_grad()
def answer(
    model: Labeller, rows: list[Any], collator: GraphCollator
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the class that is said of each word of each sentence, and the right one."""
    model.eval()
    said, right = list[list[int]](), list[list[int]]()
    for start in range(0, len(rows), BATCH):
        batch = collator(rows[start : start + BATCH])
        asked = batch["labels"] != LEFT_OUT
        sizes = asked.sum(1).tolist()
        for found, own in ((said, model(**batch).argmax(-1)), (right, batch["labels"][asked])):
            found += [part.tolist() for part in own.split(sizes)]
    return said, right
