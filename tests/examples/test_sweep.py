"""Sweeps: their files, a run of two of each kind, what goes on, and what is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from examples import report
from examples import sweep as script
from examples.report import numbers
from examples.sweeps.definition import FOLDER, Run, Sweep, Variant, parse_sweep, read_sweep
from examples.sweeps.heads import build_heads, resolve_depth, scale_count, scale_layers
from examples.sweeps.store import Results, read_results
from examples.sweeps.training import scores_of
from jat_graph import JatConfig

DOCS = Path(__file__).resolve().parents[2] / "docs" / "experiments"
FILES = sorted([*FOLDER.glob("*.toml"), *DOCS.glob("*.toml")])
PAIRS = {
    "name": "mine",
    "title": "Two kinds of heads",
    "kind": "partners",
    "tasks": ["1 layer, 2 pairs"],
    "seeds": 1,
    "study": {"steps": 4, "every": 2, "batch_size": 8},
    "variants": [{"name": "plain"}, {"name": "stones", "heads": "stones"}],
}
TEXTS = {
    "name": "mine",
    "title": "Jump heads on made-up texts",
    "tasks": ["agreement"],
    "seeds": 1,
    "options": {
        "num_train_epochs": 1,
        "max_length": 32,
        "max_train_samples": 16,
        "max_eval_samples": 8,
    },
    "variants": [{"name": "base"}, {"name": "paper", "heads": "paper", "settings": {"heads": 2}}],
}


def made(base: Mapping[str, Any], **changes: Any) -> Sweep:
    return parse_sweep({**base, **changes}, "test")


def run_small(
    name: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    model: str | None = None,
    data_dir: Path | None = None,
    **changes: Any,
) -> tuple[Results, str]:
    """Run a sweep of the folder with some changes, and draw it; return its results and report."""
    sweep = made(read_sweep(name).model_dump(exclude_unset=True), **changes)
    results = script.run_sweep(sweep, folder, model=model, data_dir=data_dir)
    capsys.readouterr()
    report.main([str(folder / script.RESULTS), "--figure", str(folder / "figure.png")])
    return results, capsys.readouterr().out


def scores(results: Results) -> dict[tuple[str, str, int], Any]:
    return {record.key: record.scores for record in results.records}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_sweep_can_be_run_on_a_model_of_twelve_layers(path: Path) -> None:
    sweep = read_sweep(str(path))
    assert sweep.name == path.stem
    for variant in sweep.variants:
        if variant.heads not in ("triplet", "gfsa", "ppr", "nexus"):
            build_heads(variant, layers=12, heads=12)
    if sweep.kind in ("partners", "far-recall"):
        study = script.study_of(sweep)
        for run in script.all_runs(sweep, Path("output")):
            study.read_setting(run)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": []}, "tasks"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"seeds": 0}, "seeds"),
        ({"colour": "red"}, "colour"),
        ({"variants": [{"name": "a", "heads": "paper", "tune": True}]}, "tuning"),
        ({"variants": [{"name": "a"}, {"name": "A"}]}, "differ"),
        ({"question": {"least": 1.0, "tasks": ["other"]}}, "'other'"),
        ({"task_options": {"other": {}}}, "'other'"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_line(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        made(PAIRS, **changes)
    assert "\n" not in str(caught.value)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("trees", {}, "tasks must be ewtrelations or ewtpos, of --data_dir"),
    ("trees", {"variants": [{"name": "x"}]}, "variants must be of no jumps, .*, got 'x'"),
    ("trees", {"kind": "programs"}, "kind must be one of connections, .*, got 'programs'"),
    ("width", {"tasks": ["5 pairs"]}, "task must be as '1 layer, 5 pairs', got '5 pairs'"),
]


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED)
def test_what_a_kind_cannot_run_is_refused(
    name: str, changes: dict[str, Any], message: str, tiny_model: str, tmp_path: Path
) -> None:
    sweep = made(read_sweep(name).model_dump(exclude_unset=True), **changes)
    with pytest.raises(ValueError, match=message):
        script.run_sweep(sweep, tmp_path, model=tiny_model if name == "trees" else None)


@pytest.mark.slow
def test_an_interrupted_sweep_goes_on_and_takes_more_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = script.study_of(made(PAIRS))
    one, calls = study.run, list[str]()

    def run_once(run: Run) -> Any:
        calls.append(str(run))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return one(run)

    monkeypatch.setattr(study, "run", run_once)
    with pytest.raises(KeyboardInterrupt):
        script.run_sweep(made(PAIRS), tmp_path)
    assert len(read_results(tmp_path / script.RESULTS).records) == 1
    first = script.run_sweep(made(PAIRS), tmp_path)
    assert calls[1] == calls[2] and len(calls) == 3
    more = script.run_sweep(made(PAIRS, seeds=2), tmp_path)
    assert len(calls) == 5 and [record.seed for record in more.records] == [0, 1, 0, 1]
    assert scores(first).items() <= scores(more).items()
    assert script.run_sweep(made(PAIRS), tmp_path) and len(calls) == 5


def test_another_process_may_be_at_a_run(tmp_path: Path) -> None:
    sweep = made(PAIRS)
    busy = Run(sweep, sweep.tasks[0], sweep.variants[1], 0, tmp_path)
    busy.folder.parent.mkdir(parents=True)
    with FileLock(f"{busy.folder}.lock"):
        found = script.run_sweep(sweep, tmp_path)
    assert [record.variant for record in found.records] == ["plain"]
    records = script.run_sweep(sweep, tmp_path).records
    assert [record.content["settings"]["heads"] for record in records] == ["none", "stones"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"study": {"steps": 6}},
        {"variants": [{"name": "plain"}, {"name": "stones", "heads": "gfsa"}]},
        {"variants": [{"name": "plain"}]},
    ],
)
def test_results_that_do_not_fit_are_refused_and_left(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    script.run_sweep(made(PAIRS), tmp_path)
    before = (tmp_path / script.RESULTS).read_bytes()
    with pytest.raises(ValueError, match="name another folder"):
        script.run_sweep(made(PAIRS, **changes), tmp_path)
    assert (tmp_path / script.RESULTS).read_bytes() == before


@pytest.mark.parametrize("error", [RuntimeError, FloatingPointError])
def test_a_run_that_fails_does_not_stop_the_others(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = script.study_of(made(PAIRS))
    one = study.run

    def fail(run: Run) -> Any:
        if run.variant.name == "plain":
            raise error("no memory\nat all")
        return one(run)

    monkeypatch.setattr(study, "run", fail)
    with pytest.raises(RuntimeError, match=r"1 of 2 runs failed; .*plain, seed 0: failed, no memo"):
        script.run_sweep(made(PAIRS), tmp_path)
    results = read_results(tmp_path / script.RESULTS)
    assert [record.variant for record in results.records] == ["stones"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "sweep must be one of "),
        (["partners", "--model", "m"], "leave out --model"),
        (["layers"], "needs --model"),
        (["partners", "--data_dir", "nowhere"], r"data_dir must be a folder, got nowhere$"),
        (["partners", "--tasks", "1 layer"], "tasks must be among "),
        (["missing.toml"], "missing.toml"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=message) as caught:
        script.main([*words, "--output", str(tmp_path / "out")])
    assert "\n" not in str(caught.value) and not (tmp_path / "out" / script.RESULTS).exists()


@pytest.mark.slow
def test_fine_tuning_with_a_chosen_threshold_and_a_calibrated_one(
    tiny_model: str, tmp_path: Path
) -> None:
    jumps = {"heads": "paper", "settings": {"heads": 2}}
    tuned = {"thresholds": [0.5, 2.0], "held_out": 0.25}
    variants = [
        {"name": "base"},
        {"name": "tuned", "tune": True, **jumps},
        {"name": "same", "tune": "tuned", "options": {"depth": "-1"}, **jumps},
        {"name": "calibrated", "density": 0.1, **jumps},
        {"name": "stones", "heads": "stones"},
    ]
    sweep = made(TEXTS, variants=variants, tuning=tuned)
    results = script.run_sweep(sweep, tmp_path, model=tiny_model)
    found = {record.variant: record.content for record in results.records}
    assert list(found) == [variant["name"] for variant in variants]
    assert found["tuned"]["threshold"] in tuned["thresholds"]
    assert found["tuned"]["tuning"] == found["same"]["tuning"]
    right = [content["answers"]["validation"]["right"] for content in found.values()]
    assert len(right[0]) == 8 and all(one == right[0] for one in right)
    assert found["stones"]["strengths"] and not found["tuned"]["strengths"]
    assert not list(tmp_path.glob("**/*.safetensors"))
    assert {"change", "low", "high"} <= set(numbers(results).columns)
    with pytest.raises(ValueError, match=r"weights|model"):
        script.run_sweep(sweep, tmp_path, model=str(Path(tiny_model).parent))


@pytest.mark.slow
def test_a_model_is_trained_once_and_read_in_several_ways(tiny_model: str, tmp_path: Path) -> None:
    variants: list[dict[str, Any]] = [{"name": "dense"}]
    for way in ("less:window:0.3", "less:means:0.3", "sdpa"):
        variants.append({"name": way, "options": {"attn_implementation": way}})
    sweep = made(TEXTS, kind="reading", variants=variants)
    results = script.run_sweep(sweep, tmp_path, model=tiny_model)
    logits = {r.variant: r.content["scores"]["validation"] for r in results.records}
    assert logits["sdpa"] == logits["dense"]
    assert len(list(tmp_path.glob("models/*/*/model.safetensors"))) == 1
    for options in ({"attn_implementation": "less:noses:0.3"}, {"learning_rate": 0.1}):
        wrong = [{"name": "dense"}, {"name": "a", "options": options}]
        with pytest.raises(ValueError, match=r"attention must be less:METHOD|differ in attn"):
            script.run_sweep(
                made(TEXTS, kind="reading", variants=wrong), tmp_path / "no", model=tiny_model
            )


@pytest.mark.slow
def test_roberta_goes_through_the_command_of_table_1(tiny_roberta: str, tmp_path: Path) -> None:
    sweep, printed = read_sweep("glue-whole"), ["base", "JAT", "JAT†"]
    small = {name: TEXTS[name] for name in ("tasks", "seeds", "options")}
    small |= {"tuning": {"thresholds": [0.5], "held_out": 0.25}, "task_options": {}}
    small |= {"variants": [sweep.variant(name).model_dump() for name in printed]}
    changed = made(sweep.model_dump(exclude_unset=True), **small)
    results = script.run_sweep(changed, tmp_path, model=tiny_roberta)
    assert [record.variant for record in results.records] == printed


def test_a_sweep_may_be_like_another(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('like = "glue"\nname = "mine"\ntasks = ["qqp"]\n[options]\nmax_steps = 3\n')
    mine, glue = read_sweep(str(file)), read_sweep("glue")
    assert (mine.name, mine.tasks, mine.options) == ("mine", ("qqp",), {"max_steps": 3})
    assert mine.variants == glue.variants and mine.paper == glue.paper
    file.write_text("like = 3\n")
    with pytest.raises(ValueError, match="like must be a sweep's name, got 3"):
        read_sweep(str(file))


def test_depths_of_figure_4_are_there_for_any_model() -> None:
    sweep = read_sweep("depth-15")
    assert sweep.base.x == 12
    assert {variant.x for variant in sweep.variants} == set(range(2, 16))
    for variant in sweep.variants:
        assert resolve_depth(variant.options["depth"], 6) == variant.x
        assert sweep.base_of(variant).name == f"base {variant.x:g}"


@pytest.mark.slow
def test_times_are_compared(tiny_model: str, tmp_path: Path) -> None:
    sweep = made(TEXTS, columns=["seconds"], seeds=2)
    frame = numbers(script.run_sweep(sweep, tmp_path, model=tiny_model))
    assert set(frame.metric) == {"seconds"} and (frame["mean"] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "links"), [("trained", "probabilities"), ("pretrained", "scores")]
)
def test_connections(
    model: str, links: str, minilm_path: str, data_dir: Path, tmp_path: Path
) -> None:
    options = {"max_train_samples": 8, "max_eval_samples": 4, "max_steps": 2, "max_length": 32}
    changes = {"kind": "connections", "tasks": ["wnut17"], "options": options}
    sweep = made(TEXTS, study={"model": model, "links": links}, **changes)
    results = script.run_sweep(sweep, tmp_path, model=minilm_path, data_dir=data_dir)
    base, paper = scores(results).values()
    assert ("validation" in base) == (model == "trained")
    assert {"all layers", "layer 1", "layer 6"} <= set(base)
    assert base["layer 1"] != paper["layer 1"]
    assert 0 < base["all layers"]["self > mean + std"] < 1


@pytest.mark.slow
@pytest.mark.parametrize("task", ["listops", "wnut17", "tinyshakespeare"])
def test_from_scratch(task: str, data_dir: Path, tmp_path: Path) -> None:
    options = {"max_train_samples": 16, "max_eval_samples": 8, "max_steps": 2, "max_length": 104}
    changes = {"kind": "scratch", "tasks": [task], "study": {"layers": 1}, "options": options}
    sweep = made(TEXTS, variants=PAIRS["variants"], **changes)
    results = script.run_sweep(sweep, tmp_path, data_dir=data_dir)
    splits = ["validation", "test"] if task == "listops" else ["validation"]
    assert [list(found) for found in scores(results).values()] == [splits] * 2
    assert len(numbers(results)) == 2 and all(
        found[splits[-1]] for found in scores(results).values()
    )
    kept = [record.content["answers"].keys() for record in results.records]
    assert all(own <= {splits[-1]} for own in kept)


def test_scores_that_are_undefined_are_none() -> None:
    measured = {"eval_matthews": float("nan"), "eval_loss": 1.0, "test_matthews": 0.5}
    found = scores_of(["matthews"], ["validation", "test"], measured)
    assert found == {"validation": {"matthews": None}, "test": {"matthews": 0.5}}


@pytest.mark.parametrize(
    ("spec", "layers", "want"),
    [
        ("1-4/12", 12, (0, 1, 2, 3)),
        ("1-4/12", 6, (0, 1)),
        ("5-8/12", 6, (2, 3)),
        ("9-12/12", 4, (3,)),
        ("1-3,8-10/12", 6, (0, 1, 4)),
        ("2,3,7,8,11/12", 12, (1, 2, 6, 7, 10)),
        ("1/12", 2, (0,)),
    ],
)
def test_layers_are_scaled(spec: str, layers: int, want: tuple[int, ...]) -> None:
    assert scale_layers(spec, layers) == want


@pytest.mark.parametrize("whole", [4, 6, 12, 24])
def test_thirds_share_no_layer_and_leave_none_out(whole: int) -> None:
    parts = [scale_layers(f"{a}-{a + 3}/12", whole) for a in (1, 5, 9)]
    assert sorted(layer for part in parts for layer in part) == list(range(whole))


def test_heads_are_scaled_and_of_their_kind() -> None:
    assert [scale_count("heads", "2/12", size) for size in (12, 8, 4, 24)] == [2, 1, 1, 4]
    assert [resolve_depth(spec, 6) for spec in ("-4", "+2", "8/12", 3)] == [2, 8, 4, 3]
    (paper,) = build_heads(Variant(name="a", heads="paper"), layers=6, heads=12, threshold=8.0)
    assert isinstance(paper, JatConfig) and paper == JatConfig.paper(threshold=8.0)
    with pytest.raises(ValueError, match="heads must not be 'ppr' here"):
        build_heads(Variant(name="a", heads="ppr"), layers=2, heads=4)
    for spec in ("0-4/12", "4-1/12", "5-13/12", "all"):
        with pytest.raises(ValueError, match="layers must be"):
            scale_layers(spec, 12)
    for wrong in ("-6", "+x"):
        with pytest.raises(ValueError, match="depth must be"):
            resolve_depth(wrong, 6)


def test_brackets_without_end_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "deep.toml"
    file.write_text(f"name = {'[' * 20_000}", "utf-8")
    with pytest.raises(ValueError, match=r"deep.toml must be TOML, got brackets nested too deeply"):
        read_sweep(str(file))
