"""Draw the attention of a layer on a sentence before and after its heads jump.

``python -m examples.attention_changes --model PATH --output changes.png`` shows the sixth layer on
the sentence of the JAT paper's Figure 5. A model that was saved with jump heads keeps them; in any
other all heads jump. Rows are the words that look; special tokens take part, and are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer

from examples.options import example, option
from examples.sentence_graph import calibrated
from examples.training import saved_heads
from jat_graph import from_pretrained
from jat_graph.hf import attached_config
from jat_graph.inspection import view_head
from jat_graph.viz import save_figure


@dataclass
class Options:
    """What is asked for."""

    model: str = option("folder or Hub name of a pretrained model")
    output: Path = option("PNG file to write")
    sentence: str = option("of Figure 5", "A friend of John hit the dog, then the dog bite Kate.")
    layer: int = option("layer, from 0", 5)
    head: int | None = option("head, from 0 (default: the mean of all that jump)", None)
    density: float = option("pairs to join, where the model has no jump heads", 0.2)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Draw what is asked for; yield the pair that gains most."""
    words, before, after = look(args.model, args.sentence, args.layer, args.head, args.density)
    save_figure(draw(words, before, after), args.output)
    row, column = divmod(int((after - before).argmax()), len(words))
    change = f"{before[row, column]:.3f} to {after[row, column]:.3f}"
    yield f"{words[row]!r} looks at {words[column]!r} more than before: {change}"


def look(
    model: str, sentence: str, layer: int, head: int | None, density: float
) -> tuple[list[str], Tensor, Tensor]:
    """Return the words, and one head's attention before and after, or the jump heads' mean."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    has_heads = saved_heads(AutoConfig.from_pretrained(model))
    loaded = (
        from_pretrained(AutoModel, model) if has_heads else calibrated(model, sentence, density)
    )
    config = attached_config(loaded.eval())
    if config is None:
        raise ValueError(f"model {model} must have jump heads or none, got others")
    jumping = config.head_indices(loaded.config.num_attention_heads)
    views = [
        view_head(loaded, tokenizer, sentence, layer=layer, head=index, special_tokens=True)
        for index in (jumping if head is None else (head,))
    ]
    before = torch.stack([view.scores.softmax(-1) for view in views]).mean(0)
    after = before + torch.stack([view.gains for view in views]).mean(0)
    names = [token.text for token in views[0].tokens]
    shown = [at for at, name in enumerate(names) if name not in tokenizer.all_special_tokens]
    return [names[at] for at in shown], before[shown][:, shown], after[shown][:, shown]


def draw(words: list[str], before: Tensor, after: Tensor) -> Figure:
    """Draw both matrices on one scale, and their difference, whose largest entry has a ring."""
    side, change = max(2.0, 0.13 * len(words)), after - before
    figure = Figure(figsize=(3 * side + 0.8, side + 1.4), layout="constrained")
    top, most = float(torch.stack([before, after]).max()), float(change.abs().max())
    axes: Any = figure.subplots(1, 3)
    axes[0].imshow(before.numpy(), cmap="Blues", vmin=0, vmax=top)
    axes[1].imshow(after.numpy(), cmap="Blues", vmin=0, vmax=top)
    axes[2].imshow(change.numpy(), cmap="PuOr_r", vmin=-most, vmax=most)
    names = "before the jump", "after the jump", "difference (ring: largest gain)"
    for axis, name in zip(axes, names, strict=True):
        figure.colorbar(axis.images[0], ax=axis, label="probability", location="bottom")
        axis.set(title=name, xlabel="token looked at")
        axis.set_xticks(range(len(words)), words, rotation=90)
        axis.set_yticks(range(len(words)), words if axis is axes[0] else [])
    axes[0].set_ylabel("token that looks")
    row, column = divmod(int(change.argmax()), len(words))
    axes[2].plot(column, row, "o", ms=9, mfc="none", mec="#d81b60", mew=1.6)
    return figure


if __name__ == "__main__":
    main()
