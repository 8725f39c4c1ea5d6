"""Options listed once, shared by several commands; from options to a config."""

import inspect
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
import typer
from typer.testing import CliRunner

from jat_graph.cli.options import EvalOptions, JatOptions, RunOptions, TripletOptions, gather
from jat_graph.config import JatConfig, PairGraph
from jat_graph.hf import TripletConfig
from jat_graph.training import TrainingOptions, evaluate


@dataclass(frozen=True)
class Colours:
    red: Annotated[int, typer.Option(help="How red.")] = 1
    name: Annotated[str | None, typer.Option("--title")] = None


def test_a_command_gets_its_own_options_and_the_shared_ones() -> None:
    seen: list[object] = []
    app = typer.Typer()

    @app.command()
    @gather(colours=Colours)
    def paint(
        wall: Annotated[str, typer.Option()], colours: Colours, coats: int = typer.Option(2)
    ) -> None:
        """Paint a wall."""
        seen.append((wall, colours, coats))

    run = CliRunner().invoke
    assert run(app, ["--wall", "north", "--red", "5", "--coats", "3"]).exit_code == 0
    assert run(app, ["--wall", "east", "--title", "rose"]).exit_code == 0
    assert seen == [("north", Colours(red=5), 3), ("east", Colours(name="rose"), 2)]
    shown = run(app, ["--help"]).output
    assert "How red." in shown
    assert "Paint a wall." in shown
    assert "--colours" not in shown
    assert run(app, ["--red", "5"]).exit_code == 2  # the wall is missing


def test_nothing_said_means_the_default() -> None:
    assert JatOptions().resolve() is None
    own = JatConfig(heads=2)
    assert JatOptions().resolve(own) is own


def test_fields_change_the_default() -> None:
    own = JatConfig(heads=2, seed=7)
    assert JatOptions(threshold=3.0).resolve(own) == JatConfig(
        PairGraph(threshold=3.0), heads=2, seed=7
    )
    assert JatOptions(threshold=3.0).resolve() == JatConfig(PairGraph(threshold=3.0))
    assert JatOptions(same_sign_only=False).resolve() == JatConfig()


@pytest.mark.parametrize(
    ("preset", "config"),
    [
        ("paper", JatConfig.paper()),
        ("released", JatConfig.released()),
        ("released-efficient", JatConfig.released(efficient=True)),
        ("stones", JatConfig.stones()),
    ],
)
def test_presets(preset: str, config: JatConfig) -> None:
    assert JatOptions(preset=preset).resolve(JatConfig(heads=1)) == config


def test_a_file_is_the_start_and_fields_change_it(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    JatConfig(PairGraph(threshold=((1.0, 2.0),)), heads=2, layers=(3,)).save(path)
    resolved = JatOptions(config=path, inclusive=True).resolve()
    assert resolved == JatConfig(
        PairGraph(threshold=((1.0, 2.0),), inclusive=True), heads=2, layers=(3,)
    )


@pytest.mark.parametrize(
    ("text", "heads"),
    [
        ("4", 4),
        ("all", "all"),
        ("even:2", "even:2"),
        ("0,3", (0, 3)),
        ("3,", (3,)),
        ("1, 2", (1, 2)),
    ],
)
def test_heads(text: str, heads: object) -> None:
    resolved = JatOptions(heads=text).resolve()
    assert resolved is not None
    assert resolved.heads == heads


def test_a_pattern_is_given_and_taken_off() -> None:
    own = JatConfig(pattern="window:4")
    assert JatOptions(pattern="window:8+global:1").resolve(own) == JatConfig(
        pattern="window:8+global:1"
    )
    assert JatOptions(pattern="none").resolve(own) == JatConfig()


def test_lists() -> None:
    resolved = JatOptions(hop_weights="0,0.5,-0.5", layers="0,2", key_seed=3).resolve()
    assert resolved == JatConfig(hop_weights=(0.0, 0.5, -0.5), layers=(0, 2), seed=3)
    assert JatOptions(layers="all").resolve(JatConfig(layers=(1,))) == JatConfig()


@pytest.mark.parametrize(
    ("text", "conv"),
    [
        ("GCNConv", {"layer": "GCNConv"}),
        ('{"layer": "APPNP", "K": 10, "alpha": 0.1}', {"layer": "APPNP", "K": 10, "alpha": 0.1}),
    ],
)
def test_layers_and_pruning(text: str, conv: Any) -> None:
    options = JatOptions(conv=text, max_neighbors=8, min_weight=0.1)
    assert options.resolve() == JatConfig(PairGraph(max_neighbors=8, min_weight=0.1), conv=conv)


@pytest.mark.parametrize(
    "default", [None, JatConfig(), JatConfig(PairGraph(threshold=3.0), seed=7)]
)
def test_stones_bring_their_own_defaults(default: JatConfig | None) -> None:
    own = {} if default is None or default.seed == 0 else {"threshold": 3.0, "seed": 7}
    resolved = JatOptions(graph="stones").resolve(default)
    assert resolved == JatConfig.paper(graph="stones", **own)
    assert resolved is not None
    assert resolved.threshold == own.get("threshold", 1.0)
    assert JatOptions(graph="pairs").resolve(resolved) == JatConfig.paper(**own)
    assert JatOptions(graph="stones", threshold=2.0).resolve(default) == JatConfig.paper(
        graph="stones", **own | {"threshold": 2.0}
    )


def test_a_config_with_one_field_changed_is_the_same_otherwise() -> None:
    for config in (JatConfig.stones(threshold=6.0, hops=2), JatConfig.released(seed=3)):
        assert JatOptions(heads="1").resolve(config) == replace(config, heads=1)
        assert JatOptions(graph=config.graph).resolve(config) == config


@pytest.mark.parametrize(
    ("text", "hops", "strength"),
    [
        ("learned", 1, "learned"),
        ("0.5", 2, 0.5),
        ("learned, learned, 0", 1, ("learned", "learned", 0.0)),
        ("1,1,0,-0.5,0,learned", 2, ((1.0, 1.0, 0.0), (-0.5, 0.0, "learned"))),
    ],
)
def test_strengths(text: str, hops: int, strength: Any) -> None:
    for graph in ("stones", "pairs"):
        resolved = JatOptions(graph=graph, strength=text, hops=hops).resolve()
        assert resolved == JatConfig.paper(graph=graph, strength=strength, hops=hops)


def test_stones_in_every_detail() -> None:
    options = JatOptions(
        preset="stones",
        incidence="hard",
        sides="positive",
        self_weight=0.5,
        excluded_token_ids="101,102",
    )
    assert options.resolve() == JatConfig.stones(
        incidence="hard", sides="positive", self_weight=0.5, excluded_token_ids=(101, 102)
    )
    assert JatOptions(standardize=True).resolve() == JatConfig(PairGraph(standardize=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (JatOptions(preset="bert"), "--preset must be one of paper, released, .* got 'bert'"),
        (JatOptions(heads="x"), "--heads must be whole numbers .* got 'x'"),
        (JatOptions(layers="0;1"), "--layers must be whole numbers"),
        (JatOptions(hop_weights="a"), "--hop-weights must be numbers"),
        (JatOptions(threshold=-1.0), "threshold"),
        (JatOptions(conv="{GCNConv"), "--conv must be a name or a JSON object, got '{GCNConv'"),
        (JatOptions(strength="much"), "--strength must be learned or numbers .* got 'much'"),
        (JatOptions(graph="stones", strength="1,2"), "strength must be three numbers"),
        (JatOptions(graph="stones", strength="1,1,0", hops=2), "for each of 2 hops"),
        (JatOptions(excluded_token_ids="[CLS]"), "--silent-tokens must be whole numbers"),
        (JatOptions(graph="hyper"), "graph must be one of pairs, stones, got 'hyper'"),
        (JatOptions(sides="positive"), "sides needs graph='stones', got 'positive'"),
        (JatOptions(config=Path("x"), preset="paper"), "exclude each other"),
    ],
)
def test_bad_values_are_named(options: JatOptions, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options.resolve()


def test_every_field_of_the_config_has_its_option() -> None:
    names = set(JatOptions.__dataclass_fields__) - {"config", "preset", "key_seed"} | {"seed"}
    assert names == set(JatConfig.__dataclass_fields__)


def test_every_field_of_a_run_has_its_option_and_default() -> None:
    plain = TrainingOptions(model="m", task="t", output_dir="o")
    own = {"model", "task", "output_dir", "data_dir"}
    said = {name: value for name, value in plain.to_dict().items() if name not in own}
    assert asdict(RunOptions()) == said | {"trainer": None, "strength_lr": None}


def test_options_of_eval_are_those_of_train_that_evaluation_takes() -> None:
    taken = {
        name: parameter.default
        for name, parameter in inspect.signature(evaluate).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name != "progress"
    }
    assert asdict(EvalOptions()) == taken
    trained = {field.name: field for field in fields(RunOptions)}
    for field in fields(EvalOptions):
        if field.name == "max_length":  # of the training, where nothing is said
            continue
        same = trained[field.name]
        kind, option = get_args(field.type)
        assert (kind, option.help) == (get_args(same.type)[0], get_args(same.type)[1].help)
        assert field.default == same.default


def test_triplet_heads() -> None:
    assert TripletOptions().resolve() is None
    assert TripletOptions(triplet="partner").resolve() == TripletConfig()
    assert TripletOptions(triplet="sum", triplet_heads=6, triplet_layers="0,2").resolve() == (
        TripletConfig(heads=6, layers=(0, 2), pairs="sum")
    )
    assert TripletOptions(triplet="max", triplet_layers="all").resolve() == TripletConfig(
        pairs="max"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (TripletOptions(triplet_heads=3), "--triplet-heads and --triplet-layers need --triplet"),
        (TripletOptions(triplet="all"), "pairs must be one of partner, sum, max, got 'all'"),
        (TripletOptions(triplet="sum", triplet_heads=4), "heads must be a multiple of 3, got 4"),
        (TripletOptions(triplet="sum", triplet_layers="a"), "--triplet-layers must be whole numb"),
    ],
)
def test_triplet_heads_that_cannot_be(options: TripletOptions, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options.resolve()
