"""Find long texts by what is asked of them, over their length: dense, by clusters, and trained.

``python -m examples.retrieval --data-dir DIR --output FILE.jsonl`` looks for articles of COVID-QA,
their titles taken off, by these and by their questions; with ``--task qmsum`` for meetings by their
queries. all-MiniLM-L6-v2 makes a vector of the first tokens of each text, at a stretched table of
positions where it was made for fewer. It does so as it is, and trained on half of the texts, drawn
anew for each seed; the other half is to be found. A model that reads by clusters is
trained so, too. The model of the shortest length reads pieces of longer texts, for comparison.

What the file has is not run again. At its end a run prints tables of all that the file has.
"""

from __future__ import annotations

import json
import random
import time
from bisect import bisect, bisect_left
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from pandas import DataFrame, Series, json_normalize
from torch import Tensor

from examples.benchmarks.measure import Settings, in_turns, peak
from examples.long_inputs import MINILM, build_forward, load
from examples.options import example, option
from examples.tasks import get_task
from examples.tasks.base import read_lines, reading
from examples.tasks.documents import read_meetings
from jat_graph.files import check_target
from jat_graph.hf import register_clustered
from jat_graph.viz import save_figure

SCALE, QUERY = 20.0, 64  # of cosines; tokens of a query
WAYS, CLUSTERED = ("dense", "clusters"), 2048  # tokens of the shortest texts read by clusters
PIECES, COSTS = "pieces", "costs"  # of texts read so, and of no texts
BORDERS = (512, 2048)  # tokens: questions are told apart by where their answers begin
KINDS = ("titles", "questions", "answer near", "answer far", "answer farther")
MEASURES = ["hit@1", "MRR"]
LOOKS = {"dense": "C0o", "clusters": "C1s", "pieces": "C2^"}
Row: TypeAlias = dict[str, Any]
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

    output: Path = option("file for the runs, a line each; what it has is kept")
    task: str = option("covidqa or qmsum", "covidqa")
    data_dir: Path | None = option("folder with both", None)
    plot: Path | None = option("picture of all that the file has", None)
    model: str = option(f"folder or Hub name; {MINILM} is that of its package", MINILM)
    lengths: list[int] = option("tokens of a text; first those of a piece", [512, 1024, 2048, 4096])
    seeds: int = option("draws of the texts to train on", 3)
    longest_training: int = option("tokens of texts to train on; longer ones are only read", 4096)
    costs: bool = option("measure seconds and memory, too", False)
    epochs: int = 2
    batch_size: int = option("texts of a step", 8)
    queries: int = option("of a text in a step, drawn from all", 4)
    learning_rate: float = 1e-4
    limit: int | None = option("texts in all", None)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Measure what the file lacks; yield a line for each run, and then tables."""
    if args.task not in READERS:
        raise ValueError(f"task must be {' or '.join(READERS)}, got {args.task!r}")
    first = args.lengths[0]
    if first < 1 or args.lengths != sorted({n - n % first for n in args.lengths}):
        raise ValueError(f"lengths must be rising multiples of the first, got {args.lengths}")
    for path in (args.output, args.plot):
        check_target(path)
    others = ("output", "data_dir", "plot", "lengths", "seeds", "longest_training", "costs")
    settings = {name: value for name, value in vars(args).items() if name not in others}
    known = [row for row in read_runs(args.output, settings) if row["task"] in (args.task, None)]
    done = {(row["tokens"], row["read"], row["seed"]) for row in known}
    for rows in measure(read_documents(args), done, args):
        with args.output.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(settings | row) + "\n" for row in rows)
        for row in rows:
            yield json.dumps({name: value for name, value in row.items() if name != "ranks"})
    yield from tables(read_runs(args.output, settings))
    if args.plot is not None:
        save_figure(draw(read_runs(args.output, settings)), args.plot)


def read_runs(path: Path, settings: Row) -> list[Row]:
    """Return what a file has, if it is there; all of a task must be of the same settings."""
    rows = [row for _, row in read_lines(path)] if path.exists() else []
    with reading(path, "retrieval with the same settings"):
        for row in (row for row in rows if row["task"] == settings["task"]):
            if (other := {name: row[name] for name in settings}) != settings:
                raise ValueError(other)
    return rows


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
        yield "\n".join(turns), [(query, starts[min(spans)[0]]) for query, spans in asked]


READERS = {"covidqa": read_articles, "qmsum": read_transcripts}


def read_documents(args: Options) -> list[Document]:
    """Read the texts of a task, and the kinds of their queries."""
    _, tokenizer = load(args.model, 1)
    documents = []
    for text, asked in islice(READERS[args.task](args.data_dir), args.limit):
        told = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
        begins = [begin for begin, _ in told["offset_mapping"]]
        kinds = [
            KINDS[0] if start is None else KINDS[2 + bisect(BORDERS, bisect_left(begins, start))]
            for _, start in asked
        ]
        documents.append(Document(text, [query for query, _ in asked], kinds))
    if len(documents) < 4:
        raise ValueError(f"limit must leave 2 texts for either half, got {args.limit}")
    return documents


def measure(documents: list[Document], done: Container[Any], args: Options) -> Iterator[list[Row]]:
    """Yield the rows that are not done: the runs of each seed and length, and what lengths cost."""
    known: dict[tuple[int, str], Encoded] = {}  # by the model as it is, which all seeds share
    for seed, length, way in product(range(args.seeds), args.lengths, WAYS):
        if (length, way, seed) not in done and (way == WAYS[0] or length >= CLUSTERED):
            lengths = args.lengths if (length, way) == (args.lengths[0], WAYS[0]) else [length]
            if (length, way) not in known:
                loaded = prepare(args.model, length, way)
                known[length, way] = encode_all(loaded, documents, lengths)
            yield run(documents, known[length, way], lengths, way, seed, args)
    for length, learns in product(args.lengths if args.costs else (), (False, True)):
        if (length, COSTS, int(learns)) not in done:
            yield [costs(args.model, length, learns)]


def prepare(name: str, length: int, way: str) -> Any:
    """Return a model that takes so many tokens, dense or by clusters, and its tokenizer."""
    model, tokenizer = load(name, length)
    if way != WAYS[0]:
        model.set_attn_implementation(register_clustered(dense_below=0))
    return model, tokenizer


def costs(name: str, length: int, learns: bool) -> Row:
    """Measure seconds and memory of a forward, or of one with its backward, both ways in turns."""
    names, threads = ("sdpa", '{"dense_below": 0}'), torch.get_num_threads()
    theirs, ours = sides = [(name, own, length, threads, learns) for own in names]
    steps = build_forward(*ours), build_forward(*theirs)
    found = in_turns(*steps, Settings("cpu", 5, torch.float32), heavy=True)
    seconds = {
        way: found[side]["median"] for way, side in zip(WAYS, ("theirs", "ours"), strict=True)
    }
    sizes = {
        way: peak(build_forward, *side, device="cpu") for way, side in zip(WAYS, sides, strict=True)
    }
    row: Row = {"task": None, "read": COSTS, "tokens": length, "seed": int(learns)}
    row |= {"trained": learns, "ratio": found["ratio"]}
    return row | {"seconds": seconds, "bytes": sizes}


def run(
    documents: list[Document],
    known: Encoded,
    lengths: list[int],
    way: str,
    seed: int,
    args: Options,
) -> list[Row]:
    """Look for half of the texts by the model as it is, and by one trained on the other half."""
    order = random.Random(seed).sample(range(len(documents)), len(documents))
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    tested, seconds = [documents[i] for i in test], 0.0
    found = [(known[0][:, test], [known[1][i] for i in test])]
    if lengths[0] <= args.longest_training:
        loaded, start = prepare(args.model, lengths[0], way), time.perf_counter()
        fit(loaded, [documents[i] for i in train], lengths[0], seed, args)
        seconds = round(time.perf_counter() - start)
        found.append(encode_all(loaded, tested, lengths))
    rows: list[Row] = []
    for trained, (texts, queries) in enumerate(found):
        for tokens, vectors in zip(lengths, texts, strict=True):
            own = {"tokens": tokens, "read": way if tokens == lengths[0] else PIECES, "seed": seed}
            own |= {"trained": bool(trained), "seconds": seconds * trained}
            rows.append(own | {"ranks": rank(vectors, queries, tested)})
    return rows


def encode(loaded: Any, texts: Sequence[str], length: int, pieces: int = 1) -> Tensor:
    """Return vectors as sentence-transformers has them, means of states, of pieces of a text."""
    model, tokenizer = loaded
    cut = {"truncation": True, "max_length": length, "return_overflowing_tokens": pieces > 1}
    batch = tokenizer([*texts], padding=True, return_tensors="pt", **cut)
    batch.pop("overflow_to_sample_mapping", None)
    batch = {name: x[: max(pieces, len(texts))] for name, x in batch.items()}
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
            queries, right = zip(
                *(
                    (query, number)
                    for number, document in enumerate(batch)
                    for query in draw.sample(
                        document.queries, min(args.queries, len(document.queries))
                    )
                ),
                strict=True,
            )
            texts = torch.cat([encode(loaded, [document.text], length) for document in batch])
            cosines = encode(loaded, queries, QUERY) @ texts.T
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
    keys.append("kind")
    means = DataFrame(found, columns=[*keys, *MEASURES]).groupby(keys)[MEASURES].mean()
    return means.rename_axis(columns="measure").stack()


def costs_of(rows: list[Row]) -> DataFrame:
    """Return seconds, MB and their ratios by length, of reading a text and of learning from it."""
    found = json_normalize([row for row in rows if row["read"] == COSTS])
    if found.empty:
        return found
    wanted = [name for name in found if name.partition(".")[0] in ("seconds", "ratio", "bytes")]
    return found.set_index(["trained", "tokens"])[wanted].sort_index()


def tables(rows: list[Row]) -> Iterator[str]:
    """Yield means over seeds, differences within seeds (lowest to highest), and what texts cost."""
    found = scores(rows)
    means = found.groupby([name for name in found.index.names if name != "seed"]).mean()
    yield f"\n{means.unstack(['measure', 'kind']).to_string(float_format='%.3f', na_rep='')}"
    found = found[found.index.isin(KINDS[:2], level="kind")]
    first = found.index.unique("tokens").min()
    for level, base in (("trained", False), ("read", WAYS[0]), ("tokens", first)):
        wide = found.unstack(level)
        gains = wide.drop(columns=base).sub(wide[base], axis=0).stack().dropna()
        cells = gains.groupby([name for name in gains.index.names if name != "seed"]).agg(
            lambda x: f"{x.mean():+.3f} ({x.min():+.3f} to {x.max():+.3f})"
        )
        yield f"\nless {level} {base}\n{cells.unstack(['measure', 'kind']).to_string(na_rep='')}"
    yield f"\n{costs_of(rows).to_string(float_format='%.2f')}"


def draw(rows: list[Row]) -> Figure:
    """Draw how questions are found over the length, a column a task, and what a text costs."""
    found, spent = scores(rows).xs(KINDS[1], level="kind"), costs_of(rows)
    tasks = found.index.unique("task")
    figure = Figure(figsize=(4 * len(tasks) + 4, 7), layout="constrained")
    axes = figure.subplots(2, len(tasks) + 1)
    for (column, task), (row, name) in product(enumerate(tasks), enumerate(MEASURES)):
        runs = found.xs((task, name), level=("task", "measure"))
        means = runs.groupby(["tokens", "read", "trained"]).mean().unstack(["read", "trained"])
        looks = [LOOKS[read] + ("--", "-")[trained] for read, trained in means]
        means.columns = [read + ", trained" * trained for read, trained in means]
        means.plot(ax=axes[row, column], style=looks, legend=False, title=f"{task}, {name}")
        axes[row, column].set_ylim(bottom=0)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    for axis, name in zip(axes[:, -1], ("seconds", "bytes"), strict=True):
        for way in (
            WAYS if len(spent) else ()
        ):  # dashed, to read a text; drawn through, to train on it
            looks, own = [LOOKS[way] + line for line in ("--", "-")], spent[f"{name}.{way}"]
            own.unstack("trained").plot(ax=axis, style=looks, legend=False, title=f"{name} a text")
    return figure


if __name__ == "__main__":
    main()
