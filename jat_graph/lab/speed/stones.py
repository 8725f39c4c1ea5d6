"""``stones``: jumps along stepping stones, against pairs, themselves, and no jump at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from jat_graph.attention.heads import JumpHeads
from jat_graph.attention.propagation import graph_operator, head_groups
from jat_graph.checks.tensors import default_scale
from jat_graph.config import JatConfig
from jat_graph.lab.speed.checks import CheckError, require_equal, require_product, sampled_tokens
from jat_graph.lab.speed.heads import backward, check_head, leaves
from jat_graph.lab.speed.inputs import NUM_HEADS, THRESHOLD, Heads, draw_heads, number_of_keys
from jat_graph.lab.speed.model import STOCK, build_training_steps, require_change
from jat_graph.lab.speed.probe import peak_of, probe
from jat_graph.lab.speed.series import Bar, Benchmark, Fact, Outcome, Series, Settings
from jat_graph.lab.speed.spread import Spread
from jat_graph.masks.tokens import TokenMask
from jat_graph.operators.stones import in_blocks
from jat_graph.training.memory import missing_peaks
from jat_graph.voting.links import LinkRule

WALK = "propagation along stones"
PAIRS = "propagation along pairs, threshold"
PRODUCTS = "its matrix products alone"
CAUSAL, BOTH_WAYS = "causal propagation along stones", "the same without causal order"
CAUSAL_PRODUCTS = "matrix products of causal propagation alone"
MEMORY, NOTHING = "causal propagation of Q, K and V, bytes", "Q, K and V"
FOUR, TWELVE = "stones in 4 heads of 6 layers", "stones in 12 heads of 12 layers"
ALL_STONES = "every token a stone in 4 heads of 6 layers"
LENGTHS = (2048, 4096, 8192, 16384, 32768, 65536)
LONGEST = 2**20
# Everything moves as far as stones lead.
STRENGTHS = {False: (1.0, 1.0, 0.0), True: 1.0}
LEARNED = 0.1  # strengths, as if training had begun
# What a training step has: heads, layers, which keys are stones, and lengths.
STEPS: dict[str, tuple[int, int, str, tuple[int, ...]]] = {
    FOUR: (4, 6, "sampled", (128, 512, 4096)),
    TWELVE: (12, 12, "sampled", (512,)),
    ALL_STONES: (4, 6, "all", (512,)),
}
PAIR_CONFIG = JatConfig.paper(threshold=THRESHOLD, heads=NUM_HEADS, key_selection="strided")


def stone_series(settings: Settings) -> tuple[Series, ...]:
    """Propagation over the lengths, its causal form, its memory, and whole training steps."""
    lengths = (*LENGTHS, LONGEST) if settings.device == "cuda" else LENGTHS
    whole, blocks = (
        partial(_measure_products, products=products)
        for products in (_whole_products, _products_of_blocks)
    )
    return (
        Series(WALK, PAIRS, lengths, LONGEST, _against_pairs),
        Series(PRODUCTS, WALK, (4096, 8192, 65536), LONGEST, whole),
        Series(CAUSAL, BOTH_WAYS, (8192,), LONGEST, _against_both_ways),
        Series(CAUSAL_PRODUCTS, BOTH_WAYS, (8192,), LONGEST, blocks),
        Series(MEMORY, NOTHING, (65536,), LONGEST, _measure_memory),
        *(
            Series(what, STOCK, step[-1], 4096, partial(_measure_step, what=what))
            for what, step in STEPS.items()
        ),
    )


def _against_pairs(length: int, settings: Settings) -> Outcome:
    heads, config = _draw(length, settings), stone_config(length)
    pairs = check_head(f"{PAIRS}, L={length}", heads, PAIR_CONFIG)
    facts = check_walk(f"{WALK}, L={length}", heads, config)
    timing = settings.time(
        [lambda: propagate(heads, config)], [lambda: propagate(heads, PAIR_CONFIG)]
    )
    return Outcome.of(timing, {**facts, "joined": pairs["joined"]})


def _measure_products(
    length: int, settings: Settings, products: Callable[[Tensor, Tensor], None]
) -> Outcome:
    """Time what no other way of writing a walk could leave out, against all of one both ways."""
    heads, config = _draw(length, settings), stone_config(length)
    facts = check_walk(f"{WALK}, L={length}", heads, config)
    links = torch.rand(NUM_HEADS, length, int(facts["stones"]), device=heads.query.device)
    query, key = heads.query[0].float(), heads.key[0].float()
    x = torch.cat([query, key], dim=-1)
    scores = links[..., : links.size(-1) // 2]  # as many numbers as those of one side
    stones = key[:, : scores.size(-1)]

    def run() -> None:
        _ = query.mT @ query, key.mT @ key, query @ stones.mT  # standard scores
        _ = scores @ stones, scores.mT @ query  # and backward
        products(links, x)

    return Outcome.of(settings.time([run], [lambda: propagate(heads, config)]), facts)


def _whole_products(links: Tensor, x: Tensor) -> None:  # [H, L, U], [H, L, 2 D]
    means = links.mT @ x
    y = links @ means
    shared = links.mT @ y  # and backward
    _ = links @ shared, torch.baddbmm(means @ y.mT, shared, x.mT)


def _products_of_blocks(links: Tensor, x: Tensor) -> None:  # [H, L, U], [H, L, 2 D]
    """Take the products that causal order takes in place of whole ones."""
    for b, y in zip(in_blocks(links), in_blocks(x), strict=True):
        sums = b.mT @ y
        _ = (b @ b.mT) @ y, b @ sums
        inside = y @ y.mT  # and backward
        _ = b.mT @ inside, b.mT @ inside, b.mT @ y, b.mT @ y
        _ = sums @ y.mT, sums @ y.mT, (b @ b.mT) @ y, b @ sums


def _against_both_ways(length: int, settings: Settings) -> Outcome:
    heads, config = _draw(length, settings), stone_config(length)
    facts = check_walk(f"{CAUSAL}, L={length}", heads, config, causal=True)
    timing = settings.time(
        [lambda: propagate(heads, config, causal=True)], [lambda: propagate(heads, config)]
    )
    return Outcome.of(timing, facts)


def _measure_memory(length: int, settings: Settings) -> Outcome:
    if missing := missing_peaks(settings.device):
        return Outcome(note=f"not measured: {missing}")
    ours = float(probe(__name__, MEMORY, length, settings.device))
    heads = _draw(64, settings)
    own = 3.0 * heads.query.nbytes / 64 * length
    sides = Spread.of([ours]), Spread.of([own])
    return Outcome(*sides, Spread.of([ours / own]))


def run_side(side: str, length: int, settings: Settings) -> int:
    """Propagate queries, keys and values in causal order, and return what it took."""
    small, heads = _draw(256, settings), _draw(length, settings)
    config = stone_config(length, values=True)
    propagate(small, config, causal=True)  # fills the libraries' own pools
    return peak_of(lambda: propagate(heads, config, causal=True), settings.torch_device)


def _measure_step(length: int, settings: Settings, what: str) -> Outcome:
    heads, layers, selection, _ = STEPS[what]
    config = JatConfig.stones(heads=heads, layers=tuple(range(layers)), key_selection=selection)
    ours, stock = build_training_steps(length, settings, config)
    name, base = f"{what}, L={length}", stock.loss()
    require_equal(f"{name}, loss with strengths of 0", ours.loss(), base)
    for parameter, strength in ours.model.named_parameters():
        if parameter.endswith("strength.theta"):
            strength.data.fill_(LEARNED)
    require_change(name, ours.loss(), base)
    timing = settings.time([ours.run], [stock.run])
    return Outcome.of(timing, {"sequences": len(ours.batch["labels"])})


def stone_config(length: int, values: bool = False) -> JatConfig:
    """Return settings with U = ⌈5 ln L⌉ stones that suit causal order, too."""
    step = -(-length // number_of_keys(length))
    return JatConfig.stones(key_selection="strided", key_step=step, strength=STRENGTHS[values])


def propagate(heads: Heads, config: JatConfig, causal: bool = False) -> None:
    """Run the propagation of heads forward and backward, that of values if they go along."""
    query, key, value = leaves(heads)
    jumping = JumpHeads.everyone(config, query.size(1))
    mask, scale = TokenMask(causal=causal), default_scale(query.size(-1))
    (group,) = head_groups(query, key, value, jumping, mask=mask, scale=scale)
    carried = [] if group.carried is None else [group.carried]
    backward(group.query, group.key, *carried)


def check_walk(what: str, heads: Heads, config: JatConfig, causal: bool = False) -> dict[str, Fact]:
    """Refuse to go on unless P x is right for some sampled tokens, and some tokens are linked."""
    jumping = JumpHeads.everyone(config, heads.query.size(1))
    mask, scale = TokenMask(causal=causal), default_scale(heads.query.size(-1))
    operator, ballot = graph_operator(heads.query, heads.key, jumping, mask, scale)
    links = ballot.links(LinkRule.of(config, ballot.source))
    rows = sampled_tokens(heads.length, links.device)
    weights = _rows_of_walk(links.double(), rows, 0.1, causal)
    x = heads.value.float()
    require_product(f"{what}, P x", operator.matmul(x), rows, weights, x)
    linked = float((links > 0).float().mean())
    if not linked > 0.02:
        raise CheckError(f"{what}: 2% of the links must be there, got {linked:.1%}")
    return {"linked": linked, "stones": links.size(-1)}


def _rows_of_walk(
    links: Tensor,  # [1, H, L, U]
    rows: Tensor,  # [r]
    self_weight: float,
    causal: bool,
) -> Tensor:  # [1, H, r, L]
    """Return some rows of P by the definition."""
    sizes = (links.cumsum(2) if causal else links.sum(2, keepdim=True).expand_as(links))[:, :, rows]
    shares = links[:, :, rows] / sizes.masked_fill(sizes == 0, 1.0)
    position = torch.arange(links.size(2), device=rows.device)
    walk = shares @ links.mT
    if causal:
        walk = walk.masked_fill(position > rows[:, None], 0.0)
    walk = walk + self_weight * (position == rows[:, None])
    return walk / walk.sum(-1, keepdim=True)


def _draw(length: int, settings: Settings) -> Heads:
    return draw_heads(length, NUM_HEADS, device=settings.torch_device, dtype=settings.dtype)


STONES = Benchmark(
    name="stones",
    claim=(
        f"Jumps along stepping stones, U = ⌈5 ln L⌉, both sides, t = 1. Propagation of queries and "
        f"keys alone, forward and backward, B = 1, {NUM_HEADS} heads, D = 64, against that along "
        "pairs; its bare matrix products against all of it; in causal order, and the bare products "
        "of its blocks; the memory of the causal form, with values, as a multiple of Q, K and V; "
        "and whole training steps of a RoBERTa-base with random weights against stock SDPA."
    ),
    series=stone_series,
    growing=("ours", "theirs"),
    growing_from=4096,
    slope_bar=1.10,
    bars=(
        *(Bar(device, WALK, PAIRS, 2048, LONGEST, 1.0) for device in ("cpu", "cuda")),
        Bar("cpu", WALK, PAIRS, 8192, 8192, 0.6),
        Bar("cpu", CAUSAL, BOTH_WAYS, 8192, 8192, 2.0),
        Bar("cpu", MEMORY, NOTHING, 65536, 65536, 6.0),
        Bar("cpu", FOUR, STOCK, 128, 4096, 1.06),
        Bar("cpu", TWELVE, STOCK, 512, 512, 1.20),
    ),
)
