"""Encoders along trees, without causal order, against clusters of queries at equal time.

``python -m examples.encoder_trees pieces`` lets all-MiniLM-L6-v2, its table of positions stretched,
read meetings, articles and Wikipedia; ``recall`` trains a small ModernBERT, whose positions are
rotary, to tell values that stand far away, and lets it read in each way; ``answers MODEL DATA squad 300`` lets a
model that was trained on questions answer them. A line of JSON for each result.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModel,
    ModernBertConfig,
    ModernBertForTokenClassification,
)
from transformers.masking_utils import sdpa_mask

from examples import run_question_answering
from examples.long_inputs import MINILM, load
from examples.real_decoders import read_texts
from jat_graph.clusters.attend import kernel_for
from jat_graph.clusters.choice import Nodes, Rule, empty_choice
from jat_graph.clusters.tree import grow, new_tree
from jat_graph.hf import register_clustered

CLUSTERS = ("keys=16", "keys=32", "keys=64", "keys=128", "keys=256")
TREES = (
    "keys=64,groups=8,size=8,segment=512,margin=3",
    "keys=128,groups=16,size=8,segment=512,margin=4",
    "keys=128,groups=8,size=16,segment=512,margin=3",
    "keys=256,groups=16,size=16,segment=512,margin=4",
)


def register(name: str) -> str:
    """Make a name known to transformers: ``sdpa``, ``clustered:…`` or ``tree:…``."""
    kind, _, words = name.partition(":")
    given = {key: float(value) for key, value in (x.split("=") for x in words.split(",") if x)}
    whole = {key: int(value) for key, value in given.items() if key != "margin"}
    if kind == "clustered":
        return register_clustered(**whole, dense_below=0)
    if kind == "tree":
        rule = Rule(**whole, margin=given["margin"], causal=False)

        def attend(
            module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any
        ) -> tuple[Tensor, None]:
            output = torch.zeros_like(value)
            for item, parts in enumerate(zip(query, key, value, strict=True)):
                valid = slice(None) if mask is None else mask[item, 0].any(0)
                q, k, v = (x[:, valid].float().contiguous() for x in parts)
                output[item][:, valid] = read(q, k, v, rule, more["scaling"]).to(output.dtype)
            return output.transpose(1, 2), None

        AttentionInterface.register(name, attend)
        AttentionMaskInterface.register(name, sdpa_mask)
    return name


def read(query: Tensor, key: Tensor, value: Tensor, rule: Rule, scale: float) -> Tensor:
    """Return what the tokens of one text read along the tree of all its keys."""
    tree = grow(new_tree(rule.size, rule.segment), key)
    choice, nodes = empty_choice(query, key.size(1), tree, rule), Nodes.of(tree, key, value)
    kernel = kernel_for(query.device)
    return kernel.read(query * scale, key, value, choice, nodes, chosen=False)[0]


def timed(forwards: dict[str, Any], rounds: int) -> dict[str, float]:
    """Return the median ratio of CPU seconds to those of the first, in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in forwards}
    for _ in range(rounds):
        for name, forward in forwards.items():
            start = time.process_time()
            forward()
            seconds[name].append(time.process_time() - start)
    first = seconds[next(iter(forwards))]
    return {
        name: statistics.median(a / b for a, b in zip(own, first, strict=True))
        for name, own in seconds.items()
    }


def texts(data: Path, tokenizer: Any, length: int, number: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the beginnings of texts of each kind that are long enough."""
    for kind in ("wikitext2", "qmsum", "covidqa"):
        found = 0
        for text in read_texts(kind, data):
            ids = tokenizer(text[: 10 * length], verbose=False)["input_ids"][:length]
            if len(ids) == length and found < number:
                found += 1
                yield kind, torch.tensor([ids])


@torch.inference_mode()
def pieces(data: Path, lengths: list[int], number: int = 1) -> Iterator[dict[str, Any]]:
    """Compare states of MiniLM with those on SDPA."""
    names = ["sdpa", *(f"clustered:{x}" for x in CLUSTERS), *(f"tree:{x}" for x in TREES)]
    for length in lengths:
        model, tokenizer = load(MINILM, length)
        given = list(texts(data, tokenizer, length, number))
        wanted, forwards = [model(ids).last_hidden_state for _, ids in given], {}
        for name in names:
            known = register(name)
            model.set_attn_implementation(known)
            cosines: dict[str, list[float]] = {}
            for (kind, ids), right in zip(given, wanted, strict=True):
                states = model(ids).last_hidden_state
                own = cosines.setdefault(kind, [])
                own.append(torch.cosine_similarity(states, right, dim=-1).mean().item())

            def forward(known: str = known) -> None:
                model.set_attn_implementation(known)
                model(given[0][1])

            forwards[name] = forward
            found = {kind: statistics.mean(own) for kind, own in cosines.items()}
            yield {"length": length, "name": name, "cosine": found}
        yield {"length": length, "time": timed(forwards, 7)}


NAMES, WORDS, VALUES, TOLD = 32, 16, 8, 8


def sequences(batch: int, length: int, source: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Draw texts: names with values, anywhere in the first three quarters; they are asked at the end."""
    first = torch.randint(NAMES, NAMES + WORDS, (batch, length), generator=source)
    value, labels = torch.zeros_like(first), torch.full_like(first, -100)
    for row in range(batch):
        names = torch.randperm(NAMES, generator=source)[:TOLD]
        values = torch.randint(VALUES, (TOLD,), generator=source)
        places = torch.randperm(length * 3 // 4, generator=source)[:TOLD]
        first[row, places], value[row, places] = names, 1 + values
        order = torch.randperm(TOLD, generator=source)
        first[row, -TOLD:], labels[row, -TOLD:] = names[order], values[order]
    return first, value, labels


class Reader(nn.Module):
    """A small ModernBERT, all of whose layers see everything; a token is a name and its value."""

    def __init__(self) -> None:
        super().__init__()
        config = ModernBertConfig(
            vocab_size=2, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=128, max_position_embeddings=4096, global_attn_every_n_layers=1,
            num_labels=VALUES, pad_token_id=None, bos_token_id=None, eos_token_id=None,
            cls_token_id=None, sep_token_id=None, attn_implementation="sdpa",
            initializer_range=0.1,
        )  # fmt: skip
        self.model = ModernBertForTokenClassification(config)
        self.names, self.values = nn.Embedding(NAMES + WORDS, 64), nn.Embedding(VALUES + 1, 64)
        for table in (self.names, self.values):
            nn.init.normal_(table.weight, std=0.3)

    def forward(self, first: Tensor, value: Tensor, labels: Tensor | None = None) -> Any:
        return self.model(inputs_embeds=self.names(first) + self.values(value), labels=labels)


def trained(seed: int) -> Reader:
    """Return a reader that tells values, at up to 4096 tokens."""
    torch.manual_seed(seed)
    reader = Reader()
    source = torch.Generator().manual_seed(seed)
    tune = torch.optim.AdamW(reader.parameters(), 2e-3, weight_decay=0.0)
    plan = [(64, 32, 200), (256, 16, 60), (1024, 4, 40), (4096, 1, 40)]
    for length, batch, steps in plan:
        for step in range(steps):
            loss = reader(*sequences(batch, length, source)).loss
            tune.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
            tune.step()
            if step % 50 == 0:
                print(f"{length} {step} {loss.item():.3f}", file=sys.stderr, flush=True)
    return reader.eval()


def recall(seed: int, tests: int = 12) -> Iterator[dict[str, Any]]:
    """Let the trained model tell values in each way."""
    reader = trained(seed)
    model = reader.model
    for length in (1028, 4100):
        source = torch.Generator().manual_seed(1000 + seed)
        asked, forwards = [sequences(1, length, source) for _ in range(tests)], {}
        names = ["sdpa", *(f"clustered:{x}" for x in CLUSTERS), *(f"tree:{x}" for x in TREES)]
        for name in names:
            known, hits = register(name), []
            model.set_attn_implementation(known)
            with torch.inference_mode():
                for first, value, labels in asked:
                    said = reader(first, value).logits.argmax(-1)
                    hits.append((said == labels)[labels >= 0].float().mean().item())

            @torch.inference_mode()
            def forward(known: str = known) -> None:
                model.set_attn_implementation(known)
                reader(*asked[0][:2])

            forwards[name] = forward
            yield {"seed": seed, "length": length, "name": name, "right": statistics.mean(hits)}
        yield {"seed": seed, "length": length, "time": timed(forwards, 5)}


SHORT = (  # for texts of some hundred tokens
    "sdpa",
    "clustered:keys=8,block=16",
    "clustered:keys=16,block=16",
    "clustered:keys=32,block=16",
    "clustered:keys=32,block=32",
    "clustered:keys=64,block=32",
    "tree:keys=16,groups=4,size=4,segment=64,margin=2",
    "tree:keys=32,groups=8,size=4,segment=64,margin=3",
    "tree:keys=32,groups=8,size=8,segment=64,margin=3",
    "tree:keys=64,groups=8,size=8,segment=128,margin=4",
)


def answers(path: str, data: str, task: str, number: int) -> Iterator[dict[str, Any]]:
    """Let a model that was trained densely answer questions in each way, with the same windows."""
    length, stride = (384, 128) if task == "squad" else (1024, 256)
    model, forwards = AutoModel.from_pretrained(path).eval(), {}
    ids = torch.randint(
        1000, 20_000, (2, min(length, 704)), generator=torch.Generator().manual_seed(0)
    )
    for name in SHORT:
        known = register(name)
        with tempfile.TemporaryDirectory() as folder:
            scores = run_question_answering.main(
                f"--task_name {task} --data_dir {data} --do_eval --model_name_or_path {path} "
                f"--output_dir {folder} --attn_implementation {known} --use_cpu "
                f"--max_length {length} --doc_stride {stride} --max_eval_samples {number} "
                "--per_device_eval_batch_size 8".split()
            )
        yield {"task": task, "name": name, "f1": scores["eval_f1"], "questions": number}

        @torch.inference_mode()
        def forward(known: str = known) -> None:
            model.set_attn_implementation(known)
            model(ids)

        forwards[name] = forward
    yield {"task": task, "time": timed(forwards, 5)}


def main() -> None:
    """Write what is found to the standard output."""
    torch.set_num_threads(1)
    part, *more = sys.argv[1:]
    if part == "pieces":
        found = pieces(Path(more[0]), [int(x) for x in more[1:]])
    elif part == "answers":
        found = answers(*more[:3], int(more[3]))
    else:
        found = recall(int(more[0]))
    for result in found:
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
