"""Measure what real pretrained decoders lose where they read fewer keys (question 15).

``python -m examples.real_decoders --data-dir DIR --output FILE.jsonl`` lets SmolLM2 read texts
densely and by each name of ``--attention``: the loss of each stretch of 512 tokens, how many next
tokens are others, and how many of 64 greedy ones after each length are the same till the first that
is not. Those of ``examples.methods`` are emulations. What the file has is not measured again, and
several processes may write into one, each with kinds of its own.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from pandas import DataFrame, concat
from scipy.stats import t as student
from torch import Tensor
from transformers import DynamicCache

from examples import methods, questions
from examples.long_inputs import read_settings
from examples.options import example, option
from examples.pretrained_decoders import PACKAGES, load
from examples.questions import Row
from examples.tasks import get_task
from examples.tasks.documents import read_meetings
from jat_graph.core.files import read_text
from jat_graph.hf import register_clustered

BIN, AT_ONCE, CONTINUED = 512, 256, 64  # tokens: of a mean; with logits at once; greedy ones
CHARACTERS = 16  # of a token at most, on average
# Texts that settings were chosen on are left out: meetings and modules, and the test articles.
LEFT_OUT = {"qmsum": 4}
MODULES = (  # of Python's standard library, long ones
    "ast configparser datetime doctest inspect mailbox optparse pickle shutil subprocess tarfile "
    "typing".split()
)
KINDS = ("wikitext2", "qmsum", "covidqa", "python")
DENSE = "dense"
TREE = "clustered:dense_below=0"
KEYS = 832  # a tree by its defaults reads as many at most, on average: 4 + 64 to 575 + 512
OTHERS = [f"{methods.PREFIX}{name}:{KEYS}" for name in methods.METHODS]
FIELDS = ["kind", "length", "attention", "text"]


@dataclass
class Options:
    """What is asked for."""

    output: Path = option("file for the numbers, one line each; finished ones are kept")
    model: str = option(f"{', '.join(PACKAGES)}, or a folder", "smollm2")
    attention: list[str] = option(
        f"names such as {TREE}, or less:METHOD:KEYS with a method of {', '.join(methods.METHODS)}",
        [TREE, *OTHERS],
    )
    data_dir: Path | None = option("folder with WikiText-2, QMSum and COVID-QA", None)
    kinds: list[str] = option(f"kinds of texts: {', '.join(KINDS)}", [*KINDS])
    lengths: list[int] = option(
        "tokens, rising; each is read as the beginning of the longest", [2048, 4096, 8128]
    )
    texts: int = option("texts of each kind, if there are so many", 12)
    device: str = "cpu"


class Reading(NamedTuple):
    """What a model says of a text: losses, the likeliest next tokens, and greedy ones."""

    losses: Tensor
    said: Tensor
    after: Tensor


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Measure what the file lacks; yield a line for each number, and then tables."""
    check(args)
    model, tokenizer, names = prepare(args, CONTINUED)
    own, rows = read_rows(args, "numbers of real_decoders", "same")
    for about, tokens in draw_texts(tokenizer, args):
        done = [row for row in rows if about.items() <= row.items()]
        for row in measure(model, tokens, names, args.lengths, done):
            rows.append(own | about | row)
            questions.add_runs(args.output, rows[-1:])
            yield " ".join(str(rows[-1][name]) for name in [*FIELDS, "same"])
    yield from table(rows)


def prepare(args: Any, room: int = 0) -> tuple[Any, Any, dict[str, str]]:
    """Return a model that has room after each length, its tokenizer, and names that it takes."""
    model, tokenizer = load(args.model)
    names = {name: find_attention(model, name) for name in (DENSE, *args.attention)}
    most, longest = model.config.max_position_embeddings - room, max(args.lengths)
    if longest > most:
        raise ValueError(f"lengths must be at most {most} for this model, got {longest}")
    return model.to(args.device), tokenizer, names


def read_rows(args: Any, layout: str, number: str) -> tuple[Row, list[Row]]:
    """Return how rows name the model, and those of it that the file has, each with a number."""
    own = {"model": args.model if args.model in PACKAGES else Path(args.model).resolve().name}

    def wanted(row: Row) -> bool:
        return bool(row["model"] == own["model"] and row[number] >= 0)

    return own, questions.read_runs(args.output, layout, wanted)


def check(args: Options) -> None:
    """Refuse what no text can be."""
    if unknown := [kind for kind in args.kinds if kind not in KINDS]:
        raise ValueError(f"kinds must be among {', '.join(KINDS)}, got {unknown[0]!r}")
    if args.lengths != sorted(set(args.lengths)) or args.lengths[0] < 1:
        raise ValueError(f"lengths must be rising, got {args.lengths}")


def find_attention(model: Any, given: str) -> str:
    """Return a name that the model takes."""
    kind, _, settings = given.partition(":")
    name = "sdpa" if given == DENSE else given
    if given.startswith(methods.PREFIX):
        methods.register(given)
    elif kind == "clustered" and settings:
        name = register_clustered(**read_settings(settings))
    try:
        model.set_attn_implementation(name)
    except (ImportError, ValueError):
        wanted = f"names that transformers has, {TREE} or {OTHERS[0]}"
        raise ValueError(f"attention must be {wanted}, got {given!r}") from None
    return name


def read_texts(kind: str, data_dir: Path | None) -> Iterator[str]:
    """Yield long texts of a kind, always the same."""
    if kind == "python":
        folder = Path(sysconfig.get_paths()["stdlib"])
        yield from (read_text(folder / f"{name}.py") for name in MODULES)
    elif kind == "qmsum":
        meetings = islice(read_meetings(data_dir), LEFT_OUT[kind], None)
        yield from ("\n".join(turns) for _, turns, _ in meetings)
    elif kind == "covidqa":
        splits = get_task("covidqa").load(data_dir).values()
        articles = dict.fromkeys(row["context"] for split in splits for row in split)
        yield from (article.partition("\n")[2] for article in articles)  # without their titles
    else:
        articles = get_task("wikitext2").load(data_dir, ["validation"])["validation"]["text"]
        yield from ("\n".join(articles[start : start + 4]) for start in range(0, len(articles), 4))


def encode(tokenizer: Any, text: str, length: int) -> list[int]:
    """Return the first tokens of a text."""
    found = tokenizer(text[: CHARACTERS * length], verbose=False)["input_ids"]
    return list(found[:length])


def draw_texts(tokenizer: Any, args: Options) -> Iterator[tuple[Row, list[int]]]:
    """Yield the beginnings of texts that are long enough, of all kinds in turns."""
    wanted = args.lengths[-1] + 1
    found = {}
    for kind in args.kinds:
        every = (encode(tokenizer, text, wanted) for text in read_texts(kind, args.data_dir))
        found[kind] = [*islice((x for x in every if len(x) == wanted), args.texts)]
        if not found[kind]:
            raise ValueError(f"{kind} must have a text of {wanted} tokens, got none")
    for number in range(args.texts):
        for kind, texts in found.items():
            if number < len(texts):
                yield {"kind": kind, "text": number}, texts[number]


def measure(
    model: Any, tokens: list[int], names: dict[str, str], lengths: list[int], done: list[Row]
) -> Iterator[Row]:
    """Yield what each attention says that has not said it, beside dense attention."""
    finished = {(row["attention"], row["length"]) for row in done}
    left = [x for x in names if any((x, length) not in finished for length in lengths)]
    dense: dict[int, Reading] = {}
    for name in [DENSE, *(x for x in left if x != DENSE)] if left else ():
        model.set_attn_implementation(names[name])
        # What chooses once for a whole prompt reads a shorter one in another way.
        steps = [[x] for x in lengths] if "lines" in name else [lengths]
        drafts = {length: x.after for length, x in dense.items()} if drafted(name) else {}
        readings = {k: x for step in steps for k, x in read(model, tokens, step, drafts).items()}
        dense = dense or readings
        for length, found in readings.items():
            if (name, length) not in finished:
                yield {"length": length, "attention": name} | compare(found, dense[length])


def drafted(name: str) -> bool:
    """Return whether new tokens, read at once, choose as one by one, and it saves time."""
    return name.startswith(methods.PREFIX) and not any(x in name for x in ("lines", "queries"))


def compare(found: Reading, dense: Reading) -> Row:
    """Return losses and other next tokens by stretches, and how many greedy ones are the same."""
    changed = (found.said != dense.said).double()
    same = (found.after == dense.after).long().cumprod(0).sum()
    losses, changes = (
        [round(x.mean().item(), 5) for x in each.split(BIN)] for each in (found.losses, changed)
    )
    return {"loss": losses, "changed": changes, "same": int(same)}


@torch.no_grad()
def read(
    model: Any, tokens: list[int], lengths: Sequence[int], drafts: dict[int, Tensor]
) -> dict[int, Reading]:
    """Let a model read a text once, and go on after each length of it, or check a draft of that."""
    ids = torch.tensor([tokens], device=model.device)
    head, cache = model.get_output_embeddings(), DynamicCache()
    states = model.base_model(ids[:, : lengths[-1]], past_key_values=cache).last_hidden_state[0]
    losses, said = [], []
    for own, right in zip(states.split(AT_ONCE), ids[0, 1:].split(AT_ONCE), strict=False):
        logits = head(own).float()  # of a whole text they would be gigabytes
        losses.append(F.cross_entropy(logits, right[: len(own)], reduction="none"))
        said.append(logits.argmax(-1))
    found = torch.cat(losses).cpu(), torch.cat(said).cpu()
    after = {x: proceed(model, ids[:, :x], cache, drafts.get(x)) for x in reversed(lengths)}
    return {length: Reading(*(x[:length] for x in found), after[length]) for length in lengths}


def proceed(model: Any, ids: Tensor, cache: Any, draft: Tensor | None = None) -> Tensor:
    """Return the tokens that are likeliest, one by one, after some that a cache has.

    Along a draft they come at once, and are right up to the first that is another.
    """
    cache.crop(ids.size(1) - 1 - cache.get_seq_length())  # below 0: how many go
    token, found = ids[:, -1:], []
    if draft is not None:
        token = torch.cat([token, draft[None, :-1].to(token)], -1)
    while sum(map(len, found)) < CONTINUED:
        states = model.base_model(token, past_key_values=cache).last_hidden_state
        token = model.get_output_embeddings()(states).argmax(-1)
        found.append(token[0])
    return torch.cat(found).cpu()


def table(rows: list[Row]) -> Iterator[str]:
    """Yield a line for each kind, length and attention, and for all kinds: second halves."""
    frame = DataFrame(rows, columns=[*FIELDS, "loss", "changed", "same"])
    frame = frame.sort_values(["kind", "length"], kind="stable")
    frame["text"] = frame["kind"] + frame["text"].astype(str)
    frame = concat([frame, frame.assign(kind="all").sort_values("length", kind="stable")])
    for name in ("loss", "changed"):
        frame[name] = [sum(x[len(x) // 2 :]) / len(x[len(x) // 2 :]) for x in frame[name]]
    dense = frame[frame["attention"] == DENSE].set_index(["kind", "length", "text"])["loss"]
    yield "| text | tokens | attention | texts | loss | more than dense | changed | same of 64 |"
    yield f"|{'---|' * 8}"
    for place, own in frame.groupby(FIELDS[:3], sort=False):
        own = own.set_index(["kind", "length", "text"])
        more = own["loss"] - dense.reindex(own.index)
        cells = [*map(str, place), f"{len(own)}", f"{own['loss'].mean():.3f}", interval(more, 4)]
        yield f"| {' | '.join(cells)} | {own['changed'].mean():.1%} | {own['same'].mean():.0f} |"


def interval(differences: Any, places: int = 3) -> str:
    """Return a mean with Student's interval of 95 %."""
    number = len(differences)
    if number < 2:
        return f"{differences.mean():+.{places}f}"
    half = student.ppf(0.975, number - 1) * differences.sem()
    return f"{differences.mean():+.{places}f} ± {half:.{places}f}"


if __name__ == "__main__":
    main()
