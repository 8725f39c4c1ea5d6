"""Find long texts by what is asked of them: at positions as they are, stretched, and trained.

``python -m examples.retrieval --data-dir DIR`` looks for articles of COVID-QA, their titles taken
off, by these titles and by their questions: all-MiniLM-L6-v2 makes a vector of the first tokens of
each, and hit@1 is the share of queries whose own article is the nearest. Half of the articles,
drawn anew for each seed, are trained on with the loss of sentence-transformers'
``MultipleNegativesRankingLoss``; the others are to be found. More tokens than the model was made
for stand at a stretched table of positions, and are read by SDPA and by clusters.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from examples.long_inputs import MINILM, load
from examples.options import example, option
from examples.tasks import get_task
from jat_graph.files import check_target, read_object, write_text
from jat_graph.hf import register_clustered

SCALE, QUERY = 20.0, 64  # of cosines; tokens of a query
# Questions by where their answers begin: in the tokens that both lengths show, or one, or none.
KINDS = ("titles", "questions", "answer near", "answer far", "answer farther")
Hits = dict[str, list[int]]  # of each kind, queries that find their article, and all
Article = tuple[str, list[tuple[str, str]]]  # a text; queries and their kinds, the title first


@dataclass
class Options:
    """What is asked for."""

    data_dir: Path | None = option("folder with covidqa", None)
    model: str = option(f"folder or Hub name; {MINILM} is that of its package", MINILM)
    short: int = option("tokens of a text that the model was made for", 512)
    long: int = option("tokens of a text that it was not made for", 2048)
    seeds: int = option("draws of the articles to train on", 3)
    epochs: int = 2
    batch_size: int = option("articles of a step", 8)
    queries: int = option("of an article in a step: its title, and questions that are drawn", 4)
    learning_rate: float = 1e-4
    limit: int | None = option("articles in all", None)
    json: Path | None = option("file for all numbers; what it has is not run again", None)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Measure each model as it is and trained; yield a line for each, and then a table."""
    check_target(args.json)
    if not 0 < args.short < args.long:
        raise ValueError(f"short must be above 0 and below long, got {args.short}, {args.long}")
    others = ("data_dir", "seeds", "json")
    settings = {name: value for name, value in vars(args).items() if name not in others}
    found: dict[str, list[Hits]] = {}  # of each way to read, by seed
    if args.json is not None and args.json.exists():
        known = read_object(args.json, "json")
        if known.get("settings") != settings:
            raise ValueError(f"json must be of the same settings, got {known.get('settings')}")
        found = known["hits"]
    articles = read_articles(args)
    for seed in range(args.seeds):
        drawn = random.Random(seed).sample(articles, len(articles))
        train, test = drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]
        for length in (args.short, args.long):
            for name in (f"{length}", f"{length}, trained"):
                if len(found.get(name, [])) <= seed:
                    learnt = train if name.endswith("trained") else []
                    for how, hits in measure(learnt, test, length, seed, args).items():
                        found.setdefault(f"{name}{how}", []).append(hits)
                    if args.json is not None:
                        write_text(args.json, json.dumps({"settings": settings, "hits": found}))
                counts = (f"{right} of {n}" for right, n in found[name][seed].values())
                yield f"seed {seed}, {name}: {', '.join(counts)}"
    yield from table({name: own[: args.seeds] for name, own in found.items()}, args)


def read_articles(args: Options) -> list[Article]:
    """Read the articles, their titles taken off."""
    _, tokenizer = load(args.model, args.long)
    asked: dict[str, list[Any]] = {}
    for split in get_task("covidqa").load(args.data_dir).values():
        for row in split:
            asked.setdefault(row["context"], []).append(row)
    articles = []
    for context, rows in [*asked.items()][: args.limit]:
        title, _, text = context.partition("\n")
        queries = [(title, "titles")]
        for row in rows:
            before = context[len(title) : max(len(title), row["answers"]["answer_start"][0])]
            tokens = len(tokenizer(before)["input_ids"])
            kind = KINDS[2 + (tokens > args.short) + (tokens > args.long)]
            queries.append((row["question"], kind))
        articles.append((text, queries))
    if len(articles) < 4:
        raise ValueError(f"limit must leave 2 articles for either half, got {args.limit}")
    return articles


def measure(
    train: list[Article], test: list[Article], length: int, seed: int, args: Options
) -> dict[str, Hits]:
    """Train on articles, if there are any, and look for others in each way to read them."""
    loaded = load(args.model, length)
    if train:
        fit(loaded, train, length, seed, args)
    hits = {"": search(loaded, test, length)}
    if length == args.short:
        hits[", pieces"] = search(loaded, test, length, args.long // length)
    else:
        loaded[0].set_attn_implementation(register_clustered(dense_below=0))
        hits[", clusters"] = search(loaded, test, length)
    return hits


def encode(loaded: Any, texts: Sequence[str], length: int, pieces: int = 1) -> Any:
    """Return vectors as sentence-transformers has them, means of states, of pieces of a text."""
    model, tokenizer = loaded
    cut = {"truncation": True, "max_length": length, "return_overflowing_tokens": pieces > 1}
    batch = tokenizer([*texts], padding=True, return_tensors="pt", **cut)
    batch.pop("overflow_to_sample_mapping", None)
    batch = {name: x[: max(pieces, len(texts))] for name, x in batch.items()}
    shown = batch["attention_mask"].unsqueeze(-1)
    return F.normalize((model(**batch).last_hidden_state * shown).sum(1) / shown.sum(1), dim=-1)


def fit(loaded: Any, articles: list[Article], length: int, seed: int, args: Options) -> None:
    """Train all weights, without dropout; other articles of a step are the wrong ones."""
    optimizer = torch.optim.AdamW(loaded[0].parameters(), args.learning_rate)
    draw, size = random.Random(seed), min(args.batch_size, len(articles))
    for _ in range(args.epochs):
        order = draw.sample(articles, len(articles))
        for start in range(0, len(order) - size + 1, size):
            batch = order[start : start + size]
            asked = [
                (query, own)
                for own, (_, (title, *others)) in enumerate(batch)
                for query, _ in [title, *draw.sample(others, min(args.queries - 1, len(others)))]
            ]
            queries, right = zip(*asked, strict=True)
            texts = encode(loaded, [text for text, _ in batch], length)
            cosines = encode(loaded, queries, QUERY) @ texts.T
            F.cross_entropy(SCALE * cosines, torch.tensor(right)).backward()
            optimizer.step()
            optimizer.zero_grad()


@torch.inference_mode()
def search(loaded: Any, articles: list[Article], length: int, pieces: int = 1) -> Hits:
    """Count the queries of each kind whose own article is the nearest."""
    read = [encode(loaded, [text], length, pieces).mean(0) for text, _ in articles]
    vectors = F.normalize(torch.stack(read), dim=-1)
    hits = {kind: [0, 0] for kind in KINDS}
    for number, (_, asked) in enumerate(articles):
        queries, kinds = zip(*asked, strict=True)
        nearest = (encode(loaded, queries, QUERY) @ vectors.T).argmax(1).tolist()
        for kind, first in zip(kinds, nearest, strict=True):
            for counted in {kind, "titles" if kind == "titles" else "questions"}:
                hits[counted][0] += first == number
                hits[counted][1] += 1
    return hits


def table(found: dict[str, list[Hits]], args: Options) -> Iterator[str]:
    """Yield lines of means over seeds, and of differences within seeds and their range."""
    yield f"| tokens | {' | '.join(KINDS)} |"
    yield f"|{'---|' * (1 + len(KINDS))}"
    shares = {}
    for name, seeds in found.items():
        counts = torch.tensor([[hits[kind] for kind in KINDS] for hits in seeds])
        shares[name] = counts[..., 0] / counts[..., 1].clamp(min=1)
        yield f"| {name} | {' | '.join(f'{x:.3f}' for x in shares[name].mean(0))} |"
    short, long = f"{args.short}", f"{args.long}"
    learnt, mended = f"{short}, trained", f"{long}, trained"
    pairs = [(long, short), (learnt, short), (mended, long), (mended, learnt)]
    pairs += [(f"{name}, pieces", base) for name, base in ((short, long), (learnt, mended))]
    pairs += [(f"{name}, clusters", name) for name in (long, mended)]
    for name, base in pairs:
        gains = shares[name] - shares[base]
        three = zip(gains.mean(0), gains.amin(0), gains.amax(0), strict=True)
        cells = (f"{mean:+.3f} ({low:+.3f} to {high:+.3f})" for mean, low, high in three)
        yield f"| {name} − {base} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
