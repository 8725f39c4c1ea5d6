"""Compare ways to choose the keys that a token reads, on the heads of a pretrained encoder.

``python -m examples.where_to_look --data-dir DIR`` takes the queries, keys and values of
all-MiniLM-L6-v2 on three articles of WikiText-2. With each method a token reads as many keys: half
of them in blocks around it, if nothing else is said, and half where the method says. What counts is
the error ‖o' − o‖ / ‖o‖ of a head's outputs against softmax over all keys, on average; the mass is
the attention on keys that are read exactly. All are dense formulas; choosing is not counted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from pandas import DataFrame
from torch import Tensor
from transformers.integrations.sdpa_attention import repeat_kv

from examples.long_inputs import MINILM, load, record_heads
from examples.options import example, option
from examples.tasks import get_task
from jat_graph import JatConfig, clustered_attention, jump_operator
from jat_graph.core.files import read_text, write_text
from jat_graph.viz import save_figure

# Tokens, queries, keys of a block and of a cluster, bits of a query.
FIRST, SAMPLED, BLOCK, CLUSTER, BITS = 4, 32, 8, 4, 63
MEASURES = ("error", "mass", "read")
COLOURS = {"tree": "#0072b2", "clusters of 2020": "#d55e00", "oracle": "#222222"}
GREY = "#8c959f"
DASHED = ("tree, nothing elsewhere", "oracle")


@dataclass
class Options:
    """What is asked for."""

    model: str = option(f"folder or Hub name of an encoder; {MINILM} is in its package", MINILM)
    data_dir: Path | None = option("folder with WikiText-2", None)
    file: Path | None = option("a long text instead, .txt or .gz", None)
    texts: int = 3
    length: int = option("tokens of a text, a multiple of 8", 512)
    shares: list[float] = option("shares of the keys that are read", [1 / 32, 1 / 16, 1 / 8, 1 / 4])
    seed: int = option("seed of random keys and random bits", 0)
    json: Path | None = option("file for all numbers", None)
    plot: Path | None = option("picture of the errors", None)


# What a method has in the place of attention, and which keys it reads exactly: [H, L, L] both.
Reading: TypeAlias = tuple[Tensor, Tensor]
Method: TypeAlias = Callable[["Heads", int], Reading]  # of so many keys


class Heads:
    """A layer's heads on one text: queries, keys and values ``[H, L, D]``, and all scores."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> None:
        self.query, self.key, self.value, self.scale = query, key, value, scale
        self.length = query.size(1)
        self.scores = query @ key.mT * scale  # [H, L, L]
        self.attention = self.scores.softmax(-1)

    def window(self, keys: int) -> Tensor:  # bool, [L, L]
        """Which so many keys are in a token's own block, the one before or the one after."""
        number = torch.arange(self.length) // (keys // 3)
        return (number[:, None] - number).abs() <= 1

    def best(self, likely: Tensor, keys: int) -> Tensor:  # bool, [H, L, L]
        """Which keys are the likeliest."""
        likely = likely.expand_as(self.scores)
        none = torch.zeros_like(likely, dtype=torch.bool)
        return none.scatter(-1, likely.topk(keys).indices, True)

    def half(self, likely: Tensor, keys: int) -> Tensor:  # bool, [H, L, L]
        """Which keys are in a window of half of them, or the likeliest outside."""
        near = self.window(keys // 2)
        others = keys - 3 * (keys // 6)
        return self.best(likely.masked_fill(near, -torch.inf), others) | near

    def read(self, exact: Tensor) -> Reading:
        """Read some keys exactly, and nothing elsewhere."""
        scores = self.scores.masked_fill(~exact, -torch.inf)
        return scores.softmax(-1), exact.expand_as(scores)


def vertical_lines(heads: Heads) -> Tensor:
    """Keys that a sample of queries attends to, the same for all tokens."""
    sampled = torch.arange(SAMPLED) * (heads.length - 1) // (SAMPLED - 1)
    return heads.attention[:, sampled].sum(1, keepdim=True)


def means_of_blocks(heads: Heads) -> Tensor:
    """Keys whose block has a mean of a high score, as in NSA and MoBA."""
    return of_keys(heads.query @ blocks(heads.key).mean(2).mT, heads)


def bounds_of_blocks(heads: Heads) -> Tensor:
    """Keys whose block might hold one of a high score, as in Quest."""
    low, high = torch.aminmax(blocks(heads.key), dim=2)
    return of_keys(heads.query.clamp(min=0) @ high.mT + heads.query.clamp(max=0) @ low.mT, heads)


def blocks(key: Tensor) -> Tensor:  # [H, L, D] -> [H, blocks, BLOCK, D]
    """Return the blocks of keys; the last one is filled up with the last key."""
    filled = F.pad(key.mT, (0, -key.size(1) % BLOCK), mode="replicate").mT
    return filled.unflatten(1, (-1, BLOCK))


def of_keys(scores: Tensor, heads: Heads) -> Tensor:  # [H, L, blocks] -> [H, L, L]
    """Return the score of each key's block."""
    return scores.repeat_interleave(BLOCK, -1)[..., : heads.length]


@lru_cache(1)
def pair_graph(heads: Heads) -> Tensor:
    """Heaviest neighbours in the paper's graph."""
    return jump_graph(heads, JatConfig.paper()).base.to_dense()[0]


def stones(heads: Heads) -> Tensor:
    """Two hops: from a token to keys that it scores unusually high, and to what these attend to."""
    graph = jump_graph(heads, JatConfig.stones(sides="positive", backend="dense"))
    return graph.links[0] @ heads.attention


def jump_graph(heads: Heads, config: JatConfig) -> Any:
    """Return a graph of the heads as an operator."""
    return jump_operator(heads.query[None], heads.key[None], config=config, scale=heads.scale)


def tree_settings(length: int, keys: int) -> dict[str, Any]:
    """Return settings by which a token reads so many keys, of clusters or of none."""
    segment = max(CLUSTER, 1 << (keys // 2).bit_length() - 1)  # half of them at most
    near = (length - FIRST) % segment
    chosen = max(0, keys - FIRST - near) // CLUSTER * CLUSTER
    return {"keys": chosen, "size": CLUSTER, "segment": segment, "window": 1, "dense_below": 0}


def tree(heads: Heads, keys: int, rest: bool = True) -> Reading:
    """Read the best clusters of a tree of all keys; elsewhere means of nodes, or nothing."""
    settings = tree_settings(heads.length, keys) | {"scale": heads.scale}
    one = torch.eye(heads.length).expand_as(heads.scores)  # of each key
    found = [x[None].double() for x in (heads.query, heads.key, one)]  # or weights may be 0
    exact, weights = (
        clustered_attention(*found, propagate=elsewhere, **settings)[0].to(heads.scores)
        for elsewhere in (False, rest)
    )
    return weights, exact > 0


def clusters_of_2020(heads: Heads, keys: int) -> Reading:
    """Read by clusters of hashed queries; best keys exactly, their sum the cluster's; no window."""
    number = math.ceil(2 * heads.length**0.5)
    bits = (heads.query @ torch.randn(heads.query.size(-1), BITS).to(heads.query)).sign()
    centres = bits[:, torch.arange(number) * (heads.length - 1) // (number - 1)]
    for _ in range(10):  # of k-means, by Hamming distance
        joined = F.one_hot((bits @ centres.mT).argmax(-1), number).to(bits)  # [H, L, m]
        centres = (joined.mT @ bits).sign()
    means = joined.mT @ heads.query / joined.sum(1).clamp(min=1).unsqueeze(-1)
    rows = joined @ (means @ heads.key.mT * heads.scale).softmax(-1)
    exact = heads.best(rows, keys)
    inside = heads.read(exact)[0] * (rows * exact).sum(-1, keepdim=True)
    return inside.where(exact, rows), exact


def nystromformer(heads: Heads, keys: int) -> Reading:
    """Read means of segments in the place of keys and of queries, half as many of each."""
    few, means = (F.adaptive_avg_pool1d(x.mT, keys // 2).mT for x in (heads.query, heads.key))
    pairs = ((heads.query, means), (few, means), (few, heads.key))
    left, middle, right = ((x @ y.mT * heads.scale).softmax(-1) for x, y in pairs)
    one, largest = torch.eye(keys // 2).to(few), middle.sum(-2).amax(-1)  # rows sum to 1
    inverse = middle.mT / largest[:, None, None]
    for _ in range(6):  # steps towards it, as published
        near = middle @ inverse
        inverse = inverse @ (13 * one - near @ (15 * one - near @ (7 * one - near))) / 4
    weights = left @ inverse @ right
    return weights, torch.zeros_like(weights, dtype=torch.bool)


def first_tokens(heads: Heads, keys: int) -> Reading:
    """Read a window, and the first tokens, as StreamingLLM has it."""
    first = torch.arange(heads.length) < FIRST
    return heads.read(heads.window(keys - FIRST) | first)


def likeliest(find: Callable[[Heads], Tensor]) -> Method:
    """Read a window, and what is likely to count outside of it."""
    return lambda heads, keys: heads.read(heads.half(find(heads), keys))


METHODS: dict[str, Method] = {
    "window": lambda heads, keys: heads.read(heads.window(keys)),
    "window, first tokens": first_tokens,
    "random keys": likeliest(lambda heads: torch.rand_like(heads.scores)),
    "pair graph": likeliest(pair_graph),
    "vertical lines": likeliest(vertical_lines),
    "means of blocks": likeliest(means_of_blocks),
    "bounds of blocks": likeliest(bounds_of_blocks),
    "stones": likeliest(stones),
    "Nyströmformer": nystromformer,
    "clusters of 2020": clusters_of_2020,
    "oracle": likeliest(lambda heads: heads.scores),
    "tree, nothing elsewhere": partial(tree, rest=False),
    "tree": tree,
}


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Compare; yield a table."""
    if args.length < 2 * SAMPLED or args.length % BLOCK:
        raise ValueError(f"length must be a multiple of {BLOCK} from 64 on, got {args.length}")
    sizes = [round(share * args.length) for share in args.shares]
    if not all(2 * FIRST <= keys <= args.length // 2 for keys in sizes):
        most = f"{2 * FIRST} to {args.length // 2} of {args.length} keys"
        raise ValueError(f"shares must give {most}, got {args.shares}")
    torch.manual_seed(args.seed)
    found, name = compare(sizes, args), Path(args.model).name
    if args.json is not None:
        own = {name: value for name, value in vars(args).items() if not isinstance(value, Path)}
        content = {"settings": own | {"model": [name]}, "models": {name: by_method(found)}}
        write_text(args.json, json.dumps(content) + "\n")
    if args.plot is not None:
        save_figure(draw(found, args.length), args.plot)
    groups = found.groupby(["method", "keys"], sort=False)
    means = groups.mean().assign(deviation=groups["error"].std().fillna(0.0)).unstack("keys")
    shown = means.loc[[*METHODS], ["error", "deviation", "mass"]]
    yield shown.to_string(float_format="%.3f")


def compare(sizes: list[int], args: Options) -> DataFrame:
    """Return means over heads and layers, a row for each text, method and number of keys."""
    rows = []
    for layers in read_layers(args):
        for method, read in METHODS.items():
            found = [[measure(heads, read(heads, keys)) for keys in sizes] for heads in layers]
            for keys, means in zip(sizes, torch.tensor(found).mean(0).tolist(), strict=True):
                rows.append((method, keys, *means))
    return DataFrame(rows, columns=["method", "keys", *MEASURES])


def by_method(frame: DataFrame) -> dict[str, Any]:
    """Return of each method, for each number of keys, what was measured, one number a text."""
    lists = frame.groupby(["method", "keys"], sort=False).agg(list)
    groups = lists.groupby(level="method", sort=False)
    return {method: own.droplevel("method").to_dict("index") for method, own in groups}


def read_layers(args: Options) -> Iterator[list[Heads]]:
    """Yield what the heads of all layers have, text by text."""
    model, tokenizer = load(args.model, 1)
    most = model.config.max_position_embeddings
    if args.length > most:
        raise ValueError(f"length must be at most {most} for this model, got {args.length}")
    for text in read_tokens(tokenizer, args, args.texts):
        layers = record_heads(model, torch.tensor([text]))
        if getattr(layers[0][0], "is_causal", False):
            kind = type(layers[0][0]).__name__
            raise ValueError(f"model must be an encoder, got {kind}, a decoder's")
        found = []
        for _, query, key, value, scale in layers:
            times = query.size(1) // key.size(1)  # heads that share their keys
            key, value = (repeat_kv(x, times) for x in (key, value))
            found.append(Heads(query[0].float(), key[0].float(), value[0].float(), scale))
        yield found


def read_tokens(tokenizer: Any, args: Any, texts: int) -> list[list[int]]:
    """Return the beginnings of as many texts as are asked for."""
    if args.file is None:
        found = get_task("wikitext2").load(args.data_dir, ["test"])["test"]["text"]
    else:  # as many parts of equal size
        text = read_text(args.file)
        size = max(1, len(text) // texts)
        found = [text[start : start + size] for start in range(0, len(text), size)]
    tokens = (tokenizer(x, truncation=True, max_length=args.length)["input_ids"] for x in found)
    chosen = [*islice((own for own in tokens if len(own) == args.length), texts)]
    if len(chosen) < texts:
        raise ValueError(f"texts must be {texts} of {args.length} tokens, got {len(chosen)}")
    return chosen


def measure(heads: Heads, reading: Reading) -> list[float]:
    """Return error, mass and share of keys read."""
    (weights, exact), right = reading, heads.attention @ heads.value
    error = (weights @ heads.value - right).norm(dim=-1) / right.norm(dim=-1)
    mass = (heads.attention * exact).sum(-1)
    return [float(x.mean()) for x in (error, mass, exact.double())]


def draw(found: DataFrame, length: int) -> Figure:
    """Draw the error of each method over the keys that are read."""
    figure = Figure(figsize=(6.8, 4.6), layout="constrained")
    axis = figure.subplots()
    for method, rows in found.groupby("method", sort=False):
        errors = rows.groupby("keys")["error"].mean()
        colour = COLOURS.get(method.split(",")[0], GREY)
        look = {"color": colour, "linewidth": 0.8 if colour == GREY else 1.6}
        axis.plot(errors, ".--" if method in DASHED else ".-", label=method, **look)
    axis.set(xscale="log", yscale="log", xlabel=f"keys that a token reads, of {length}")
    axis.set_ylabel("error of a head's output, ‖o' − o‖ / ‖o‖")
    for side, ticks in ((axis.xaxis, errors.index), (axis.yaxis, (0.05, 0.1, 0.2, 0.5, 1.0))):
        side.set_ticks(ticks, [str(tick) for tick in ticks])
        side.set_ticks([], minor=True)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


if __name__ == "__main__":
    main()
