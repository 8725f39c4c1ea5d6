"""Sweeps of the kind ``connections``: which words the heads of a model link (Figures 2 and 7).

A tagger of named entities is trained, or with ``study.model = "pretrained"`` a model is taken as it
comes. A head links word i to word k if the probability with which i attends to k is above mean +
c · std, both over all layers, heads and pairs of words of one text; with ``study.links = "scores"``
the score takes the place of the probability. A word is its first piece; special tokens and other
pieces are left out before the mean is taken. Beside the dev set the paper's example is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import (
    AutoModel,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from examples.data import draw_rows
from examples.sweeps import training
from examples.sweeps.definition import Run
from examples.tasks import get_task
from jat_graph import attach, calibrate, from_pretrained
from jat_graph.hf import attached_config
from jat_graph.jumps.adjacency.scores import attention_scores

# How far above the mean a probability must be to make a link, in standard deviations.
SPREADS: Mapping[str, float] = {"mean + std": 1.0, "mean + ½ std": 0.5, "mean − ½ std": -0.5}
CALIBRATION_TEXTS = 128
ENCODING: Any = {"is_split_into_words": True, "truncation": True, "return_tensors": "pt"}
STONES = "mean + std"  # the links that stepping stones are made of, and p of Definition 3.1
TRIPLES = ("δ", "otherwise", "bridged")
DIFFERENT, MIXED, ALL, SELF = "different types", "entity and other", "all words", "self"

Links = Literal["probabilities", "scores"]  # what a threshold is laid upon
PROBABILITIES: Links = "probabilities"


class TypedText(NamedTuple):
    """A text whose words may have types."""

    words: Sequence[str]
    types: Sequence[str | None]


# The paper's motivating example: the links that matter are those among its three things.
_WORDS = "Book cost more than pencil . Book cost less than computer .".split()
_THINGS = {0: "book", 4: "pencil", 6: "book", 10: "computer"}
EXAMPLE = TypedText(_WORDS, [_THINGS.get(place) for place in range(len(_WORDS))])
_FAR = EXAMPLE._replace(types=[None if kind == "book" else kind for kind in EXAMPLE.types])
_SHOWN = (
    (EXAMPLE, DIFFERENT, "book, pencil, computer"),
    (_FAR, DIFFERENT, "pencil, computer"),
    (EXAMPLE, SELF, "self, example"),
)


def check(run: Run) -> None:
    """Refuse tasks without entities, heads without links, and an unknown model."""
    training.check(run)
    study, known = run.sweep.study, {"model": ("trained", "pretrained"), "links": get_args(Links)}
    if any(value not in known.get(name, ()) for name, value in study.items()):
        raise ValueError(f"study must have {known}, one of each, got {study}")
    if get_task(run.task).kind != "tagging":
        raise ValueError(f"tasks must be of named entities, as wnut17, got {run.task!r}")


def run(run: Run) -> dict[str, Any]:
    """Train a tagger and measure its links; ``scores`` have their shares by layer."""
    limit, length = run.options.get("max_eval_samples"), run.options.get("max_length", 128)
    splits = ["validation", *(["train"] if run.variant.density else [])]
    data = get_task(run.task).load(run.data_dir, splits)
    rows = draw_rows(data["validation"], limit)
    names = rows.features["tags"].feature.names
    types = [None if name == "O" else name[2:] for name in names]
    texts = [TypedText(row["tokens"], [types[tag] for tag in row["tags"]]) for row in rows]
    heads = training.chosen_heads(run)
    if run.sweep.study.get("model") == "pretrained":
        record: dict[str, Any] = {"scores": {}}
        tokenizer = AutoTokenizer.from_pretrained(run.model)
        model = AutoModel.from_pretrained(run.model)
        if run.variant.density is not None:
            some = draw_rows(data["train"], CALIBRATION_TEXTS)["tokens"]
            inputs = tokenizer(list(some), padding=True, max_length=length, **ENCODING)
            heads[0] = calibrate(model, [inputs], density=run.variant.density, config=heads[0])
        for config in heads:
            attach(model, config, tokenizer)
    else:
        record = training.run(run)
        tokenizer = AutoTokenizer.from_pretrained(run.folder)
        load = partial(from_pretrained, AutoModelForTokenClassification)
        model = (load if heads else AutoModelForTokenClassification.from_pretrained)(run.folder)
    shares = measure(model, tokenizer, texts, length, run.sweep.study.get("links", PROBABILITIES))
    return {**record, "scores": {**record["scores"], **shares}}


def measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[TypedText],
    max_length: int,
    links: Links = PROBABILITIES,
) -> dict[str, dict[str, float | None]]:
    """Return the shares of links by layer, in some texts and in the paper's example."""
    shares = measure_links(model, tokenizer, texts, max_length, links)
    for text, kind, shown in _SHOWN:
        for layer, found in measure_links(model, tokenizer, [text], max_length, links).items():
            row = shares.setdefault(layer, {})
            row |= {f"{shown} > {name}": found[f"{kind} > {name}"] for name in SPREADS}
    return shares


def measure_links(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[TypedText],
    max_length: int,
    links: Links = PROBABILITIES,
) -> dict[str, dict[str, float | None]]:
    """Count the links of texts as :func:`count_links` does; all heads of a layer count together."""
    totals: dict[str, Tensor] = {}
    for types, rows in read_words(model, tokenizer, texts, max_length, links):
        for what, counts in count_links(rows, types).items():
            totals[what] = totals[what] + counts if what in totals else counts
    shares: dict[str, dict[str, float | None]] = {}
    for what, counts in totals.items():
        layers = {f"layer {number}": row for number, row in enumerate(counts, start=1)}
        for layer, row in {"all layers": counts.sum(dim=0), **layers}.items():
            some, of = row.tolist()
            shares.setdefault(layer, {})[what] = some / of if of else None
    return shares


def read_words(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterable[TypedText],
    max_length: int,
    links: Links,
) -> Iterator[tuple[list[str | None], Tensor]]:
    """Yield types of words and ``[layers, H, n, n]`` of each text that has two words when cut."""
    model.eval()  # type: ignore[no-untyped-call]
    if attached_config(model) is None:  # fused attention gives no probabilities
        model.set_attn_implementation("eager" if links == PROBABILITIES else "sdpa")
    for text in texts:
        batch = tokenizer(list(text.words), max_length=max_length, **ENCODING)
        ids = batch.word_ids(0)
        first = {word: ids.index(word) for word in dict.fromkeys(ids) if word is not None}
        if len(first) < 2:
            continue
        batch = batch.to(model.device)
        with torch.no_grad():
            if links == PROBABILITIES:
                rows = torch.cat(model(**batch, output_attentions=True).attentions)
            else:
                rows = read_scores(model, batch)
        indices = list(first.values())
        yield [text.types[word] for word in first], rows.cpu()[..., indices, :][..., indices]


def read_scores(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the scores that softmax takes ``[layers, H, L, L]``; jump heads may come first."""
    calls: list[Tensor] = []

    class Recorder(TorchFunctionMode):  # of fused attention, which ordinary and jump heads call
        def __torch_function__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is F.scaled_dot_product_attention:
                calls.append(attention_scores(*args[:2], kwargs["scale"]))
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Recorder():
        model(**batch)
    return torch.cat(calls, dim=1)[0].unflatten(0, (model.config.num_hidden_layers, -1))


def count_links(rows: Tensor, types: Sequence[str | None]) -> dict[str, Tensor]:
    r"""Count the links of one text, layer by layer: how many are found, and among how many.

    Four kinds of ordered pairs are counted: words of different types, a word with a type and one
    without, all words that differ, and a word with itself. Definition 3.1 is about three words, all
    different, and p = mean + std:

    .. math:: \delta = P(P_{ij} \ge p \mid P_{ik} \ge p, P_{jk} \ge p), \qquad
        \mathrm{otherwise} = P(P_{ij} \ge p \mid \text{not both})

    Both are shares of ordered triples, so that a pair with two such k counts twice. ``bridged``: of
    the pairs that no link joins, how many have a third word that both are linked to.

    Shapes:
        - **rows:** probabilities or scores ``[layers, H, n, n]``
        - **output:** ``[layers, 2]``, by what is counted

    Reference:
        Figures 2 and 7 and Definition 3.1 of the JAT paper; those are of scores.
    """
    values = rows.double()
    mean, std = values.mean(), values.std(correction=0)
    found = {name: values > mean + spread * std for name, spread in SPREADS.items()}
    high = values >= mean + std
    differ = ~torch.eye(len(types), dtype=torch.bool)
    thirds = _thirds(high, differ)
    others = (len(types) - 2 - thirds) * differ
    apart = ~(found[STONES] | found[STONES].mT)
    stones = _thirds(found[STONES], differ) > 0
    counted = {}
    for kind, pairs in _kinds(types, differ).items():
        shares = {f"{kind} > {name}": (links, pairs) for name, links in found.items()}
        if kind != SELF:
            among = ((high, thirds * pairs), (high, others * pairs), (stones, apart & pairs))
            shares |= {f"{n}, {kind}": of for n, of in zip(TRIPLES, among, strict=True)}
        for name, (some, of) in shares.items():
            weights = of.expand_as(some).long()
            both = ((some * weights).sum(dim=(1, 2, 3)), weights.sum(dim=(1, 2, 3)))
            counted[name] = torch.stack(both, dim=-1)
    return counted


def _thirds(links: Tensor, differ: Tensor) -> Tensor:
    """How many third words both words of a pair are linked to, ``[layers, H, n, n]``."""
    looks = (links & differ).double()  # k is neither i nor j
    return (looks @ looks.mT).long() * differ


def _kinds(types: Sequence[str | None], differ: Tensor) -> dict[str, Tensor]:
    """Where the pairs of each kind are, bool ``[n, n]``."""
    typed = torch.tensor([kind is not None for kind in types])
    unlike = torch.tensor([[a != b for b in types] for a in types])
    both = typed & typed[:, None]
    return {DIFFERENT: both & unlike, MIXED: typed ^ typed[:, None], ALL: differ, SELF: ~differ}
