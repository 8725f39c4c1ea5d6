"""What the demo lets one layer learn: to tell a partner's value, with which it shares a hub."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from numpy.polynomial import Polynomial
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from jat_graph.core.progress import track_progress
from jat_graph.jumps.config import JatConfig
from jat_graph.looking.viz import save_figure
from jat_graph.looking.viz.figures import COLOURS, new_figure
from jat_graph.nn import JumpSelfAttention
from jat_graph.training import parameter_groups

VALUES, NAMES_PER_PAIR = 8, 4
CHANNELS, HEADS = 64, 4
BATCH, TESTED, PIECE = 64, 500, 50  # sequences in a step, to test on, and of these at a time
POINTS = 20  # of a curve


class PartnersReader(nn.Module):
    """One transformer layer without positions: a token sums its two names and its value."""

    # Of random weights as torch draws them 3000 steps were not enough; with these some 1000 are.

    def __init__(self, names: int, config: JatConfig | None) -> None:
        super().__init__()
        self.names = nn.Embedding(names + 1, CHANNELS, padding_idx=0)
        self.values = nn.Embedding(VALUES + 1, CHANNELS, padding_idx=0)
        self.attention = JumpSelfAttention(CHANNELS, HEADS, config)
        self.norm = nn.LayerNorm(CHANNELS)
        self.inner = nn.Sequential(
            nn.LayerNorm(CHANNELS),
            nn.Linear(CHANNELS, 2 * CHANNELS),
            nn.GELU(),
            nn.Linear(2 * CHANNELS, CHANNELS),
        )
        self.answer = nn.Sequential(nn.LayerNorm(CHANNELS), nn.Linear(CHANNELS, VALUES))
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, nn.Embedding):
                    module.weight.normal_(std=0.3)[module.padding_idx] = 0.0
                elif isinstance(module, nn.Linear):
                    module.weight.normal_(std=0.1)

    def forward(self, ids: Tensor) -> Tensor:  # [B, L, 3] -> [B, L, values]
        """Say of each token which value is the answer."""
        first, second, value = ids.unbind(-1)
        x = self.names(first) + self.names(second) + self.values(value)
        x = x + self.attention(self.norm(x), first > 0)
        logits: Tensor = self.answer(x + self.inner(x))
        return logits


def draw_sequences(
    sizes: NDArray[np.int64], pairs: int, source: np.random.Generator
) -> tuple[Tensor, Tensor]:  # [N, L, 3] ids, [N, L] answers
    """Draw sequences of so many pairs: 2 m names with values, m hubs that hold two names each."""
    # Every name is asked for the value of its partner. 0 is no name, no value, and no question.
    most = int(sizes.max())
    order = source.random((len(sizes), NAMES_PER_PAIR * pairs)).argsort(1)
    names = order[:, : 2 * most].reshape(len(sizes), most, 2) + 1
    names *= np.arange(most)[:, None] < sizes[:, None, None]  # a smaller sequence has fewer
    values = source.integers(1, VALUES, names.shape, endpoint=True) * (names > 0)
    hubs = np.zeros_like(names[..., 0])
    hub_names = np.stack([names[..., 0], names[..., 1], hubs, hubs], axis=-1)
    name_rows = np.stack([names, 0 * names, values, values[..., ::-1]], axis=-1)  # last: answers
    joined = np.concatenate([name_rows.reshape(len(sizes), -1, 4), hub_names], axis=1)
    order = (source.random(joined.shape[:2]) + (joined[..., 0] == 0)).argsort(1)  # padding last
    mixed = torch.from_numpy(np.take_along_axis(joined, order[..., None], 1))
    return mixed[..., :3], mixed[..., 3]


def learning_curve(
    name: str, config: JatConfig | None, pairs: int, steps: int, seed: int
) -> list[dict[str, float]]:
    """Train one layer, and return now and then how often it is right about sequences of each size.

    Training sequences are drawn anew for each step, of all sizes: where all are of five pairs or
    more, it is hardly learned.
    """
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = PartnersReader(NAMES_PER_PAIR * pairs, config)
    optimizer = torch.optim.AdamW(parameter_groups(model, lr=2e-3, strength_lr=0.1))
    slower = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    source = np.random.default_rng([*b"learning", seed])
    sizes = np.arange(1, pairs + 1)
    test_sizes = np.resize(sizes, TESTED)
    test_ids, right = draw_sequences(test_sizes, pairs, np.random.default_rng([*b"test", 0]))
    asked = right > 0
    every = max(1, steps // POINTS)
    curve = list[dict[str, float]]()
    for step in track_progress(range(1, steps + 1), name, steps):
        ids, answer = draw_sequences(source.choice(sizes, BATCH), pairs, source)
        loss = F.cross_entropy(model(ids).flatten(0, 1), answer.flatten() - 1, ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        slower.step()
        if step % every == 0 or step == steps:
            with torch.no_grad():
                pieces = torch.split(test_ids, PIECE)
                said = torch.cat([model(ids).argmax(-1) + 1 for ids in pieces])
            curve.append({"step": step})
            for size in sizes:
                own = torch.from_numpy(test_sizes == size)
                hits = (said[own] == right[own])[asked[own]]
                curve[-1][f"accuracy_{size}"] = float(hits.float().mean())
    return curve


def chance(drawn: int) -> float:
    """Return the expected share of the commonest of so many values that are drawn independently."""
    # To guess it is all that is left to a model that sees the values and not whose they are.
    share = 0.0
    for most in range(drawn):  # the probability that no value is there more often than this
        series = Polynomial([1 / math.factorial(k) for k in range(most + 1)]) ** VALUES
        ways = math.factorial(drawn) * float(series.coef[drawn : drawn + 1].sum())
        share += (1 - ways / VALUES**drawn) / drawn
    return share


def draw_curves(
    curves: dict[str, list[dict[str, float]]], by_chance: dict[int, float], path: Path
) -> None:
    """Draw the share of right answers by step, a panel for each size."""
    columns = min(3, len(by_chance))
    rows = -(-len(by_chance) // columns)
    figure = new_figure(3.0 * columns + 0.6, 2.5 * rows + 0.9, heading="What one layer learns")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (size, lucky) in zip(axes, by_chance.items(), strict=False):
        for colour, (name, curve) in zip(COLOURS, curves.items(), strict=False):
            shares = [100 * point[f"accuracy_{size}"] for point in curve]
            axis.plot([p["step"] for p in curve], shares, "o-", ms=3, color=colour, label=name)
        axis.axhline(100 * lucky, color="#666666", ls=":", lw=1.0, label="the commonest value")
        axis.set_title(f"{size} pair{'s' * (size > 1)} of names", fontsize=9)
        axis.set(xlabel="steps", ylabel="right answers in percent", ylim=(0, 103))
        axis.grid(alpha=0.3)
    for axis in axes[len(by_chance) :]:
        axis.remove()
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    save_figure(figure, path)
