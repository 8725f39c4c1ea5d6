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

import argparse
import time

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from examples.byte_models import BYTES, bits_per_character, byte_parser, fit, load_bytes, say
from jat_graph import JatConfig, PairGraph, attention_graph
from models.jat_decoder import JatDecoder


def main() -> None:
    """Train both models, or say in one line what does not fit."""
    parser = byte_parser(__doc__, length=128, steps=600, batch_size=16, learning_rate=2e-3)
    parser.add_argument("--threshold", type=float, default=0.3, help="ρ (default: 0.3)")
    parser.add_argument("--key-step", type=int, default=8, help="every n-th votes (default: 8)")
    args = parser.parse_args()
    say("jat_decoder", lambda: run(args))


def run(args: argparse.Namespace) -> str:
    """Train and measure; return the results in one line."""
    jumps = JatConfig(
        graph=PairGraph(threshold=args.threshold, key_selection="strided", key_step=args.key_step),
        hop_weights=(0.5, 0.5),
        heads=2,
    )
    train, test = load_bytes(args.data_dir, args.length)
    results = []
    for name, config in (("base", None), ("jump", jumps)):
        start = time.perf_counter()
        torch.manual_seed(args.seed)
        model = JatDecoder(BYTES, config, channels=64, layers=2)
        fit(model, train, args, lambda optimizer, _, steps: CosineAnnealingLR(optimizer, steps))
        bits = bits_per_character(model, test, args.length)
        results.append(f"{name} {bits:.3f} bits a character, {time.perf_counter() - start:.0f} s")
    joined = density(model, test[: args.length].unsqueeze(0))
    return f"validation: {'; '.join(results)}; {joined:.0%} of pairs joined; seed {args.seed}"


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
