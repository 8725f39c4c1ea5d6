"""Measure how real pretrained decoders read by another attention: next tokens, and pass keys.

``python -m examples.real_decoders --data-dir DIR --output FILE.jsonl --attention clustered`` lets
SmolLM2 read texts densely and by each name of ``--attention``: what tokens of the second half lose,
and how many next tokens are others; and which pass keys, hidden in WikiText-2, it finds, the answer
token by token with a cache. Errors are standard ones of means of 64 tokens, as neighbours are
alike. What the file has is not measured again.
"""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from pandas import DataFrame
from torch import Tensor
from transformers import DynamicCache

from examples import questions
from examples.long_inputs import read_settings
from examples.options import example, option
from examples.pretrained_decoders import PACKAGES, load
from examples.questions import Row
from examples.retrieval import READERS
from examples.tasks import get_task
from jat_graph.core.files import read_text
from jat_graph.hf import register_clustered

BLOCK, AT_ONCE, AROUND = 64, 256, 100  # tokens: of a mean; with logits at once; beside the filler
CHARACTERS = 16  # of a token at most, on average
KINDS = ("wikitext2", "qmsum", "covidqa", "python")
MODULES = (  # of Python's standard library, long ones
    "argparse difflib doctest inspect locale mailbox optparse pdb pickle statistics subprocess "
    "tarfile threading typing ast".split()
)
DENSE, PASS_KEY = "dense", "pass key"


@dataclass
class Options:
    """What is asked for."""

    output: Path = option("file for the numbers, one line each; finished ones are kept")
    model: str = option(f"{', '.join(PACKAGES)}, or a folder", "smollm2")
    attention: list[str] = option("names such as clustered:keys=128,groups=8", ["clustered"])
    data_dir: Path | None = option("folder with WikiText-2, QMSum and COVID-QA", None)
    kinds: list[str] = option(f"kinds of texts: {', '.join(KINDS)}", [*KINDS])
    lengths: list[int] = option(f"tokens of a text, multiples of {2 * BLOCK}; 0: none", [2048])
    texts: int = option("texts of each kind and length, if there are so many", 4)
    key_lengths: list[int] = option("tokens of a text with a pass key; 0: none", [2048])
    depths: int = option("places of a pass key in the text", 9)
    seeds: int = option("pass keys for each place, each in another text", 3)
    device: str = "cpu"


class Case(NamedTuple):
    """A text, and how many of its last tokens are to be said."""

    about: Row
    tokens: list[int]
    asked: int


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Measure what the file lacks; yield a line for each number, and then tables."""
    check(args)
    model, tokenizer = load(args.model)
    most = model.config.max_position_embeddings
    if (longest := max(*args.lengths, *args.key_lengths)) > most:
        raise ValueError(f"lengths must be at most {most} for this model, got {longest}")
    given = [name for name in args.attention if name != DENSE]  # which is measured in any case
    names = {DENSE: "sdpa"} | {name: find_attention(model, name) for name in given}
    own = {"model": args.model if args.model in PACKAGES else Path(args.model).resolve().name}
    rows = questions.read_runs(
        args.output,
        "numbers of real_decoders",
        lambda row: bool(row["model"] == own["model"] and row["attention"]),
    )
    cases = [*draw_texts(tokenizer, args), *hide_keys(tokenizer, args)]
    for number, case in enumerate(cases, start=1):
        done = {row["attention"] for row in rows if case.about.items() <= row.items()}
        for row in measure(model.to(args.device), case, names, done):
            rows.append(own | row)
            questions.add_runs(args.output, rows[-1:])
            what = " ".join(map(str, [*case.about.values(), row["attention"]]))
            yield f"{number} of {len(cases)}: {what}, loss {row['loss']:.3f}"
    texts, keys = ([x for x in rows if (x["kind"] == PASS_KEY) is own] for own in (False, True))
    yield from (line for table in (loss_table(texts), key_table(keys)) for line in table)


def check(args: Options) -> None:
    """Refuse what no text can be."""
    if unknown := [kind for kind in args.kinds if kind not in KINDS]:
        raise ValueError(f"kinds must be among {', '.join(KINDS)}, got {unknown[0]!r}")
    if wrong := [length for length in args.lengths if length < 0 or length % (2 * BLOCK)]:
        raise ValueError(f"lengths must be multiples of {2 * BLOCK}, got {wrong[0]}")
    if wrong := [length for length in args.key_lengths if length and length < 2 * AROUND]:
        raise ValueError(f"key_lengths must be 0 or at least {2 * AROUND}, got {wrong[0]}")


def find_attention(model: Any, given: str) -> str:
    """Return a name that the model takes."""
    kind, _, settings = given.partition(":")
    known = kind == "clustered" and settings
    name = register_clustered(**read_settings(settings)) if known else given
    try:
        model.set_attn_implementation(name)
    except (ImportError, ValueError):
        wanted = "names that transformers has, such as clustered or clustered:keys=64"
        raise ValueError(f"attention must be {wanted}, got {given!r}") from None
    return name


def read_texts(kind: str, data_dir: Path | None) -> Iterator[str]:
    """Yield long texts of a kind, always the same."""
    if kind == "python":
        folder = Path(sysconfig.get_paths()["stdlib"])
        yield from (read_text(folder / f"{name}.py") for name in MODULES)
    elif kind in READERS:
        yield from (text for text, _ in READERS[kind](data_dir))
    else:
        articles = get_task("wikitext2").load(data_dir, ["test"])["test"]["text"]
        yield from ("\n".join(articles[start : start + 8]) for start in range(0, len(articles), 4))


def encode(tokenizer: Any, text: str, length: int, **options: Any) -> list[int]:
    """Return the first tokens of a text."""
    found = tokenizer(text[: CHARACTERS * length], verbose=False, **options)["input_ids"]
    return list(found[:length])


def draw_texts(tokenizer: Any, args: Options) -> Iterator[Case]:
    """Yield the beginnings of texts that are long enough, whose second halves are to be said."""
    for kind in args.kinds if any(args.lengths) else ():
        texts = [*read_texts(kind, args.data_dir)]
        for length in filter(None, args.lengths):
            every = (encode(tokenizer, text, length + 1) for text in texts)
            long = [*islice((x for x in every if len(x) > length), args.texts)]
            if not long:
                raise ValueError(f"{kind} must have a text of {length} tokens, got none")
            for number, tokens in enumerate(long):
                about = {"kind": kind, "length": length, "text": number}
                yield Case(about, tokens, length // 2)


def hide_keys(tokenizer: Any, args: Options) -> Iterator[Case]:
    """Yield texts with a pass key, and a question for it, whose digits are to be said."""
    lengths = [*filter(None, args.key_lengths)]
    texts = [*islice(read_texts("wikitext2", args.data_dir), args.seeds)] if lengths else []
    for length in lengths:
        for seed, text in enumerate(texts):
            filler = encode(tokenizer, text, length - AROUND, add_special_tokens=False)
            for place in range(1, args.depths + 1):
                depth = round(place / (args.depths + 1), 3)
                about = {"kind": PASS_KEY, "length": length, "text": seed, "depth": depth}
                key = random.Random(f"{seed} {depth}").randrange(10_000, 100_000)
                cut = round(depth * len(filler))
                before, after = (tokenizer.decode(x) for x in (filler[:cut], filler[cut:]))
                said = f"{before}\nThe pass key is {key}. Remember it.\n{after}"
                yield Case(about, *ask(tokenizer, f"{said}\n\nWhat is the pass key?", key))


def ask(tokenizer: Any, text: str, key: int) -> tuple[list[int], int]:
    """Return the tokens of a question with its answer, and how many are of the pass key."""
    if tokenizer.chat_template:
        said = [{"role": "user", "content": text}]
        start = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    else:
        start = f"{tokenizer.bos_token or ''}{text} "
    start += "The pass key is"
    both = (start, f"{start} {key}")
    prompt, whole = (tokenizer(x, add_special_tokens=False)["input_ids"] for x in both)
    digits = [any(map(str.isdigit, tokenizer.decode([x]))) for x in whole[len(prompt) :]]
    return whole, sum(digits)


def measure(model: Any, case: Case, names: dict[str, str], done: set[str]) -> Iterator[Row]:
    """Yield what each attention says that has not said it, against dense attention."""
    by_key = case.about["kind"] == PASS_KEY
    wanted = {name: own for name, own in names.items() if name not in done}
    dense = None
    for name, own in ({DENSE: "sdpa"} | wanted if wanted and not by_key else wanted).items():
        model.set_attn_implementation(own)
        losses, said = say(model, case.tokens, case.asked, cached=by_key)
        row = case.about | {"attention": name, "loss": round(losses.mean().item(), 5)}
        if by_key:
            right = said == torch.tensor(case.tokens[-case.asked :])
            row |= {"right": int(right.sum()), "digits": case.asked}
        elif dense is None:
            dense = losses, said
        else:
            more = (losses - dense[0]).unflatten(0, (-1, BLOCK)).mean(1)
            row |= {"more": [round(x, 5) for x in more.tolist()]}
            row |= {"changed": (said != dense[1]).double().mean().item()}
        if name in wanted:
            yield row


@torch.no_grad()
def say(model: Any, tokens: list[int], asked: int, cached: bool = False) -> tuple[Tensor, Tensor]:
    """Return the losses of the last tokens, and what is likeliest instead of each.

    The text is read at once; with a cache, what comes before them is, and then they one by one.
    """
    ids, head = torch.tensor([tokens[:-1]], device=model.device), model.get_output_embeddings()
    steps, options = (ids,), {"use_cache": cached}
    if cached:
        steps = ids.tensor_split([*range(ids.size(1) - asked + 1, ids.size(1))], 1)
        options["past_key_values"] = DynamicCache(config=model.config)
    found = [model.base_model(step, **options).last_hidden_state[0, -asked:] for step in steps]
    states, losses, said = torch.cat(found)[-asked:], [], []
    targets = torch.tensor(tokens[-asked:], device=model.device)
    for own, right in zip(states.split(AT_ONCE), targets.split(AT_ONCE), strict=True):
        logits = head(own).float()  # of a whole text they would be gigabytes
        losses.append(F.cross_entropy(logits, right, reduction="none"))
        said.append(logits.argmax(-1))
    return torch.cat(losses).cpu(), torch.cat(said).cpu()


def loss_table(rows: list[Row]) -> Iterator[str]:
    """Yield a line for each kind, length and attention."""
    about = ["kind", "length", "attention"]
    frame = DataFrame(rows, columns=[*about, "loss", "more", "changed"])
    yield "| text | tokens | attention | texts | loss | more than dense | next tokens changed |"
    yield f"|{'---|' * 7}"
    for place, own in frame.groupby(about, sort=False):
        more = own["more"].dropna().explode().astype(float)
        change = f"{more.mean():+.3f} ± {more.sem():.3f}" if len(more) else "+0.000 ± 0.000"
        cells = [*map(str, place), f"{len(own)}", f"{own['loss'].mean():.3f}", change]
        yield f"| {' | '.join(cells)} | {own['changed'].fillna(0.0).mean():.1%} |"


def key_table(rows: list[Row]) -> Iterator[str]:
    """Yield a line for each length and attention."""
    about = ["length", "attention", "text", "depth"]
    frame = DataFrame(rows, columns=[*about, "right", "digits"]).drop_duplicates(about, keep="last")
    frame = frame.set_index(["length", "text", "depth"])
    frame["found"] = frame["right"] == frame["digits"]
    frame["easy"] = frame.index.isin(frame.index[frame["found"] & (frame["attention"] == DENSE)])
    yield "| tokens | attention | keys found | of those found densely | digits |"
    yield f"|{'---|' * 5}"
    for (length, attention), own in frame.groupby(["length", "attention"], sort=False):
        both = own["found"] & own["easy"]
        cells = [f"{length}", attention, f"{own['found'].sum()} of {len(own)}"]
        cells += [f"{both.sum()} of {own['easy'].sum()}"]
        cells += [f"{own['right'].sum()} of {own['digits'].sum()}"]
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
