"""Train small decoders from scratch: on characters, on words, or on facts to be recalled.

``python -m examples.decoders --task characters --data-dir DIR --output OUT`` trains a Llama of four
layers, one a seed, and writes them with safetensors into folders of ``OUT``; a model that is
there is not trained again. ``--keys 16 --block 16`` trains them with clusters from the start.
``python -m examples.decoder_reading`` lets them read fewer keys.

Sequences are short at first and longer at last, as tokens of long ones cost more. The recipe is
made for one processor core and minutes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM
from transformers.masking_utils import sdpa_mask

from examples.byte_models import one_cycle
from examples.options import example, option
from examples.sweeps.small_models import character_tokenizer, word_tokenizer
from examples.tasks import get_task
from examples.tasks.needle import IGNORED, LONGEST, VOCABULARY, draw_training
from jat_graph import clustered_attention
from jat_graph.files import write_text


class Batch(NamedTuple):
    """Tokens, what each is to say next (-100: nothing), and positions, ``[B, L]`` each."""

    tokens: Tensor
    targets: Tensor
    positions: Tensor


Draw: TypeAlias = Callable[[int, int], Batch]  # sequences and their tokens -> a batch
# Query, key, value and scale -> output.
Reading: TypeAlias = Callable[[Tensor, Tensor, Tensor, float], Tensor]


class Recipe(NamedTuple):
    """What a model is, and how long it learns from sequences of which length."""

    stages: tuple[tuple[int, int, int], ...]  # steps, sequences of a batch, their tokens
    rate: float = 3e-3
    features: int = 128
    layers: int = 4
    tied: bool = True
    theta: float = 1e4  # of rotary positions


RECIPES = {
    "characters": Recipe(((1000, 8, 256), (200, 2, 1024))),
    "characters-1024": Recipe(((500, 2, 1024),)),
    "words": Recipe(((400, 1, 4096),)),
    "needle": Recipe(((400, 64, 32), (200, 16, 256), (60, 2, 2048)), 3e-3, 64, 2, False, 1e8),
}
FURTHER = {  # the lengths at which models are to read need steps of their own
    "characters": Recipe(((300, 2, 1024),), 1e-3),
    "needle": Recipe(((60, 1, 8192),), 1e-3, 64, 2, False, 1e8),
}


@dataclass
class Options:
    """What is asked for."""

    task: str = option(", ".join(RECIPES))
    output: Path = option("folder for the models")
    data_dir: Path | None = option("folder with Tiny Shakespeare and WikiText-2", None)
    start: Path | None = option("folder of models to train further, at full length", None)
    seeds: int = 3
    keys: int | None = option("train with clusters of this many best keys", None)
    block: int = option("tokens in the blocks of clusters", 16)


@example(Options)
def main(args: Options) -> Iterator[str]:
    """Train a model a seed; yield a line for each."""
    recipes = RECIPES if args.start is None else FURTHER
    if args.task not in recipes:
        raise ValueError(f"task must be one of {', '.join(recipes)}, got {args.task!r}")
    name = args.task if args.keys is None else f"{args.task}-clusters-{args.keys}-{args.block}"
    for seed in range(args.seeds):
        folder = args.output / f"{name}-{seed}"
        if not (folder / "run.json").exists():
            run = train(args, recipes[args.task], seed, folder)
            write_text(folder / "run.json", json.dumps(run) + "\n")
        yield (folder / "run.json").read_text("utf-8").strip()


def read_texts(task: str, data_dir: Path | None) -> tuple[Any, Tensor, Tensor]:
    """Return a tokenizer, and the tokens to train and to test on.

    Characters are those of Tiny Shakespeare, of which the last tenth is held out. The words of
    WikiText-2 are those of its validation articles, as its training articles are seldom at hand,
    and the test articles are held out; one that is there fewer than three times is unknown.
    """
    if task.startswith("characters"):
        splits = get_task("tinyshakespeare").load(data_dir)
        texts = [splits[name]["text"][0] for name in ("train", "validation")]
        tokenizer = character_tokenizer(texts[:1])
    else:
        splits = get_task("wikitext2").load(data_dir)
        own = [*splits["train"]["text"], *splits["validation"]["text"]]
        texts = ["\n".join(articles) for articles in (own, splits["test"]["text"])]
        tokenizer = word_tokenizer(texts[:1], seen=3)
    found = (tokenizer(x, add_special_tokens=False, verbose=False)["input_ids"] for x in texts)
    train, test = map(torch.tensor, found)
    return tokenizer, train, test


def cut(text: Tensor, starts: Tensor, length: int) -> Batch:
    """Cut pieces out of a text; each token is to say the next one."""
    pieces = text[starts.unsqueeze(-1) + torch.arange(length + 1)]
    positions = torch.arange(length).expand(len(starts), length)
    return Batch(pieces[:, :-1], pieces[:, 1:], positions)


def train(args: Options, recipe: Recipe, seed: int, folder: Path) -> dict[str, Any]:
    """Train one model and save it; return what there is to say of it."""
    start = time.perf_counter()
    torch.manual_seed(seed)
    if args.task == "needle":
        size, draw = VOCABULARY, lambda batch, length: Batch(*draw_training(batch, length))
    else:
        tokenizer, text, _ = read_texts(args.task, args.data_dir)
        size, draw = (
            len(tokenizer),
            lambda batch, length: cut(text, torch.randint(len(text) - length, (batch,)), length),
        )
        tokenizer.save_pretrained(folder)
    if args.start is None:
        model = LlamaForCausalLM(config_of(recipe, size))
    else:
        model = LlamaForCausalLM.from_pretrained(args.start / folder.name)
    if args.keys is not None:
        set_reading(model, by_clusters(args.keys, args.block))
    losses = fit(model, recipe, draw)
    model.save_pretrained(folder)
    seconds = round(time.perf_counter() - start)
    own = {"task": args.task, "seed": seed, "keys": args.keys, "block": args.block}
    return own | {"seconds": seconds, "train_losses": losses}


def config_of(recipe: Recipe, vocabulary: int) -> LlamaConfig:
    """Return the configuration of a model, whose heads have 32 features."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=recipe.features,
        intermediate_size=recipe.features * 8 // 3,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.features // 32,
        max_position_embeddings=LONGEST,
        rope_parameters={"rope_type": "default", "rope_theta": recipe.theta},
        tie_word_embeddings=recipe.tied,
        bos_token_id=None,
        eos_token_id=None,
    )


def fit(model: LlamaForCausalLM, recipe: Recipe, draw: Draw) -> list[float]:
    """Train as the recipe says; return the mean loss of each twentieth of the steps."""
    plan = [stage[1:] for stage in recipe.stages for _ in range(stage[0])]
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.rate, betas=(0.9, 0.95))
    rates, seen = one_cycle(optimizer, recipe.rate, len(plan)), []
    for batch, length in plan:
        logits, targets = say(model, draw(batch, length))
        loss = F.cross_entropy(logits, targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rates.step()
        seen.append(loss.item())
    return [round(float(part.mean()), 4) for part in torch.tensor(seen).chunk(20)]


def say(model: LlamaForCausalLM, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return logits and targets of the tokens that are to say something, in order."""
    states = model.model(
        input_ids=batch.tokens,
        attention_mask=torch.ones_like(batch.tokens),  # or steps of positions would mean documents
        position_ids=batch.positions,
        use_cache=False,
    ).last_hidden_state
    asked = batch.targets != IGNORED
    return model.lm_head(states[asked]), batch.targets[asked]


def by_clusters(keys: int, block: int) -> Reading:
    """Read by clusters."""
    settings: dict[str, Any] = {"keys": keys, "block": block, "dense_below": 0, "is_causal": True}
    return lambda q, k, v, scale: clustered_attention(q, k, v, scale=scale, **settings)


def set_reading(model: LlamaForCausalLM, read: Reading) -> None:
    """Let all layers read in another way; sequences have one length, and there is no cache."""

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **more: Any
    ) -> tuple[Tensor, None]:
        return read(query, key, value, more["scaling"]).transpose(1, 2), None

    AttentionInterface.register("decoders", attend)
    AttentionMaskInterface.register("decoders", sdpa_mask)
    model.set_attn_implementation("decoders")


if __name__ == "__main__":
    main()
