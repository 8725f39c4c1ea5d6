"""Put dependency trees into the heads of a pretrained model, and name the relations.

``python -m examples.tree_heads --data-dir DIR --model MINILM`` reads UD English EWT and fine-tunes
the model to say which relation each word has to its head: subject, object, or is it the root? The
same model is trained four times a seed: as it is, with heads that jump along their own graphs, with
heads that jump along the gold tree, and with a graph convolution of PyG on that tree in each head.
How strongly heads jump is learned, from not at all.

A tree says which word is whose neighbour, not which of the two depends on the other, and not how.
It is given in training and in the test: the question is whether heads can use what they are told,
not whether a model can parse. All arms see the same sentences in the same order, with the same
learning rate, which was chosen for none of them; strengths add 216 numbers to a model of 6 layers
with 12 heads, and the layers of PyG some thousands. A line for each arm gives the mean over the
seeds, their standard deviation, and what it is above the model as it is, with a 95 % interval.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_undirected
from transformers import AutoModel, AutoTokenizer, get_linear_schedule_with_warmup

import jat_graph
from examples.jat_graph_transformer import Tree, read_trees
from jat_graph.training import paired_difference, parameter_groups, summarize

PAIRS = jat_graph.JatConfig(heads="all", strength="learned", standardize=True, threshold=4.0)
# Whether heads jump, by which layer of PyG, and along the gold tree or graphs of their own.
ARMS: dict[str, tuple[bool, Any, bool]] = {
    "no jumps": (False, None, False),
    "own graphs": (True, None, False),
    "gold tree": (True, None, True),
    "gold tree, GCNConv": (True, GCNConv, True),
}
BATCH, LONGEST, STRENGTH_LR = 16, 32, 1e-2


class Labeller(nn.Module):
    """A pretrained model that labels words, in the state of their first token."""

    def __init__(self, path: str, jumps: bool, conv: Any, num_labels: int) -> None:
        super().__init__()
        self.base = AutoModel.from_pretrained(path)
        if jumps:
            jat_graph.attach(self.base, PAIRS, conv=conv)
        self.classify = nn.Linear(self.base.config.hidden_size, num_labels)

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


def main() -> None:
    """Train each arm on each seed and print what they reach."""
    args = read_arguments()
    try:
        for name in ("trees", "test_trees", "epochs", "seeds"):
            if getattr(args, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(args, name)}")
        if not args.learning_rate > 0:
            raise ValueError(f"learning_rate must be above 0, got {args.learning_rate}")
        train, test = (
            [tree for tree in read_trees(args.data_dir, split) if len(tree.words) <= LONGEST]
            for split in ("train", "dev")
        )
        tokenizer = AutoTokenizer.from_pretrained(args.model)
    except (OSError, ValueError) as error:
        raise SystemExit(f"tree_heads: error: {str(error).splitlines()[0]}") from None
    labels = sorted({name for tree in train for name in tree.relations})
    train, test = train[: args.trees], test[: args.test_trees]
    scores: dict[str, list[float]] = {}
    for name, (jumps, conv, gold) in ARMS.items():
        start, found = time.perf_counter(), scores.setdefault(name, [])
        for seed in range(args.seeds):
            torch.manual_seed(seed)
            model = Labeller(args.model, jumps, conv, len(labels))
            fit(model, train, tokenizer, labels, gold, args.epochs, args.learning_rate)
            found.append(100 * evaluate(model, test, tokenizer, labels, gold))
        seconds = (time.perf_counter() - start) / args.seeds
        typer.echo(f"{name}: {told(found, scores['no jumps'])}, {seconds:.0f} s a seed")


def told(found: list[float], base: list[float]) -> str:
    """Return mean and spread of an arm, and what it is above the base, seed by seed."""
    arm, seeds = summarize(found), len(found)
    spread = "" if arm.std is None else f" ± {arm.std:.1f}"
    text = f"{arm.mean:.1f}%{spread} right, {seeds} seed{'s' if seeds > 1 else ''}"
    if found is base:
        return text
    change = paired_difference(found, base)
    held = "" if change.low is None else f" ({change.low:+.1f} to {change.high:+.1f})"
    return f"{text}, {change.mean:+.1f}{held} against no jumps"


def encode(trees: list[Tree], tokenizer: Any) -> tuple[Any, Tensor, Tensor]:
    """Return tokens, which of them begin a word ``[B, L]``, and which word each belongs to."""
    encoding = tokenizer(
        [tree.words for tree in trees],
        is_split_into_words=True,
        truncation=True,
        max_length=128,
        padding=True,
        return_tensors="pt",
    )
    ids = [encoding.word_ids(row) for row in range(len(trees))]
    words = torch.tensor([[-1 if word is None else word for word in row] for row in ids])
    firsts = (words >= 0) & (words != F.pad(words, (1, 0), value=-1)[:, :-1])
    return encoding, firsts, words


def tree_graph(tree: Tree) -> Data:
    """Return the tree between words, without a direction."""
    edges = [(word, head - 1) for word, head in enumerate(tree.heads) if head > 0]
    index = torch.tensor(edges, dtype=torch.long).view(-1, 2).T  # one word has no edges
    return Data(edge_index=to_undirected(index), num_nodes=len(tree.words))


def predict(
    model: Labeller, trees: list[Tree], tokenizer: Any, labels: list[str], gold: bool
) -> tuple[Tensor, Tensor]:  # [words, labels], [words]
    """Return logits and classes of the words of some trees."""
    encoding, firsts, words = encode(trees, tokenizer)
    logits = model(encoding, firsts, [tree_graph(tree) for tree in trees] if gold else None)
    classes = [
        labels.index(trees[row].relations[word]) if trees[row].relations[word] in labels else -1
        for row, word in zip(firsts.nonzero()[:, 0].tolist(), words[firsts].tolist(), strict=True)
    ]
    return logits, torch.tensor(classes)


def fit(
    model: Labeller,
    trees: list[Tree],
    tokenizer: Any,
    labels: list[str],
    gold: bool,
    epochs: int,
    rate: float,
) -> None:
    """Train on the trees, strengths with a learning rate of their own."""
    groups = parameter_groups(model, lr=rate, strength_lr=STRENGTH_LR, weight_decay=0.01)
    optimizer = torch.optim.AdamW(groups)
    steps = epochs * -(-len(trees) // BATCH)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    model.train()
    for _ in range(epochs):
        order = torch.randperm(len(trees)).tolist()
        for start in range(0, len(trees), BATCH):
            own = [trees[place] for place in order[start : start + BATCH]]
            loss = F.cross_entropy(*predict(model, own, tokenizer, labels, gold))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()


@torch.no_grad()
def evaluate(
    model: Labeller, trees: list[Tree], tokenizer: Any, labels: list[str], gold: bool
) -> float:
    """Return the share of words whose relation is right."""
    model.eval()
    right = []
    for start in range(0, len(trees), BATCH):
        logits, classes = predict(model, trees[start : start + BATCH], tokenizer, labels, gold)
        right.append(logits.argmax(-1) == classes)
    return float(torch.cat(right).float().mean())


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of UD English EWT")
    parser.add_argument("--model", required=True, help="folder or Hub name of an encoder")
    parser.add_argument("--trees", type=int, default=600, help="to train on (default: 600)")
    parser.add_argument("--test-trees", type=int, default=500, help="(default: 500)")
    parser.add_argument("--epochs", type=int, default=2, help="(default: 2)")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="(default: 1e-4)")
    parser.add_argument("--seeds", type=int, default=3, help="(default: 3)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
