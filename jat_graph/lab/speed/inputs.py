"""Random heads whose graphs do real work: with small scores nothing is joined and all is fast.

And the cases that are made of them, the points of the benchmarks of kernels.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.checks.tensors import default_scale
from jat_graph.lab.speed.checks import CheckError, count_rows
from jat_graph.lab.speed.series import Fact, Outcome, Settings
from jat_graph.lab.speed.timing import Step, Timing
from jat_graph.voting.rule import VoteRule
from jat_graph.voting.scores import attention_scores

THRESHOLD = 6.0  # the paper's ρ
NUM_HEADS, HEAD_DIM = 4, 64
KEY_FACTOR = 5.0  # of U = ⌈5 ln L⌉

# What every head must reach before anything is timed ...
LEAST_JOINED, LEAST_TAKING_PART = 0.6, 0.5
# ... and what the inputs are made for.
WANTED_JOINED, WANTED_TAKING_PART = 0.66, 0.56

SAMPLED_PAIRS = 2**14
SDPA = "SDPA of the same heads"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """How much a graph has to do, in the head that has the least."""

    joined: float  # share of the sampled pairs that at least one key joins
    taking_part: float  # share of the tokens that the median key joins with somebody

    def require(self, what: str) -> None:
        """Refuse to go on with a graph that has too little to do."""
        if not (self.joined >= LEAST_JOINED and self.taking_part >= LEAST_TAKING_PART):
            raise CheckError(
                f"{what}: the inputs must join {LEAST_JOINED:.0%} of the pairs, and "
                f"{LEAST_TAKING_PART:.0%} of the tokens must take part in the median key, "
                f"got {self.joined:.1%} and {self.taking_part:.1%}; nothing was timed"
            )

    def announce(self, what: str) -> None:
        """Print the figures of a graph that was checked, before it is timed."""
        logger.info(
            "%s: results agree; %.1f %% of the pairs are joined at U = ⌈5 ln L⌉, %.1f %% of the "
            "tokens take part in the median key.",
            what, 100 * self.joined, 100 * self.taking_part,
        )  # fmt: skip

    @property
    def facts(self) -> dict[str, float]:
        """Both figures by name."""
        return {"joined": self.joined, "taking_part": self.taking_part}


@dataclass(frozen=True)
class Heads:
    """Random heads, scaled so that their graphs do real work at the paper's threshold."""

    query: Tensor  # [1, H, L, D]
    key: Tensor  # [1, H, L, D]
    value: Tensor  # [1, H, L, D]

    @property
    def length(self) -> int:
        """Tokens L."""
        return self.query.size(2)

    def key_scores(self, number: int | None = None) -> Tensor:
        """The scores with some evenly spaced keys, ``[1, H, L, U]``."""
        return spaced_scores(self.query, self.key, number)


@dataclass(frozen=True)
class Case:
    """One point of a benchmark of kernels, whose graphs have enough to do; messages name it."""

    name: str
    heads: Heads
    work: Work
    settings: Settings

    @property
    def rule(self) -> VoteRule:
        """The paper's vote."""
        return VoteRule(torch.full((1, 1), THRESHOLD, device=self.settings.torch_device))

    def few_scores(self) -> Tensor:
        """The scores with U = ⌈5 ln L⌉ keys, ``[1, H, L, U]``."""
        return self.heads.key_scores(number_of_keys(self.heads.length))

    def counts(self, scores: Tensor) -> Tensor:
        """The votes for every pair by the definition, ``[1, H, L, L]``."""
        return count_rows(self.rule, scores, torch.arange(scores.size(2), device=scores.device))

    def attend(self) -> Tensor:
        """The heads' exact attention, ``[1, H, L, D]``."""
        heads = self.heads
        return F.scaled_dot_product_attention(heads.query, heads.key, heads.value)

    def time(self, ours: Sequence[Step], theirs: Callable[[], object]) -> Timing:
        """Print what the graphs have to do, then time two sides whose results were checked."""
        self.work.announce(self.name)
        return self.settings.time(ours, [theirs])

    def outcome(self, timing: Timing, facts: dict[str, Fact] | None = None) -> Outcome:
        """What came of the point, with what its graphs had to do."""
        return Outcome.of(timing, {**self.work.facts, **(facts or {})})


def number_of_keys(length: int) -> int:
    """U = ⌈5 ln L⌉, at most L."""
    return min(length, math.ceil(KEY_FACTOR * math.log(length)))


def draw_heads(
    length: int, heads: int, *, device: torch.device, dtype: torch.dtype = torch.float32
) -> Heads:
    """Gaussian heads, their queries scaled until the graphs do real work; alike on every device."""
    generator = torch.Generator().manual_seed(0)
    shape = (1, heads, length, HEAD_DIM)
    drawn = (torch.randn(shape, generator=generator).to(device) for _ in range(3))
    query, key, value = drawn
    factor = strengthening(spaced_scores(query, key, number_of_keys(length)), THRESHOLD)
    query = query * factor[..., None, None]
    return Heads(query.to(dtype), key.to(dtype), value.to(dtype))


def open_case(what: str, length: int, settings: Settings) -> Case:
    """Make the heads of a point, and refuse them if their graphs have too little to do."""
    heads = draw_heads(length, NUM_HEADS, device=settings.torch_device, dtype=settings.dtype)
    name = f"{what}, L={length}"
    work = measure_work(heads.key_scores(number_of_keys(length)), THRESHOLD)
    work.require(name)
    return Case(name, heads, work, settings)


def spaced_scores(query: Tensor, key: Tensor, number: int | None) -> Tensor:
    """The scaled scores X with evenly spaced keys."""
    length = key.size(2)
    if number is not None:
        key = key[:, :, torch.arange(number, device=key.device) * length // number]
    return attention_scores(query, key, default_scale(query.size(-1)))


def measure_work(key_scores: Tensor, threshold: float) -> Work:  # [B, H, L, U]
    """How much the graph of these keys has to do."""
    joined = (_pair_peaks(key_scores) > threshold).float().mean((0, -1))
    shares = (_token_peaks(key_scores) > threshold).float().mean(-2)  # [B, H, U]
    taking_part = shares.quantile(0.5, dim=-1).mean(0)
    return Work(float(joined.min()), float(taking_part.min()))


def strengthening(key_scores: Tensor, threshold: float) -> Tensor:  # [B, H, L, U], [B, H]
    """The factor of the scores at which each head's graph does the wanted work."""
    return (threshold / median_product(key_scores)).sqrt()


def median_product(key_scores: Tensor) -> Tensor:  # [B, H, L, U], [B, H]
    """The threshold at which each head's graph would do the wanted work."""
    joined = _upper(_pair_peaks(key_scores), WANTED_JOINED)
    by_key = _upper(_token_peaks(key_scores).transpose(-1, -2), WANTED_TAKING_PART)  # [B, H, U]
    return torch.minimum(joined, by_key.quantile(0.5, dim=-1)).clamp(min=1e-6)


def _upper(values: Tensor, share: float) -> Tensor:
    """A number that this share of the values along the last dimension exceeds: [...]."""
    count = values.size(-1)
    return values.kthvalue(max(1, math.floor((1 - share) * count)), dim=-1).values


def _pair_peaks(key_scores: Tensor) -> Tensor:
    """The largest product over keys of sampled pairs i ≠ k: [B, H, P]."""
    length = key_scores.size(2)
    generator = torch.Generator().manual_seed(2)
    first = torch.randint(length, (SAMPLED_PAIRS,), generator=generator)
    apart = torch.randint(1, length, (SAMPLED_PAIRS,), generator=generator)
    pair = (first.to(key_scores.device), ((first + apart) % length).to(key_scores.device))
    return (key_scores[:, :, pair[0]] * key_scores[:, :, pair[1]]).amax(-1)


def _token_peaks(key_scores: Tensor) -> Tensor:
    """The largest product of every token with another one, key by key: [B, H, L, U]."""
    high, low = key_scores.topk(2, dim=2).values, key_scores.topk(2, dim=2, largest=False).values
    # A token that is the extreme itself meets the second one.
    top = torch.where(key_scores == high[:, :, :1], high[:, :, 1:], high[:, :, :1])
    bottom = torch.where(key_scores == low[:, :, :1], low[:, :, 1:], low[:, :, :1])
    return torch.maximum(key_scores * top, key_scores * bottom)
