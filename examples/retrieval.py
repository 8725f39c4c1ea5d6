"""Retrieve long texts by questions, over the length: with dense attention or clusters, and trained.

``python -m examples.retrieval --data-dir DIR --output FILE.jsonl`` looks for articles of COVID-QA,
their titles taken off, by these and by their questions, or with ``--task qmsum`` for meetings.
all-MiniLM-L6-v2, its table of positions stretched, makes vectors of the first tokens of texts; half
of the texts, drawn for each seed, train it to find the others, in the way it reads. Pieces are read
by the model of the shortest length. What the file has is not run again.
"""

from __future__ import annotations

import json
import random
from bisect import bisect, bisect_left
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice, product
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from pandas import DataFrame, Series
from torch import Tensor

from examples import questions
from examples.benchmarks.measure import Settings, in_turns, peak
from examples.long_inputs import MINILM, build_forward, load
from examples.options import example, option
from examples.questions import Row
from examples.tasks import get_task
from examples.tasks.documents import read_meetings

SCALE, QUERY = 20.0, 64  # of cosines; tokens of a query
DENSE, COSTS, WAYS = "dense", "costs", {"dense": "sdpa", "clusters": '{"dense_below": 0}'}
CLUSTERED = 1024  # tokens of the shortest texts that are read by clusters
BORDERS = (512, 2048)  # tokens: questions are told apart by where their answers begin
KINDS = ("titles", "questions", "answer near", "answer far", "answer farther")
MEASURES = ["hit@1", "MRR"]
SETTINGS = "task model epochs batch_size queries learning_rate limit".split()  # of one answer
Asked: TypeAlias = tuple[str, int | None]  # a query, and the character at which its answer begins
Encoded: TypeAlias = tuple[Tensor, list[Tensor]]  # vectors [lengths, texts, D]; queries by text


class Document(NamedTuple):
    """A text, and what is asked of it."""

    text: str
    queries: list[str]
    kinds: list[str]  # of the queries


@dataclass
class Options:
    """What is asked for."""

    output: Path = option("file for the runs, one line each; finished runs are kept")
    task: str = option("covidqa or qmsum", "covidqa")
    data_dir: Path | None = option("folder with the task's files", None)
    model: str = option(f"folder or Hub name; {MINILM} is in its package", MINILM)
    lengths: list[int] = option("tokens of a text; first those of pieces", [512, 1024, 2048, 4096])
    seeds: int = option("random draws of the texts to train on", 3)
    longest_training: int = option("largest length to train on; longer texts are only read", 4096)
    costs: bool = option("also measure seconds and memory", False)
    epochs: int = 2
    batch_size: int = option("texts in a step", 8)
    queries: int = option("random queries of each text in a step", 4)
    learning_rate: float = 1e-4
    limit: int | None = option("number of texts", None)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Measure what the file lacks; yield a line for each run, and then tables."""
    if args.task not in READERS:
        raise ValueError(f"task must be {' or '.join(READERS)}, got {args.task!r}")
    first = args.lengths[0]
    if first < 1 or args.lengths != sorted({n - n % first for n in args.lengths}):
        raise ValueError(f"lengths must be rising multiples of the first, got {args.lengths}")
    settings = {name: getattr(args, name) for name in SETTINGS}
    key = itemgetter("tokens", "read", "seed", "trained")
    done = {key(x) for x in read_runs(args.output, settings) if x["task"] in (args.task, None)}
    for found in measure(read_documents(args), done, args):
        rows = [row for row in found if key(row) not in done]
        questions.add_runs(args.output, [settings | row for row in rows])
        for row in rows:
            yield json.dumps({name: value for name, value in row.items() if name != "ranks"})
    yield from tables(read_runs(args.output, settings))


def read_runs(path: Path, settings: Row) -> list[Row]:
    """Return what a file has, if it is there; all of a task must be of the same settings."""

    def fits(row: Row) -> bool:
        other = {name: row[name] for name in settings}
        if row["task"] == settings["task"] and other != settings:
            raise ValueError(other)
        return True

    return questions.read_runs(path, "retrieval with the same settings", fits)


def read_articles(data_dir: Path | None) -> Iterator[tuple[str, list[Asked]]]:
    """Yield the articles of COVID-QA without their titles, and these and the questions."""
    asked: dict[str, list[Asked]] = {}
    for split in get_task("covidqa").load(data_dir).values():
        for row in split:
            title = row["context"].partition("\n")[0]
            start = row["answers"]["answer_start"][0] - len(title) - 1
            asked.setdefault(row["context"], [(title, None)]).append((row["question"], start))
    for context, queries in asked.items():
        yield context.partition("\n")[2], queries


def read_transcripts(data_dir: Path | None) -> Iterator[tuple[str, list[Asked]]]:
    """Yield the meetings of QMSum and their queries; an answer begins with its first turn."""
    for _, turns, asked in read_meetings(data_dir):
        starts = [*accumulate((len(turn) + 1 for turn in turns), initial=0)]
        yield "\n".join(turns), [(query, starts[min(spans)[0]]) for query, spans, _ in asked]


READERS = {"covidqa": read_articles, "qmsum": read_transcripts}


def read_documents(args: Options) -> list[Document]:
    """Read the texts of a task, and the kinds of their queries."""
    _, tokenizer = load(args.model, 1)
    documents = []
    for text, asked in islice(READERS[args.task](args.data_dir), args.limit):
        told = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
        begins = [begin for begin, _ in told["offset_mapping"]]
        places = [x if x is None else bisect_left(begins, x) for _, x in asked]
        kinds = [KINDS[0 if x is None else 2 + bisect(BORDERS, x)] for x in places]
        documents.append(Document(text, [query for query, _ in asked], kinds))
    if len(documents) < 4:
        raise ValueError(f"limit must leave 2 texts for either half, got {args.limit}")
    return documents


def measure(every: list[Document], done: Container[Any], args: Options) -> Iterator[list[Row]]:
    """Yield what is not done: the runs of each length and seed, and what lengths cost."""
    for length, way in product(args.lengths, WAYS):
        learns = length <= args.longest_training
        seeds = [seed for seed in range(args.seeds) if (length, way, seed, learns) not in done]
        if seeds and (way == DENSE or length >= CLUSTERED):
            lengths = args.lengths if (length, way) == (args.lengths[0], DENSE) else [length]
            known = encode_all(load(args.model, length, WAYS[way]), every, lengths)
            for seed in seeds:
                yield run(every, known, lengths, way, seed, args)
    for length in args.lengths if args.costs else ():
        if (length, COSTS, None, True) not in done:
            yield [costs(args.model, length, args.lengths[0], x) for x in (False, True)]


def costs(name: str, length: int, piece: int, learns: bool) -> Row:
    """Measure seconds and bytes of a forward, or of one with its backward, the ways in turns."""
    given = length, torch.get_num_threads(), learns
    sides = [(name, attention, *given) for attention in WAYS.values()]
    theirs, ours = (build_forward(*side) for side in sides)
    settings = Settings("cpu", 5, torch.float32)
    found = in_turns(ours, theirs, settings, heavy=True)
    row: Row = {"task": None, "read": COSTS, "tokens": length, "seed": None, "trained": learns}
    row["ratio"] = found["ratio"]["median"]
    pieces = build_forward(name, WAYS[DENSE], piece, *given[1:], length // piece)
    row["pieces ratio"] = in_turns(pieces, theirs, settings, heavy=True)["ratio"]["median"]
    for way, own, side in zip(WAYS, ("theirs", "ours"), sides, strict=True):
        row[f"{way} seconds"] = found[own]["median"]
        row[f"{way} bytes"] = peak(build_forward, *side, device="cpu")
    return row


def run(
    every: list[Document], known: Encoded, lengths: list[int], way: str, seed: int, args: Options
) -> list[Row]:
    """Look for half of the texts by the model as it is, and by one trained on the other half."""
    order = random.Random(seed).sample(range(len(every)), len(every))
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    tested = [every[i] for i in test]
    found = [(known[0][:, test], [known[1][i] for i in test])]
    if lengths[0] <= args.longest_training:
        loaded = load(args.model, lengths[0], WAYS[way])
        fit(loaded, [every[i] for i in train], lengths[0], seed, args)
        found.append(encode_all(loaded, tested, lengths))
    rows: list[Row] = []
    for trained, (texts, queries) in enumerate(found):
        for tokens, vectors in zip(lengths, texts, strict=True):
            read = way if tokens == lengths[0] else "pieces"
            row = {"tokens": tokens, "read": read, "seed": seed, "trained": bool(trained)}
            rows.append(row | {"ranks": rank(vectors, queries, tested)})
    return rows


def encode(loaded: Any, texts: Sequence[str], length: int, pieces: int = 1) -> Tensor:
    """Return vectors as sentence-transformers has them, means of states, of pieces of a text."""
    model, tokenizer = loaded
    cut = {"truncation": True, "max_length": length, "return_overflowing_tokens": pieces > 1}
    batch = tokenizer([*texts], padding=True, return_tensors="pt", **cut)
    batch = {x: batch[x][: max(pieces, len(texts))] for x in ("input_ids", "attention_mask")}
    valid = batch["attention_mask"].unsqueeze(-1)
    return F.normalize((model(**batch).last_hidden_state * valid).sum(1) / valid.sum(1), dim=-1)


@torch.inference_mode()
def encode_all(loaded: Any, documents: Sequence[Document], lengths: Sequence[int]) -> Encoded:
    """Return vectors of texts by length, longer ones by their pieces, and of queries by text."""
    vectors, (piece, *_) = [], lengths
    for document in documents:
        pieces = encode(loaded, [document.text], piece, lengths[-1] // piece)
        vectors.append(torch.stack([pieces[: length // piece].mean(0) for length in lengths]))
    queries = [encode(loaded, document.queries, QUERY) for document in documents]
    return F.normalize(torch.stack(vectors, dim=1), dim=-1), queries


def fit(loaded: Any, documents: list[Document], length: int, seed: int, args: Options) -> None:
    """Train all weights, without dropout; other texts of a step are the wrong ones."""
    optimizer = torch.optim.AdamW(loaded[0].parameters(), args.learning_rate)
    draw, size = random.Random(seed), min(args.batch_size, len(documents))
    for _ in range(args.epochs):
        order = draw.sample(documents, len(documents))
        for start in range(0, len(order) - size + 1, size):
            batch = order[start : start + size]
            asked = [draw.sample(x.queries, min(args.queries, len(x.queries))) for x in batch]
            right = [number for number, own in enumerate(asked) for _ in own]
            texts = torch.cat([encode(loaded, [document.text], length) for document in batch])
            cosines = encode(loaded, [*chain(*asked)], QUERY) @ texts.T
            F.cross_entropy(SCALE * cosines, torch.tensor(right)).backward()
            optimizer.step()
            optimizer.zero_grad()


def rank(texts: Tensor, queries: list[Tensor], documents: list[Document]) -> dict[str, list[int]]:
    """Return of each kind of queries at which place their own texts are found."""
    ranks: dict[str, list[int]] = {}
    for number, (vectors, document) in enumerate(zip(queries, documents, strict=True)):
        cosines = vectors @ texts.T
        places = (cosines >= cosines[:, number, None]).sum(1)  # a tie is no find
        for kind, place in zip(document.kinds, places.tolist(), strict=True):
            ranks.setdefault(kind, []).append(place)
    return ranks


def scores(rows: list[Row]) -> Series[float]:
    """Return hit@1 and mean reciprocal ranks of all runs."""
    keys = ["task", "read", "tokens", "trained", "seed"]
    found = [
        (*(row[key] for key in keys), name, place == 1, 1 / place)
        for row in rows
        for kind, places in row.get("ranks", {}).items()
        for name in {kind, KINDS[kind != KINDS[0]]}  # all but titles are questions
        for place in places
    ]
    frame = DataFrame(found, columns=[*keys, "kind", *MEASURES])
    return frame.groupby([*keys, "kind"]).mean().rename_axis(columns="measure").stack()


def tables(rows: list[Row]) -> Iterator[str]:
    """Yield means over seeds, differences within seeds (lowest to highest), and what texts cost."""
    found = scores(rows)
    means = found.unstack("seed").mean(axis=1).unstack(["measure", "kind"])
    yield f"\n{means.to_string(float_format='%.3f', na_rep='')}"
    found = found[found.index.isin(KINDS[:2], level="kind")]
    least = found.index.unique("tokens").min()
    for level, base in (("trained", False), ("read", DENSE), ("tokens", least)):
        wide = found.unstack(level)
        gains = wide.drop(columns=base).sub(wide[base], axis=0).stack().dropna().unstack("seed")
        cells = gains.apply(lambda x: f"{x.mean():+.3f} ({x.min():+.3f} to {x.max():+.3f})", axis=1)
        yield f"\nless {level} {base}\n{cells.unstack(['measure', 'kind']).to_string(na_rep='')}"
    columns = [f"{way} {what}" for what in ("seconds", "bytes") for way in WAYS]
    spent = DataFrame(
        [row for row in rows if row["read"] == COSTS],
        columns=["tokens", "trained", "ratio", "pieces ratio", *columns],
    )
    yield f"\n{spent.to_string(index=False, float_format='%.2f')}"


if __name__ == "__main__":
    main()
