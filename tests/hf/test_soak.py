"""Random models, heads, masks and numbers against the slow functions; a test's name is its seed.

A few run with all other tests. ``JAT_SOAK=3000 python -m pytest tests/hf/test_soak.py`` runs for
about an hour, and ``-k "[417]"`` with it repeats one.
"""

from __future__ import annotations

import math
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from jat_graph import JatConfig, attach
from jat_graph.hf import from_pretrained, save_pretrained
from tests.hf.causal import FAMILIES as DECODERS
from tests.hf.encoders import FAMILIES as ENCODERS
from tests.hf.encoders import TEXTS
from tests.hf.models import PAD, VOCABULARY, main_output, place, run
from tests.hf.test_patterns import RULES, rows_of
from tests.oracles import (
    masked_softmax,
    reference_jump_attention,
    reference_mask,
    reference_tree_attention,
    stone_attention,
)
from tests.support import HOPS, SELECTIONS, oracle_settings

TRIALS = int(os.environ.get("JAT_SOAK", "32"))
LENGTH, LONG, HEADS = 17, 30, 4  # LONG so that there are clusters of clusters
SILENT = tuple(range(3, 20))  # tokens that are no stones, every third
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools:UserWarning"),
]

WINDOWS = {"modernbert": (0,), "gemma3": (1,)}  # the layers that see all
OTHERS = ("t5", "bart", "whisper")  # heads refuse its biases; decoders that cross are below
CAUSAL = tuple(name for name in DECODERS if name not in (*OTHERS, "gemma3", "clip text"))
MASKED = ("bert", "roberta", "distilbert", "electra")
KINDS = {
    "pairs": (*(name for name in ENCODERS if name not in OTHERS), *MASKED * 4),
    "stones": tuple(name for name in ENCODERS if name not in OTHERS),
    "clusters": tuple(name for name in ENCODERS if name not in OTHERS),
    "causal pairs": CAUSAL,
    "causal stones": CAUSAL,
    "causal clusters": CAUSAL,
}


@dataclass
class Trial:
    """What a seed draws: a model, its heads, its inputs, and what is done to it."""

    seed: int
    draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.kind = self.draw.choice(list(KINDS))
        self.causal = self.kind.startswith("causal")
        self.family = self.draw.choice(KINDS[self.kind])
        self.valid, self.inputs = self._inputs()
        self.config = getattr(self, f"_{self.kind.split()[-1]}")()

    def model(self) -> Any:
        """Return the model without heads, in float64."""
        known = DECODERS if self.causal else ENCODERS
        built: Any = known[self.family]
        return (built if self.causal else built.build)().double().eval()

    def _inputs(self) -> tuple[Tensor | None, dict[str, Any]]:
        """Draw tokens and padding, or take the family's pixels or sounds."""
        rows = self.draw.randint(1, 3)
        if not self.causal and self.family not in TEXTS:
            inputs = ENCODERS[self.family].inputs((LENGTH,) * rows, "right")
            return None, {name: value.double() for name, value in inputs.items()}
        side = self.draw.choice(["left", "right"])
        longest = LONG if self.kind == "causal clusters" else LENGTH
        lengths = [self.draw.randint(1, longest) for _ in range(rows)]
        width = max(lengths) + self.draw.choice([0, 0, 3])
        mask = torch.zeros(rows, width, dtype=torch.bool)
        for row, length in enumerate(lengths):
            mask[row, place(length, width, side)] = True
        generator = torch.Generator().manual_seed(self.seed)
        ids = torch.randint(3, VOCABULARY, mask.shape, generator=generator).masked_fill(~mask, PAD)
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask.long()}
        if self.causal:
            inputs["use_cache"] = False
            if self.family != "opt":
                inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        return mask, inputs

    def _mask_pairs(self) -> None:
        """Draw which token may read which one, and how much it is inclined to."""
        assert self.valid is not None
        rows, length = self.valid.shape
        generator = torch.Generator().manual_seed(self.seed)
        pairs = torch.rand(rows, 1, length, length, generator=generator) < 0.7
        pairs |= torch.eye(length, dtype=torch.bool)
        self.valid, self.inputs["attention_mask"] = torch.ones_like(self.valid), pairs
        if self.draw.random() < 0.5:
            bias = torch.randn(pairs.shape, generator=generator, dtype=torch.float64)
            self.inputs["attention_mask"] = bias.masked_fill(~pairs, -math.inf)

    def pattern(self) -> Tensor | None:
        """Return the pairs of the pattern, which counts valid tokens only."""
        name = getattr(self.config, "pattern", None)
        if name is None or self.valid is None:
            return None
        return rows_of(name, self.valid)

    def stones(self) -> Tensor | None:
        """Return which tokens may be stones."""
        silent = self.config.excluded_token_ids
        if not silent:
            return None
        return ~torch.isin(self.inputs["input_ids"], torch.tensor(silent))[:, None]

    def _places(self) -> dict[str, Any]:
        """Draw heads and layers; a window of the model's own has no stones and no clusters."""
        heads = tuple(sorted(self.draw.sample(range(HEADS), self.draw.randint(1, HEADS))))
        layers = WINDOWS.get(self.family, self.draw.choice([None, (0,), (1,), (0, 1)]))
        layers = None if self.family == "albert" else layers  # one module serves all
        return {"heads": heads, "layers": layers}

    def _pairs(self) -> JatConfig:
        chosen: dict[str, Any] = {"threshold": self.draw.choice([0.2, 1.0, 4.0])}
        for name in ("same_sign_only", "normalize_keys", "inclusive"):
            chosen[name] = self.draw.random() < 0.3
        if self.causal:
            if self.draw.random() < 0.4:
                chosen |= {"key_selection": "strided", "key_step": self.draw.randint(1, 3)}
        else:
            chosen["key_selection"] = self.draw.choice(SELECTIONS)
            chosen["key_factor"] = self.draw.choice([0.3, 1.0, 2.5])
            if self.draw.random() < 0.3:
                del chosen["threshold"]
                chosen["vote_rate"] = self.draw.choice([0.05, 0.3])
        chosen["backend"] = self.draw.choice(["dense", "sparse", "auto", "threshold"])
        if chosen["backend"] in ("dense", "auto"):
            chosen["soft_temperature"] = self.draw.choice([None, 0.5])
        chosen["hop_weights"] = self.draw.choice(HOPS)
        if self.family in MASKED and self.draw.random() < 0.4:
            self._mask_pairs()
            chosen |= {"key_selection": "all", "vote_rate": None, "backend": "auto"}
        elif self.family in MASKED and self.draw.random() < 0.4:
            chosen["pattern"] = self.draw.choice(list(RULES))
        return JatConfig.paper(**chosen, **self._places(), seed=self.draw.randint(0, 9))

    def _stones(self) -> JatConfig:
        fixed = (self.draw.uniform(-0.5, 0.9), self.draw.uniform(-0.5, 0.9), self.draw.random())
        hops = self.draw.randint(1, 2)
        strength = self.draw.choice([fixed, ("learned",) * 3, ("learned", "learned", 0.0)])
        return JatConfig.stones(
            # Two tokens have scores of ±1, a causal second one of 2: ties, which rounding decides.
            threshold=self.draw.choice([0.5, 0.9, 1.7]),
            incidence=self.draw.choice(["excess", "hard"]),
            sides=self.draw.choice(["both", "positive"]),
            self_weight=self.draw.choice([0.0, 0.1, 1.0]),
            excluded_token_ids=SILENT if self.seed % 2 and self.valid is not None else (),
            hops=hops,
            strength=strength if hops == 1 else (strength,) * hops,
            **self._places(),
        )

    def _clusters(self) -> JatConfig:
        chosen: dict[str, Any] = {
            "keys": self.draw.randint(1, 6),
            "propagate": self.draw.random() < 0.7,
            "dense_below": 0,
            "groups": self.draw.randint(1, 2),
            "size": self.draw.randint(1, 2),
            "segment": self.draw.choice([2, 4, 8]),
            "window": self.draw.randint(1, 4),
        }
        return JatConfig.clustered(**chosen, **self._places())


def read(trial: Trial, layer: int, parts: Any, mask: Any, scale: float, learned: Any) -> Tensor:
    """Return what the heads of a layer read, by the slow functions: ``[B, H, L, Dv]``."""
    query, key, value = parts
    repeats = query.size(1) // key.size(1)
    key, value = (part.repeat_interleave(repeats, 1) for part in (key, value))
    seen = reference_mask(query, mask, trial.causal and mask is None)
    pattern = trial.pattern()
    visible = seen.visible if pattern is None else seen.visible & pattern
    rows = masked_softmax(scale * query @ key.mT + seen.bias, visible)
    plain, config = rows @ value, trial.config
    if config.layers is not None and layer not in config.layers:
        return plain
    heads: Any = getattr(config, "heads", None)
    heads = list(heads or range(HEADS))
    chosen = tuple(part[:, heads] for part in (query, key, value))
    function = globals()[f"read_{trial.kind.split()[-1]}"]
    found = function(trial, chosen, rows[:, heads], mask, scale, learned)
    return plain.index_copy(1, torch.tensor(heads), found)


def read_pairs(trial: Trial, parts: Any, rows: Tensor, mask: Any, scale: float, _: Any) -> Tensor:
    settings = oracle_settings(trial.config, rows.size(-1))
    settings |= {"hop_weights": trial.config.hop_weights, "scale": scale}
    pattern = trial.pattern()
    settings["pattern"] = None if pattern is None else pattern[:, list(trial.config.heads)]
    return reference_jump_attention(
        *parts, attention_mask=mask, is_causal=trial.causal and mask is None, **settings
    )


def read_stones(
    trial: Trial, parts: Any, rows: Tensor, mask: Any, scale: float, learned: Any
) -> Tensor:
    graph, size = trial.config.graph, (trial.config.hops, rows.size(1))
    own = dict(learned.named_parameters()).get("strength.theta")
    (triple, *_) = trial.config.strengths()  # which all hops share
    strength = torch.stack(
        [
            own[side] if number == "learned" else rows.new_full(size, number)
            for side, number in enumerate(triple)
        ]
    )
    return stone_attention(
        *parts,
        strength,
        threshold=graph.threshold,
        scale=scale,
        incidence=graph.incidence,
        sides=graph.sides,
        self_weight=graph.self_weight,
        stones=trial.stones(),
        valid=trial.valid,
        causal=trial.causal,
    )


def read_clusters(
    trial: Trial, parts: Any, rows: Tensor, mask: Any, scale: float, _: Any
) -> Tensor:
    graph = trial.config.graph
    settings = {name: getattr(graph, name) for name in ("keys", "groups", "size", "segment")}
    settings |= {"window": graph.window if trial.causal else 0, "rest": graph.propagate}
    if trial.valid is not None:
        settings["sequence"] = trial.valid.long() - 1
    return reference_tree_attention(*parts, causal=trial.causal, scale=scale, **settings)


def by_slow_functions(trial: Trial, attached: nn.Module) -> PreTrainedModel:
    """Return the model without heads, its attention what the slow functions say of these heads."""
    model, calls = trial.model(), []
    model.load_state_dict(attached.state_dict(), strict=False)
    names = {module: name for name, module in model.named_modules()}

    def slow(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any
    ) -> tuple[Tensor, None]:
        layer = len(calls) % model.config.num_hidden_layers
        calls.append(layer)
        learned = attached.get_submodule(names[module])
        output = read(trial, layer, (query, key, value), mask, kwargs["scaling"], learned)
        return output.transpose(1, 2), None

    AttentionInterface.register("slow", slow)
    AttentionMaskInterface.register("slow", eager_mask)
    model.set_attn_implementation("slow")
    return model


def learn(model: nn.Module, seed: int) -> None:
    """Give strengths numbers that they might have learned."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if name.endswith(".theta"):
            weight.data.copy_(torch.rand(weight.shape, generator=generator) - 0.2)


def outputs_and_gradients(
    trial: Trial, model: nn.Module, names: list[str]
) -> tuple[Tensor, list[Tensor | None]]:
    """Return what valid tokens get, and the gradients of a random sum of it."""
    output = main_output(model(**trial.inputs))
    output = output if trial.valid is None else output[trial.valid]
    generator = torch.Generator().manual_seed(trial.seed)
    weight = torch.randn(output.shape, generator=generator, dtype=output.dtype)
    leaves = [model.get_parameter(name) for name in names]
    return output, list(torch.autograd.grad((weight * output).sum(), leaves, allow_unused=True))


def compiled(model: nn.Module, trial: Trial) -> Any:
    torch._dynamo.reset()
    whole = getattr(getattr(trial.config, "graph", None), "backend", None) != "sparse"
    return torch.compile(model, backend="eager", fullgraph=whole)


def loaded(model: Any, folder: Path) -> Any:
    save_pretrained(model, folder)
    return from_pretrained(type(model), folder, dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(TRIALS))
def test_a_model_is_what_the_slow_functions_say(seed, tmp_path, monkeypatch):
    trial = Trial(seed)
    model = attach(trial.model(), trial.config)
    learn(model, seed)
    slow = by_slow_functions(trial, model)
    names = [name for name, _ in slow.named_parameters()]
    got, got_gradients = outputs_and_gradients(trial, model, names)
    want, want_gradients = outputs_and_gradients(trial, slow, names)
    assert_close(got, want, rtol=1e-8, atol=1e-8)
    for ours, theirs in zip(got_gradients, want_gradients, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    eager = run(model, trial.inputs)
    if trial.draw.random() < 0.3 and trial.family != "gemma3":  # its masks have no simple form
        assert_close(run(compiled(model, trial), trial.inputs), eager, rtol=1e-9, atol=1e-9)
    if trial.draw.random() < 0.3:
        assert_close(run(loaded(model, tmp_path), trial.inputs), eager, rtol=0, atol=1e-5)
    dtype = trial.draw.choice([torch.float32, torch.bfloat16, torch.float16])
    check_rounded(trial, model, dtype, monkeypatch)


def check_rounded(
    trial: Trial, model: Any, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare what each layer makes of its rounded queries, keys and values.

    Where rounding decides a vote a row may differ, so that the middle row is judged.
    """
    calls: list[tuple[Any, ...]] = []
    name = model.config._attn_implementation
    inner = ALL_ATTENTION_FUNCTIONS[name]

    def spy(module: nn.Module, *call: Any, **kwargs: Any) -> Any:
        output = inner(module, *call, **kwargs)
        calls.append((module, call, kwargs["scaling"], output[0].transpose(1, 2)))
        return output

    monkeypatch.setitem(type(ALL_ATTENTION_FUNCTIONS)._global_mapping, name, spy)
    inputs = {
        name: value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in trial.inputs.items()
    }
    run(model.to(dtype), inputs)
    model.double()
    assert len(calls) == model.config.num_hidden_layers
    for layer, (module, call, scale, got) in enumerate(calls):
        query, key, value, mask = (None if x is None else x.detach() for x in call[:4])
        parts = tuple(part.double() for part in (query, key, value))
        with torch.no_grad():
            want = read(trial, layer, parts, mask, scale, module)
        assert bool(got.isfinite().all())
        if trial.valid is not None:
            got, want = (x.transpose(1, 2)[trial.valid] for x in (got, want))
        distance = (got - want).norm(dim=-1) / want.norm(dim=-1)
        assert distance.median() < 40 * torch.finfo(dtype).eps, f"layer {layer}: {distance}"
