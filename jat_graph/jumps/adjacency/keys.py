"""Which keys vote: all of them, the most significant, a sample, or every so many."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from jat_graph.core.masks import TokenMask
from jat_graph.jumps.adjacency.scores import ScoreSource, SelectedKeys
from jat_graph.jumps.config import JatConfig, PairGraph


def select_keys(config: JatConfig, source: ScoreSource, mask: TokenMask) -> SelectedKeys:
    """Choose the keys that vote."""
    # The number of entries depends on the padded length alone, so that nothing waits for the
    # device; `valid` says how many of them each sequence really has.
    if config.jump_graph.key_selection in ("all", "strided"):
        return spaced_keys(config, mask, source.shape, source.device)
    if reasons := unsupported_selection(config, mask):
        raise ValueError(reasons[0])
    length, device = source.shape[2], source.device
    everyone = torch.ones(1, 1, length, dtype=torch.bool, device=device)
    voting = everyone if mask.voting is None else mask.voting
    with torch.no_grad():
        measure = _measure(config, source, everyone if mask.valid is None else mask.valid)
    most = number_of_keys(config, length)  # it never falls with the number of tokens
    # Ties go to the lower index.
    order = measure.masked_fill(~voting, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    number = numbers_of_keys(config, voting.sum(-1, keepdim=True))
    chosen = torch.arange(most, device=device) < number  # [B|1, H|1, U]
    # Rising positions, padding entries last, so that a key's rank does not depend on rounding.
    index = order[..., :most].masked_fill(~chosen, length).sort(dim=-1).values
    return SelectedKeys(index.clamp(max=length - 1), None if mask.voting is None else chosen)


def spaced_keys(
    config: JatConfig, mask: TokenMask, shape: torch.Size, device: torch.device
) -> SelectedKeys:
    """Return the keys that vote whatever their scores: all of them, or every so many."""
    if reasons := unsupported_selection(config, mask):
        raise ValueError(reasons[0])
    (batch, heads, length), voting, step = shape, mask.voting, config.jump_graph.key_step
    if config.jump_graph.key_selection == "all":
        return SelectedKeys(None, voting)
    if voting is None and step is not None:
        index = torch.arange(0, length, step, device=device)
        return SelectedKeys(index.expand(batch, heads, -1), None)
    if voting is None:
        voting = torch.ones(1, 1, length, dtype=torch.bool, device=device)
    count = voting.sum(-1, keepdim=True)
    number = numbers_of_keys(config, count)
    rank = torch.arange(number_of_keys(config, length), device=device)
    # Valid ranks 0, s, 2s … for a fixed step s, or ⌊r·n/U⌋.
    spaced = rank * count // number.clamp(min=1) if step is None else rank * step
    index = positions_of_ranks(voting, spaced.expand(*count.shape[:2], -1))
    valid = None if mask.voting is None else rank < number
    return SelectedKeys(index.expand(batch, heads, -1), valid)


def unsupported_selection(config: JatConfig, mask: TokenMask) -> list[str]:
    """Say why a mask does not allow the config's choice of keys or its adaptive ρ."""
    graph, selection = config.jump_graph, config.jump_graph.key_selection
    fixed = selection == "all" or (selection == "strided" and graph.key_step is not None)
    rated = isinstance(graph, PairGraph) and graph.vote_rate is not None
    ahead = {}  # what may look at later tokens, and what to do instead
    if not fixed:
        what = f"key_selection={selection!r}"
        what += " without key_step" if selection == "strided" else ""
        ahead[what] = "use key_selection='all', or 'strided' with key_step"
    if rated:
        ahead["vote_rate"] = "use a fixed threshold"
    reasons = {
        f"{what} would use later tokens, which a causal model must not see; {cure}": mask.causal
        for what, cure in ahead.items()
    }
    if mask.pairs is not None and torch.compiler.is_compiling():  # nobody may look at its values
        why = (
            "could use later tokens: torch.compile hides whether a mask [.., L, L] is causal; "
            "pass padding as attention_mask [B, L] or [B, 1, 1, L], or do not compile"
        )
        reasons |= {f"{what} {why}": True for what in ahead}
    elif mask.pairs is not None:
        wanted = "a mask that is neither padding nor causal needs"
        reasons[f"{wanted} key_selection='all', got {selection!r}"] = selection != "all"
        reasons[f"{wanted} a fixed threshold, got vote_rate"] = rated
    return [reason for reason, holds in reasons.items() if holds]


def number_of_keys(config: JatConfig, count: int) -> int:
    """Return U for a sequence of ``count`` valid tokens."""
    # U = min(n, max(1, ⌈key_factor · ln n⌉)), or `num_keys` capped at n. The released code's
    # `"sampled_queries"` takes key_factor · ⌈ln n⌉ instead.
    graph = config.jump_graph
    if count == 0 or graph.key_selection == "all":
        return count
    if graph.key_step is not None:
        return -(-count // graph.key_step)
    return sample_size(config, count) if graph.num_keys is None else min(count, graph.num_keys)


def numbers_of_keys(config: JatConfig, count: Tensor) -> Tensor:
    """Return U for each number of tokens, as :func:`number_of_keys` for one."""
    graph = config.jump_graph
    if graph.key_selection == "all":
        return count
    if graph.key_step is not None:
        return -(-count // graph.key_step)
    if graph.num_keys is not None:
        return count.clamp(max=graph.num_keys)
    return sample_sizes(config, count)


def _measure(config: JatConfig, source: ScoreSource, valid: Tensor) -> Tensor:  # [B, H, L]
    """Return M_j = max_i X_ij − mean_i X_ij over valid or sampled queries i (Eq. 8)."""
    selection, count = config.jump_graph.key_selection, valid.sum(-1, keepdim=True)
    if selection == "significance":
        return source.significance(None, valid)
    position, seen = sampled_positions(config, valid, count)
    position = position.expand(*source.shape[:2], -1)
    if selection == "sampled":
        return source.significance(position, seen)
    # M_i = max_j X_ij − Σ_j X_ij / n over sampled keys j, as the released code does.
    scores, hidden = source.columns(position), ~seen.unsqueeze(-2)
    peak = scores.masked_fill(hidden, -torch.inf).amax(-1)
    return peak - scores.masked_fill(hidden, 0.0).sum(-1) / count.clamp(min=1)


def sample_size(config: JatConfig, count: int) -> int:
    """Return min(n, ⌈key_factor · ln n⌉), at least 1: how many queries or keys are sampled."""
    # The released code rounds the logarithm before it multiplies, for the sample as for U. Of all
    # logarithms torch.compile traces log2 alone.
    if count == 0:
        return 0
    logarithm = math.log(2) * math.log2(count)
    if config.jump_graph.key_selection == "sampled_queries":
        logarithm = math.ceil(logarithm)
    return min(count, max(1, math.ceil(config.jump_graph.key_factor * logarithm)))


def sample_sizes(config: JatConfig, count: Tensor) -> Tensor:
    """Return the size of the sample for each number of tokens, as :func:`sample_size` for one."""
    logarithm = math.log(2) * count.clamp(min=1).double().log2()
    if config.jump_graph.key_selection == "sampled_queries":
        logarithm = logarithm.ceil()
    return (config.jump_graph.key_factor * logarithm).ceil().clamp(min=1).long().minimum(count)


def positions_of_ranks(valid: Tensor, rank: Tensor) -> Tensor:  # [..., L], [..., R]; [..., R]
    """Return where the valid tokens of some ranks from 0 are; anywhere if there is no such one."""
    number = valid.cumsum(-1).contiguous()  # of the valid tokens up to here
    return torch.searchsorted(number, rank.contiguous() + 1).clamp(max=valid.size(-1) - 1)


def draw(seed: int, size: int, purpose: int, device: torch.device) -> Tensor:  # [size]
    """Return ``size`` random integers below 2³¹; the first n of them are the same for any size."""
    # `purpose` tells the streams of different uses apart.
    numbers: Tensor = _draw(seed, size, purpose)
    return numbers.to(device)


@torch.library.custom_op("jat_graph::draw", mutates_args=())
def _draw(seed: int, size: int, purpose: int) -> Tensor:
    """Draw on the CPU; an operator, because torch.compile cannot trace a generator."""
    # The engine fills in order, one draw an element: a prefix is stable.
    generator = torch.Generator().manual_seed((seed + purpose * 0x9E3779B97F4A7C15) % 2**63)
    return torch.randint(2**31, (size,), generator=generator)


@_draw.register_fake
def _(seed: int, size: int, purpose: int) -> Tensor:
    return torch.empty(size, dtype=torch.long)


def sampled_positions(config: JatConfig, valid: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Return positions of sampled valid tokens, ``[B|1, H|1, S]``, and which of them count."""
    # Of `valid` `[B|1, H|1, L]`, whose number is `count` n, without replacement. Each rank has a
    # random number that depends on the seed alone; the smallest ones of the first n are taken, so
    # that the sample depends on the seed and n.
    length = valid.size(-1)
    size = sample_sizes(config, count)
    index = torch.arange(length, device=valid.device)
    # Ties would make the sample depend on the sort: the rank breaks them.
    lots = (draw(config.seed, length, 1, valid.device) << 31) + index
    rank = (valid.cumsum(-1) - 1).clamp(min=0)
    lot = lots[rank].masked_fill(~valid, torch.iinfo(torch.int64).max)
    position = lot.topk(sample_size(config, length), dim=-1, largest=False).indices
    return position, index[: position.size(-1)] < size
