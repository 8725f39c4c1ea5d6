"""``model``: a whole training step with jump heads against the same model on stock SDPA."""

from __future__ import annotations

from functools import partial

from jat_graph.config import JatConfig
from jat_graph.lab.speed.inputs import NUM_HEADS, THRESHOLD
from jat_graph.lab.speed.series import Bar, Benchmark, Fact, Outcome, Series, Settings
from jat_graph.lab.speed.training_step import JUMP_LAYERS, build_steps, check_steps

STOCK = "stock SDPA"
JAT, EFFICIENT = "JAT, all keys", "JAT†, significance"
SELECTIONS = {JAT: "all", EFFICIENT: "significance"}
LENGTHS: dict[str, dict[str, tuple[int, ...]]] = {
    "cpu": {JAT: (128, 512), EFFICIENT: (512, 4096)},
    "cuda": {JAT: (512,), EFFICIENT: (512, 4096, 8192, 16384, 32768, 65536)},
}
LONGEST = {JAT: 4096, EFFICIENT: 65536}
DROPOUT = 0.1
UNFUSED = "not meaningful: with dropout, SDPA on the CPU is not fused and several times slower"


def model_series(settings: Settings) -> tuple[Series, ...]:
    """Both kinds of jump heads, without attention dropout and with it."""
    lengths = LENGTHS[settings.device]
    series = []
    for dropout in (0.0, DROPOUT):
        for what, selection in SELECTIONS.items():
            fused = dropout == 0 or settings.device == "cuda"
            measure = partial(_measure, what=what, selection=selection, dropout=dropout)
            series.append(
                Series(
                    step_name(what, dropout),
                    STOCK,
                    lengths[what] if dropout == 0 else lengths[what][:1],
                    LONGEST[what] if fused else 512,  # unfused, each layer keeps L×L
                    measure,
                )
            )
    return tuple(series)


def step_name(what: str, dropout: float = 0.0) -> str:
    """Name our side of a comparison."""
    return f"{what}, attention dropout {dropout:g}"


def _measure(length: int, settings: Settings, what: str, selection: str, dropout: float) -> Outcome:
    name = f"{step_name(what, dropout)}, L={length}"
    config = JatConfig(
        threshold=THRESHOLD,
        heads=NUM_HEADS,
        layers=tuple(range(JUMP_LAYERS)),
        key_selection=selection,
    )
    jump, stock = build_steps(length, settings, config, dropout)
    work = check_steps(name, jump, stock, config)
    work.announce(name)
    timing = settings.time([jump.run], [stock.run])
    note = UNFUSED if dropout > 0 and settings.device == "cpu" else ""
    facts: dict[str, Fact] = {**work.facts, "sequences": len(jump.batch["labels"])}
    return Outcome.of(timing, facts, note)


MODEL = Benchmark(
    name="model",
    claim=(
        "A whole training step of a RoBERTa-base for classification, forward, backward and AdamW: "
        f"{NUM_HEADS} jump heads in the first {JUMP_LAYERS} layers against the same model and "
        "weights on stock SDPA. Weights are random, with queries of the jump heads scaled."
    ),
    series=model_series,
    bars=(
        Bar("cpu", step_name(JAT), "", 128, 128, 1.08),
        Bar("cpu", step_name(JAT), "", 512, 512, 1.15),
        Bar("cpu", step_name(EFFICIENT), "", 512, 512, 1.06),
        Bar("cpu", step_name(EFFICIENT), "", 4096, 4096, 1.08),
        Bar("cuda", step_name(JAT), "", 512, 512, 1.30),
        Bar("cuda", step_name(EFFICIENT), "", 512, 512, 1.10),
        Bar("cuda", step_name(EFFICIENT), "", 4096, 65536, 1.08),
    ),
)
