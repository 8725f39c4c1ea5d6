"""Train a character-level language model on Tiny Shakespeare, with jump heads and without.

``python -m examples.jat_decoder --data-dir DIR`` trains both models on the same pieces of the first
nine tenths of the text, in the same order, and prints one line: the bits that each needs for a
character of the rest, read in pieces of the length it was trained on, and how many pairs of tokens
the jump heads join there.

Scores of a model that is trained from scratch start near 0, where the paper's threshold of 6 joins
nothing, and a decoder cannot take its threshold from the whole sequence (``vote_rate`` would look
ahead). So the threshold is a small number. The keys that vote are every eighth token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from examples.byte_models import BYTES, ByteOptions, load_bytes, train
from examples.options import example, option
from jat_graph import JatConfig, PairGraph, attention_graph
from models.jat_decoder import JatDecoder


@dataclass
class Options(ByteOptions):
    """What is asked for."""

    length: int = option("bytes of a piece", 128)
    steps: int = 600
    batch_size: int = 16
    learning_rate: float = 2e-3
    threshold: float = option("ρ", 0.3)
    key_step: int = option("every n-th token is a key that votes", 8)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train and measure; yield the result in one line."""
    graph = PairGraph(threshold=args.threshold, key_selection="strided", key_step=args.key_step)
    jumps, results = JatConfig(graph=graph, hop_weights=(0.5, 0.5), heads=2), []
    for name, config in (("base", None), ("jump", jumps)):
        model, said = train(
            lambda config=config: JatDecoder(BYTES, config, channels=64, layers=2),
            args,
            lambda optimizer, _, steps: CosineAnnealingLR(optimizer, steps),
        )
        results.append(f"{name} {said}")
    _, test = load_bytes(args.data_dir, args.length)
    joined = density(model, test[: args.length].unsqueeze(0))
    yield f"validation: {'; '.join(results)}; {joined:.0%} of pairs joined; seed {args.seed}"


@torch.no_grad()
def density(model: JatDecoder, tokens: Tensor) -> float:
    """Return the share of pairs of tokens that a vote joins, over all jump heads."""
    edges = pairs = 0

    def look(attention: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        nonlocal edges, pairs
        query, key, _ = attention.project(inputs[0], inputs[0])
        query, key = (heads[:, attention.jump_heads] for heads in (query, key))  # [B, J, L, D]
        graph = attention_graph(query, key, config=attention.config, is_causal=True)
        edges += graph.num_edges
        pairs += query.size(0) * query.size(1) * query.size(2) * (query.size(2) - 1) // 2

    hooks = [layer.attention.register_forward_pre_hook(look) for layer in model.layers]
    model(tokens)
    for hook in hooks:
        hook.remove()
    return edges / pairs


if __name__ == "__main__":
    main()
