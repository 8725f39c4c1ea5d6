"""Find passages of long texts, which an encoder reads alone or within the whole text (question 19).

``python -m examples.late_chunking --data-dir DIR --output FILE.jsonl`` cuts articles of COVID-QA
and meetings of QMSum into passages, and ranks those of all texts of a kind by their likeness to
each question: nDCG@10. A passage's vector is the mean of its tokens' states, of itself alone or of
one pass over the whole text, by each name of ``--attention``. What the file has is not run again.

Reference:
    Günther et al., *Late Chunking: Contextual Chunk Embeddings Using Long-Context Embedding
    Models*, 2024.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from pandas import Series
from sklearn.metrics import ndcg_score
from torch import Tensor

from examples import questions
from examples.long_inputs import MINILM, load
from examples.options import example, option
from examples.real_decoders import DENSE, TREE, find_attention, interval
from examples.real_questions import READERS

ALONE, SHORT, BATCH = "alone", 512, 16  # how passages are read; tokens that MiniLM has places for
FIELDS = ["kind", "model", "attention"]


@dataclass
class Options:
    """What is asked for."""

    output: Path = option("file for the runs, one line each; finished runs are kept")
    model: str = option(f"folder or Hub name of an encoder; {MINILM} is in its package", MINILM)
    attention: list[str] = option("names, as for real_decoders", [TREE])
    data_dir: Path | None = option("folder with COVID-QA and QMSum", None)
    kinds: list[str] = option("covidqa, qmsum", ["covidqa", "qmsum"])
    length: int = option("tokens of a text at most", 8192)
    passage: int = option("tokens of a passage", 128)
    texts: int = option("texts of each kind, if there are so many", 40)


class Text(NamedTuple):
    """A text as an encoder reads it, its passages, and questions with theirs."""

    tokens: list[int]  # with one that the model adds at either end
    passages: list[str]
    questions: list[tuple[str, set[int]]]


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Run what the file lacks; yield a line for each run, and then a table."""
    if unknown := [kind for kind in args.kinds if kind not in READERS]:
        raise ValueError(f"kinds must be among {', '.join(READERS)}, got {unknown[0]!r}")
    if not 1 <= args.passage <= min(SHORT, args.length) - 2:
        most = min(SHORT, args.length) - 2
        raise ValueError(f"passage must be from 1 to {most}, got {args.passage}")
    about = {"model": Path(args.model).name, "length": args.length, "passage": args.passage}
    about["texts"] = args.texts

    def fits(row: dict[str, Any]) -> bool:
        return about.items() <= row.items() and len(row["scores"]) > 0

    rows = questions.read_runs(args.output, "runs of late_chunking", fits)
    done = {(row["kind"], row["attention"]) for row in rows}
    for kind in args.kinds:
        for name in (ALONE, DENSE, *args.attention):
            if (kind, name) not in done:
                model, tokenizer = load(args.model, SHORT if name == ALONE else args.length)
                if name != ALONE:
                    model.set_attn_implementation(find_attention(model, name))
                texts = [*islice(draw_texts(tokenizer, kind, args), args.texts)]
                start = time.process_time()
                vectors = [encode(model, tokenizer, x, args.passage, name) for x in texts]
                spent = round(time.process_time() - start, 1)
                own = {"kind": kind, "attention": name, "seconds": spent}
                row = about | own | {"scores": score(model, tokenizer, texts, vectors)}
                rows.append(row)
                questions.add_runs(args.output, [row])
                yield f"{kind} {name} {spent}"
    yield from table(rows)


def draw_texts(tokenizer: Any, kind: str, args: Options) -> Iterator[Text]:
    """Yield the beginnings of texts, with the questions that are answered there."""
    cut = {"truncation": True, "max_length": args.length, "return_offsets_mapping": True}
    for text, asked in READERS[kind](args.data_dir):
        found = tokenizer(text, **cut)
        places = found["offset_mapping"][1:-1]
        parts = [places[x : x + args.passage] for x in range(0, len(places), args.passage)]
        ends = [(part[0][0], part[-1][1]) for part in parts]
        own = []
        for question, _, spans in asked:
            right = {
                number
                for number, (start, end) in enumerate(ends)
                if any(start < last and first < end for first, last in spans)
            }
            if right:
                own.append((question, right))
        if own:
            yield Text(found["input_ids"], [text[start:end] for start, end in ends], own)


@torch.inference_mode()
def encode(model: Any, tokenizer: Any, text: Text, size: int, name: str) -> Tensor:
    """Return the vectors of a text's passages, [passages, D]."""
    if name == ALONE:
        return pool(model, tokenizer, text.passages)
    states = model(torch.tensor([text.tokens])).last_hidden_state[0, 1:-1]
    return F.normalize(torch.stack([x.mean(0) for x in states.split(size)]), dim=-1)


def pool(model: Any, tokenizer: Any, texts: list[str]) -> Tensor:
    """Return vectors as sentence-transformers has them, means of the states of all tokens."""
    cut = {"padding": True, "truncation": True, "max_length": SHORT, "return_tensors": "pt"}
    vectors = []
    for start in range(0, len(texts), BATCH):
        batch = tokenizer(texts[start : start + BATCH], return_token_type_ids=False, **cut)
        valid = batch["attention_mask"].unsqueeze(-1)
        vectors.append((model(**batch).last_hidden_state * valid).sum(1) / valid.sum(1))
    return F.normalize(torch.cat(vectors), dim=-1)


@torch.inference_mode()
def score(
    model: Any, tokenizer: Any, texts: list[Text], vectors: list[Tensor]
) -> list[list[float]]:
    """Return nDCG@10 of each text's questions, passages of all texts being ranked."""
    model.set_attn_implementation("sdpa")
    every, first, scores = torch.cat(vectors), 0, []
    for text, own in zip(texts, vectors, strict=True):
        likeness = pool(model, tokenizer, [x for x, _ in text.questions]) @ every.T
        right = torch.zeros_like(likeness)
        for row, (_, places) in zip(right, text.questions, strict=True):
            row[[first + place for place in places]] = 1
        pairs = zip(right.numpy(), likeness.numpy(), strict=True)
        scores.append([round(float(ndcg_score([x], [y], k=10)), 4) for x, y in pairs])
        first += len(own)
    return scores


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each run; intervals are over texts."""
    yield "| texts | model | attention | questions | nDCG@10 | more than alone | CPU s |"
    yield f"|{'---|' * 7}"
    means = {
        tuple(row[name] for name in FIELDS): Series([*map(fmean, row["scores"])]) for row in rows
    }
    for row in rows:
        own = means[tuple(row[name] for name in FIELDS)]
        alone = means[row["kind"], row["model"], ALONE]
        every = [x for text in row["scores"] for x in text]
        cells = [row["kind"], row["model"], row["attention"], len(every)]
        cells += [f"{sum(every) / len(every):.3f}", interval(own - alone), row["seconds"]]
        yield f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
